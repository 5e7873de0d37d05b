from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidingwindow.exceptions import PolicyError, SlidingWindowError, StoreError
from django_slidingwindow.policies import Policy, Profile, parse_cost
from django_slidingwindow.rates import MAX_LIMIT, parse_limit, parse_rate, parse_window

ONE = Policy(limit=1, window=1)


@pytest.mark.parametrize(
    ("rate", "limit", "window"),
    [
        ("120/m", 120, 60),
        ("10/30s", 10, 30),
        ("100/d", 100, 86_400),
        ("0/h", 0, 3_600),
        ("5/250ms", 5, 0.25),
        ("1/2w", 1, 1_209_600),
        ("7/hour", 7, 3_600),
        (" 7 / 2 days ", 7, 172_800),
        ("100000000/400d", 100_000_000, 34_560_000),
    ],
)
def test_parse_rate_returns_a_limit_and_a_window(rate: str, limit: int, window: float) -> None:
    assert parse_rate(rate) == (limit, window)
    assert Policy.parse(rate) == Policy(limit=limit, window=window)


@pytest.mark.parametrize(
    ("rate", "wrong", "allowed"),
    [
        ("10/month", "unknown unit 'month'", "ms, s, m, h, d, w"),
        ("5/0s", "'0s' is out of range", "use 1 millisecond to 400 days"),
        ("-1/m", "'-1'", "a whole number"),
        ("ten/m", "'ten'", "a whole number"),
        ("1.5/m", "'1.5'", "a whole number"),
        ("/m", "limit ''", "a whole number"),
        ("10", "has no '/'", '"120/m"'),
        ("10/", "window '' is not valid", "a whole number and a unit"),
        ("10/60", "window '60' is not valid", "a whole number and a unit"),
        ("10/1.5s", "window '1.5s' is not valid", "a whole number and a unit"),
        ("10/s/s", "window 's/s' is not valid", "a whole number and a unit"),
        ("10/401d", "'401d' is out of range", "use 1 millisecond to 400 days"),
        ("10/0ms", "'0ms' is out of range", "use 1 millisecond to 400 days"),
        ("100000001/d", "100000001 is out of range", "0 to 100,000,000"),
        ("٣/m", "'٣'", "a whole number"),
        (f"{'9' * 5_000}/m", "is not a whole number", '"120/m"'),
        (f"1/{'9' * 5_000}s", "is not valid", "a whole number and a unit"),
        (120, "120 is not a string", '"120/m"'),
        (None, "None is not a string", '"120/m"'),
    ],
)
def test_parse_rate_says_what_is_wrong_and_what_is_allowed(
    rate: Any, wrong: str, allowed: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_rate(rate)
    assert wrong in str(caught.value)
    assert allowed in str(caught.value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (60, 60),
        (0.001, 0.001),
        (400 * 86_400, 34_560_000),
        (timedelta(minutes=1), 60),
        (timedelta(microseconds=1_500), 0.0015),
        ("1m", 60),
        ("m", 60),
        ("250 ms", 0.25),
        (1.0000004, 1.0),
    ],
)
def test_parse_window_reads_seconds_timedeltas_and_text(value: Any, seconds: float) -> None:
    assert parse_window(value) == seconds
    assert Policy(limit=1, window=value).window == seconds


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        0.0009,
        400 * 86_400 + 1,
        float("nan"),
        float("inf"),
        10**400,
        timedelta(0),
        timedelta(days=401),
        timedelta(microseconds=999),
    ],
)
def test_parse_window_names_the_range_when_a_window_is_out_of_range(value: Any) -> None:
    with pytest.raises(PolicyError, match="out of range: use 1 millisecond to 400 d"):
        parse_window(value)


@pytest.mark.parametrize("value", [None, True, b"1m", [60], object()])
def test_parse_window_names_the_valid_types_when_the_type_is_wrong(value: Any) -> None:
    with pytest.raises(PolicyError, match="is not seconds, a timedelta or a string such as '1m'"):
        parse_window(value)


@given(st.integers(1_000, 400 * 86_400 * 1_000_000))
def test_window_keeps_every_microsecond(microseconds: int) -> None:
    policy = Policy(limit=1, window=timedelta(microseconds=microseconds))
    assert policy.window_us == microseconds
    assert parse_window(float(policy.window_text)) == policy.window


@pytest.mark.parametrize("value", [1.0, "1", None, True])
def test_parse_limit_raises_when_a_limit_is_not_a_whole_number(value: Any) -> None:
    with pytest.raises(PolicyError, match="is not a whole number"):
        parse_limit(value)


@pytest.mark.parametrize("value", [-1, MAX_LIMIT + 1])
def test_limit_error_names_the_range_when_a_limit_is_out_of_range(value: int) -> None:
    with pytest.raises(PolicyError, match="use 0 to 100,000,000"):
        Policy(limit=value, window=1)


def test_limit_may_be_0() -> None:
    assert Policy(limit=0, window=1).limit == 0


def test_policy_error_lists_the_algorithms_when_one_is_unknown() -> None:
    with pytest.raises(PolicyError, match=r"'fast'.*compact, log, buckets, counter"):
        Policy(limit=1, window=1, algorithm="fast")


@pytest.mark.parametrize("resolution", [0, 1_001, 2.0, True, "60"])
def test_policy_raises_when_a_resolution_is_wrong(resolution: Any) -> None:
    with pytest.raises(PolicyError, match="not a whole number from 1 to 1000"):
        Policy(limit=1, window=1, resolution=resolution)


@pytest.mark.parametrize(
    ("window", "text", "label"), [(60, "60", "9/60s"), (0.25, "0.25", "9/0.25s")]
)
def test_policy_has_a_label(window: float, text: str, label: str) -> None:
    policy = Policy(limit=9, window=window)
    assert (policy.window_text, policy.label) == (text, label)


@pytest.mark.parametrize("cost", [0, 1, 10**6])
def test_parse_cost_returns_a_whole_number(cost: int) -> None:
    assert parse_cost(cost) == cost


@pytest.mark.parametrize("cost", [-1, 1.0, 0.5, "1", None, True])
def test_parse_cost_raises_when_a_cost_is_not_a_whole_number(cost: Any) -> None:
    with pytest.raises(ValueError, match="is not a whole number of at least 0"):
        parse_cost(cost)


def test_scope_is_the_name_of_the_profile_by_default() -> None:
    assert Profile(name="a", axis="ip", policies=(ONE,)).scope == "a"
    assert Profile(name="a", axis="ip", policies=(ONE,), scope="b").scope == "b"


def test_profile_is_observed_in_observe_mode() -> None:
    assert Profile(name="a", axis="ip", policies=(ONE,), mode="observe").observed
    assert not Profile(name="a", axis="ip", policies=(ONE,)).observed


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": ""}, "needs a name and an axis"),
        ({"axis": ""}, "needs a name and an axis"),
        ({"policies": ()}, "needs either policies or limit_for"),
        ({"limit_for": lambda *_: None}, "needs either policies or limit_for"),
        ({"mode": "warn"}, "mode 'warn' of profile 'a' is not one of enforce, observe"),
        ({"anonymous": "no"}, "anonymous 'no' of profile 'a' is not one of ip, skip"),
        ({"fallback": "no"}, "fallback 'no' of profile 'a' is not one of local, allow, deny"),
    ],
)
def test_profile_raises_when_a_field_is_wrong(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(PolicyError, match=problem):
        Profile(**{"name": "a", "axis": "ip", "policies": (ONE,), **fields})


@pytest.mark.parametrize("fallback", [None, "local", "allow", "deny"])
def test_profile_may_have_its_own_fallback(fallback: str | None) -> None:
    assert Profile(name="a", axis="ip", policies=(ONE,), fallback=fallback).fallback == fallback


def test_policies_for_returns_fixed_policies_for_every_identifier() -> None:
    profile = Profile(name="a", axis="ip", policies=(ONE,))
    assert profile.policies_for("x") == profile.policies_for("y") == (ONE,)


@pytest.mark.parametrize(
    ("returned", "policies"),
    [
        (None, ()),
        ("5/m", [(5, 60)]),
        (7, [(7, 10)]),
        (["5/m", "20/h"], [(5, 60), (20, 3_600)]),
        (("5/m",), [(5, 60)]),
    ],
)
def test_policies_for_calls_the_function_of_the_profile(returned: Any, policies: Any) -> None:
    calls = []

    def limit_for(identifier: str, request: object) -> Any:
        calls.append((identifier, request))
        return returned

    profile = Profile(
        name="a", axis="tenant", limit_for=limit_for, window=10, algorithm="log", resolution=9
    )
    made = profile.policies_for("acme")
    assert [(policy.limit, policy.window) for policy in made] == list(policies)
    assert all((policy.algorithm, policy.resolution) == ("log", 9) for policy in made)
    assert calls == [("acme", None)]


@pytest.mark.parametrize("returned", ["7/m", 7, ["5/m", "20/h"]])
def test_policies_for_parses_the_same_limit_once(returned: Any) -> None:
    profile = Profile(name="a", axis="tenant", limit_for=lambda *_: returned, window=10)
    assert profile.policies_for("acme") is profile.policies_for("other")
    other = replace(profile, algorithm="log")
    assert {policy.algorithm for policy in other.policies_for("acme")} == {"log"}


@pytest.mark.parametrize(
    "returned", [True, 1.0, [True], {"limit": 1}, [["5/m"]], -1, "many", [], ()]
)
def test_policies_for_raises_when_a_function_returns_no_valid_limit(returned: Any) -> None:
    results = [1, returned, returned]
    profile = Profile(name="a", axis="tenant", limit_for=lambda *_: results.pop(0), window=10)
    assert profile.policies_for("acme")[0].limit == 1
    for _ in range(2):
        with pytest.raises(PolicyError):
            profile.policies_for("acme")


def test_policies_for_raises_when_a_number_has_no_window() -> None:
    profile = Profile(name="a", axis="tenant", limit_for=lambda *_: 5)
    with pytest.raises(PolicyError, match="returned 5, and the profile has no window"):
        profile.policies_for("acme")


def test_errors_have_one_base_class() -> None:
    assert issubclass(PolicyError, ValueError)
    assert issubclass(PolicyError, SlidingWindowError)
    assert issubclass(StoreError, SlidingWindowError)
    assert StoreError("gone").outage
    assert not StoreError("this call alone", outage=False).outage


def test_policy_has_the_same_hash_in_every_process() -> None:
    source = (
        "import pickle, sys; from django_slidingwindow.policies import Policy;"
        "sys.stdout.buffer.write(pickle.dumps(Policy.parse('5/m', algorithm='log')))"
    )
    pickled = subprocess.run(
        [sys.executable, "-c", source],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": "1"},
        cwd=Path(__file__).parent.parent,
    ).stdout
    assert {Policy.parse("5/m", algorithm="log"): "found"}[pickle.loads(pickled)] == "found"


# Leases


@pytest.mark.parametrize(
    ("window", "given", "seconds"),
    [
        (60, 0, 0.6),
        (86_400, 0, 30),
        (0.001, 0, 0.000_01),
        (60, 5, 5),
        (60, 0.0000014, 0.000_001),
        (60, 500, 30),
    ],
)
def test_lease_lasts_for_a_share_of_the_window(window: float, given: float, seconds: float) -> None:
    policy = Policy(limit=100, window=window, lease=10, lease_seconds=given)
    assert policy.lease_seconds == seconds
    assert policy.counted_us == policy.window_us + round(seconds * 1_000_000)
    assert replace(policy, limit=7).lease_seconds == seconds


def test_hit_counts_for_one_window_when_there_is_no_lease() -> None:
    policy = Policy(limit=100, window=60, lease_seconds=5)
    assert (policy.lease_seconds, policy.counted_us) == (0, 60_000_000)
    assert policy == Policy(limit=100, window=60)
    assert hash(policy) != hash(Policy(limit=100, window=60, lease=1))


@pytest.mark.parametrize("lease", [-1, 10_001, 1.0, True, "5", None])
def test_policy_raises_when_a_lease_is_wrong(lease: Any) -> None:
    with pytest.raises(PolicyError, match="lease"):
        Policy(limit=1, window=1, lease=lease)


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1m"])
def test_policy_raises_when_a_lease_does_not_last(seconds: Any) -> None:
    with pytest.raises(PolicyError, match=r"lease_seconds .* is not a positive number"):
        Policy(limit=1, window=60, lease=1, lease_seconds=seconds)


def test_policy_raises_when_the_counter_has_a_lease() -> None:
    with pytest.raises(PolicyError, match="counter"):
        Policy(limit=1, window=1, algorithm="counter", lease=1)


def test_policies_for_adds_the_lease_to_limits_of_a_function() -> None:
    profile = Profile(
        name="a", axis="tenant", limit_for=lambda *_: "100/m", lease=5, lease_seconds=2
    )
    (policy,) = profile.policies_for("acme")
    assert (policy.lease, policy.lease_seconds) == (5, 2)


def test_slots_have_a_label_and_cannot_be_leased() -> None:
    policy = Policy(limit=5, window="2m", algorithm="slots")
    assert (policy.inflight, policy.label) == (True, "5 in flight")
    assert not Policy(limit=5, window=120).inflight
    assert policy != Policy(limit=5, window=120)
    with pytest.raises(PolicyError, match="lease cannot be used with inflight"):
        Policy(limit=5, window=120, algorithm="slots", lease=1)


def test_profile_raises_when_slots_are_deferred() -> None:
    policy = Policy(limit=5, window=120, algorithm="slots")
    for fields in ({"policies": (policy,)}, {"limit_for": lambda *_: "5/m", "inflight": 5}):
        with pytest.raises(PolicyError, match="cannot be deferred with inflight"):
            Profile(name="a", axis="ip", mode="deferred", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("returned", ["5/m", 5, ["5/m", "9/h"]])
def test_policies_for_adds_slots_to_limits_of_a_function(returned: Any) -> None:
    profile = Profile(
        name="a", axis="ip", limit_for=lambda *_: returned, window=60, inflight=2, hold=30
    )
    *rates, slots = profile.policies_for("x")
    assert len(rates) == (2 if isinstance(returned, list) else 1)
    assert slots == Policy(limit=2, window=30, algorithm="slots")
    assert profile.policies_for("x") is profile.policies_for("y")


def test_policies_for_adds_no_slots_when_a_function_returns_none() -> None:
    profile = Profile(name="a", axis="ip", limit_for=lambda *_: None, inflight=2)
    assert profile.policies_for("x") == ()
