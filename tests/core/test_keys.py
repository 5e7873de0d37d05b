from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.cluster import key_slot

from django_slidingwindow.core.keys import (
    MAX_IDENTIFIER,
    KeyParts,
    escape,
    escape_shortened,
    join_identifiers,
    key_beside,
    make_key,
    parse_key,
    unescape,
)
from django_slidingwindow.policies import ALGORITHMS, Policy
from django_slidingwindow.rates import MAX_WINDOW

DAY = Policy(limit=10_000, window=86_400)

# Text with all that could have a meaning in a key, more often than chance would have it.
texts = st.text(
    st.one_of(
        st.sampled_from("{}:%#*?[]\\ +^\0\n\"'aA0é"),
        st.characters(),
        st.characters(categories=["Cs"]),
    ),
    max_size=80,
)
names = texts.filter(bool)
policies = st.builds(
    Policy,
    limit=st.integers(0, 10),
    window=st.sampled_from([0.001, 0.25, 1, 1.5, 60, 60.000001, 86_400, MAX_WINDOW]),
    algorithm=st.sampled_from(ALGORITHMS),
)
windows = st.tuples(names, texts, names, policies)


def slot(key: str) -> int:
    return key_slot(key.encode())


def test_a_key_reads_as_documented() -> None:
    key = make_key("throttle", "tenant", "acme", "tenant_paid", DAY)
    assert key == "throttle:tenant:{acme}:tenant_paid:c86400"


@pytest.mark.parametrize(
    ("algorithm", "ending"),
    [("compact", "c0.25"), ("log", "l0.25"), ("buckets", "b0.25"), ("counter", "w0.25")],
)
def test_each_algorithm_and_window_has_its_own_key(algorithm: str, ending: str) -> None:
    policy = Policy(limit=1, window=0.25, algorithm=algorithm)
    assert make_key("throttle", "ip", "x", "y", policy) == f"throttle:ip:{{x}}:y:{ending}"


def test_key_does_not_contain_the_limit() -> None:
    other = Policy(limit=1, window=86_400)
    assert make_key("t", "ip", "x", "y", DAY) == make_key("t", "ip", "x", "y", other)


@given(windows, windows)
def test_no_two_windows_share_a_key(
    one: tuple[str, str, str, Policy], two: tuple[str, str, str, Policy]
) -> None:
    def identity(window: tuple[str, str, str, Policy]) -> object:
        axis, identifier, scope, policy = window
        return axis, identifier, scope, policy.algorithm, policy.window

    shared = make_key("throttle", *one) == make_key("throttle", *two)
    assert shared == (identity(one) == identity(two))


@given(texts, texts)
def test_no_two_identifiers_share_an_escape(one: str, two: str) -> None:
    assert (escape(one) == escape(two)) == (one == two)


@given(windows, st.sampled_from(["throttle", "shop:limits", "a.b*c"]))
def test_a_key_can_be_read_back(window: tuple[str, str, str, Policy], prefix: str) -> None:
    axis, identifier, scope, policy = window
    parts = parse_key(make_key(prefix, *window), prefix)
    assert parts is not None
    shortened = parts.shortened
    assert parts == KeyParts(
        axis=axis,
        identifier=parts.identifier if shortened else identifier,
        scope=scope,
        algorithm=policy.algorithm,
        window=policy.window,
        shortened=shortened,
    )
    if shortened:
        beginning, _, digest = parts.identifier.rpartition("#")
        assert identifier.startswith(beginning)
        assert re.fullmatch("[0-9a-f]{40}", digest)


@given(texts, names, names, names, policies, policies)
def test_all_windows_of_an_identifier_live_in_one_slot_on_every_axis(
    identifier: str, axis: str, scope: str, other: str, one: Policy, two: Policy
) -> None:
    first = make_key("throttle", axis, identifier, scope, one)
    second = make_key("throttle", other, identifier, other, two)
    assert slot(first) == slot(second) == slot(escape(identifier))


@pytest.mark.parametrize("identifier", ["", "}", "{", "{}", "a}b{c", "{a}:x:{b}", "}{"])
def test_braces_in_an_identifier_cannot_move_the_hash_tag(identifier: str) -> None:
    key = make_key("throttle", "ip", identifier, "login", DAY)
    assert (key.count("{"), key.count("}")) == (1, 1)
    assert slot(key) == slot(escape(identifier))


def test_identifiers_spread_over_the_slots() -> None:
    slots = {slot(make_key("throttle", "ip", f"10.0.0.{i}", "x", DAY)) for i in range(200)}
    assert len(slots) > 190


@pytest.mark.parametrize(
    "identifier", ["203.0.113.9", "2001:db8::/64", "acme", "GET /a/b?c".replace("?", "-")]
)
def test_common_identifiers_stay_readable(identifier: str) -> None:
    readable = identifier.replace(" ", "%20")
    assert f"{{{readable}}}" in make_key("throttle", "ip", identifier, "x", DAY)


@pytest.mark.parametrize(
    "identifier", ["a" * 129, "a" * 1_000_000, "😀" * 40, "{" * 60, "é" * 22, "\ud800" * 90]
)
def test_a_long_identifier_is_shortened_by_a_hash(identifier: str) -> None:
    escaped = escape(identifier)
    assert len(escaped) <= MAX_IDENTIFIER
    assert re.fullmatch(r"[^#{}:]+#[0-9a-f]{40}", escaped)
    assert escape(identifier + "x") != escaped
    assert identifier.startswith(unescape(escaped).split("#")[0])


@pytest.mark.parametrize("identifier", ["a" * 128, "é" * 21])
def test_an_identifier_that_fits_is_kept_whole(identifier: str) -> None:
    assert unescape(escape(identifier)) == identifier


def test_identifier_that_looks_shortened_differs_from_a_shortened_one() -> None:
    shortened = escape("a" * 200)
    assert escape(shortened) != shortened
    parts = parse_key(make_key("t", "ip", shortened, "x", DAY), "t")
    assert parts is not None
    assert (parts.identifier, parts.shortened) == (shortened, False)


@given(texts.map(lambda text: text + "a" * 200))
def test_shortened_identifier_leads_back_to_its_escape(text: str) -> None:
    assert escape_shortened(unescape(escape(text))) == escape(text)


@pytest.mark.parametrize("text", ["", "acme", "acme#1", "#" + "g" * 40, "a#" + "0" * 41])
def test_escape_shortened_returns_none_for_other_identifiers(text: str) -> None:
    assert escape_shortened(text) is None


def test_key_beside_another_differs_in_its_policy_alone() -> None:
    hour = Policy(limit=1, window=3_600, algorithm="log")
    for name in ("acme", "a:b", "a" * 200):
        key = make_key("t", "ip", name, "x", DAY)
        assert key_beside(key, hour) == make_key("t", "ip", name, "x", hour)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "throttle",
        "throttle:ip:{x}:y",
        "throttle:ip:x:y:c60",
        "throttle:ip:{}:y:c60",
        "throttle:ip:{x}:y:z60",
        "throttle:ip:{x}:y:c",
        "throttle:ip:{x}:y:c60:more",
        "throttle:ip:{x}y:c60",
        "throttle:ip:{a}{b}:y:c60",
        "throttle:ip:{%FF}:y:c60",
        "throttle:%FF:{x}:y:c60",
        "throttles:ip:{x}:y:c60",
        "other:throttle:ip:{x}:y:c60",
    ],
)
def test_key_of_another_app_is_not_parsed(key: str) -> None:
    assert parse_key(key, "throttle") is None


@given(st.lists(texts, min_size=1, max_size=4), st.lists(texts, min_size=1, max_size=4))
def test_no_two_combinations_of_identifiers_are_joined_alike(
    one: list[str], two: list[str]
) -> None:
    assert (join_identifiers(one) == join_identifiers(two)) == (one == two)


def test_joined_identifiers_stay_readable() -> None:
    assert join_identifiers(["10.0.0.1", "api:list"]) == "10.0.0.1+api:list"
