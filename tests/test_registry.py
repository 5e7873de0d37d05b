from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.registry import (
    BUILT_IN,
    near,
    profile_problems,
    read_profile,
    register,
    registry,
    unregister,
)

HERE = __name__
NOT_CALLABLE = "120/m"


def plan_of(identifier: str, request: object) -> str | None:
    return {"acme": "10000/d", "free": None}.get(identifier, "100/d")


def seats_of(identifier: str, request: object) -> int:
    return len(identifier)


@pytest.fixture
def registered() -> Iterator[Profile]:
    yield register("app_own", {"axis": "user", "rate": "7/h"})
    unregister("app_own")


def problems(config: Any, name: Any = "mine") -> list[tuple[str, str]]:
    """Return the problems of a profile, with paths below the profile."""
    start = f"SLIDING_WINDOW['PROFILES'][{name!r}]"
    found = list(profile_problems(name, config))
    assert all(path.startswith(start) for path, _ in found)
    return [(path.removeprefix(start), problem) for path, problem in found]


@pytest.mark.parametrize(
    ("name", "axis", "limit", "window"),
    [
        ("ip_public", "ip", 120, 60),
        ("tenant_free", "tenant", 100, 86_400),
        ("tenant_paid", "tenant", 10_000, 86_400),
        ("endpoint_expensive", "endpoint", 30, 60),
        ("endpoint_lightweight", "endpoint", 300, 60),
    ],
)
def test_built_in_profile_is_found(name: str, axis: str, limit: int, window: float) -> None:
    profile = registry.get(name)
    assert profile == Profile(
        name=name, axis=axis, policies=(Policy(limit=limit, window=window),), scope=name
    )
    assert set(BUILT_IN) <= set(registry.configs())


def test_settings_replace_a_built_in_profile() -> None:
    before = registry.get("ip_public")
    mine = {"axis": "ip", "rate": "9/s"}
    with override_settings(SLIDING_WINDOW={"PROFILES": {"ip_public": mine}}):
        assert registry.get("ip_public").policies == (Policy(limit=9, window=1),)
        assert registry.get("tenant_free").policies == (Policy(limit=100, window=86_400),)
    assert registry.get("ip_public") == before


def test_profile_is_built_once() -> None:
    assert registry.get("ip_public") is registry.get("ip_public")


def test_profile_is_kept_when_another_setting_changes() -> None:
    before = registry.get("ip_public")
    with override_settings(LANGUAGE_CODE="de"):
        assert registry.get("ip_public") is before


def test_registered_profile_stays_when_settings_change(registered: Profile) -> None:
    assert registry.get("app_own") is registry.get("app_own")
    assert registry.get("app_own") == registered
    with override_settings(SLIDING_WINDOW={}):
        assert registry.get("app_own") == registered


def test_settings_replace_a_registered_profile(registered: Profile) -> None:
    mine = {"axis": "user", "rate": "1/h"}
    with override_settings(SLIDING_WINDOW={"PROFILES": {"app_own": mine}}):
        assert registry.get("app_own").policies == (Policy(limit=1, window=3_600),)


def test_registered_profile_replaces_a_built_in_one() -> None:
    assert registry.get("ip_public").policies[0].limit == 120
    mine = Profile(name="ip_public", axis="ip", policies=(Policy(limit=1, window=1),))
    assert register("ip_public", mine) is mine
    assert registry.get("ip_public") is mine
    unregister("ip_public")
    assert registry.get("ip_public").policies[0].limit == 120


def test_register_raises_when_a_profile_is_wrong() -> None:
    with pytest.raises(ImproperlyConfigured, match="is required, such as ip"):
        register("app_wrong", {"rate": "1/m"})
    assert "app_wrong" not in registry.configs()


def test_unregister_raises_when_a_profile_is_not_registered(registered: Profile) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"'app_owm' is not registered.*'app_own'"):
        unregister("app_owm")
    with pytest.raises(ImproperlyConfigured, match="profile 'ip_public' is not registered"):
        unregister("ip_public")


def test_get_suggests_a_known_name_when_a_name_is_unknown() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"'tenant_payed': did you mean 'tenant_paid'"):
        registry.get("tenant_payed")
    with pytest.raises(
        ImproperlyConfigured, match=r"'zzz': the known names are endpoint_expensive, "
    ):
        registry.get("zzz")


def test_get_says_what_is_wrong_with_a_profile_that_is_none() -> None:
    with (
        override_settings(SLIDING_WINDOW={"PROFILES": {"ip_public": None}}),
        pytest.raises(ImproperlyConfigured, match=r"\['ip_public'\]: must be a dict"),
    ):
        registry.get("ip_public")


def test_near_lists_similar_names_or_all_names() -> None:
    assert near("limt", ["limit", "rate"]) == "did you mean 'limit'?"
    assert near("ab", ["abc", "abd"]) == "did you mean 'abd' or 'abc'?"
    assert near("zzz", [7, "rate"]) == "the known names are 7, rate."
    assert near("zzz", []) == "none is defined."


def test_wrong_profile_raises_only_when_it_is_used() -> None:
    profiles = {"wrong": {"axis": "ip", "rate": "10/month"}}
    with override_settings(SLIDING_WINDOW={"PROFILES": profiles}):
        assert registry.get("ip_public").name == "ip_public"
        with pytest.raises(ImproperlyConfigured) as caught:
            registry.get("wrong")
    assert str(caught.value).startswith("SLIDING_WINDOW['PROFILES']['wrong']['rate']: unknown unit")


@pytest.mark.parametrize(
    "config",
    [
        {"axis": "ip", "limit": 120, "window": 60},
        {"axis": "ip", "limit": 120, "window": "1m"},
        {"axis": "ip", "rate": "120/m"},
        {"axis": "ip", "rates": ["120/m"]},
    ],
)
def test_limit_can_be_written_in_several_ways(config: dict[str, Any]) -> None:
    assert read_profile("a", config).policies == (Policy(limit=120, window=60),)


def test_read_profile_reads_every_key() -> None:
    config = {
        "axis": "user",
        "rates": ("5/m", "20/h"),
        "algorithm": "buckets",
        "resolution": 12,
        "lease": 2,
        "lease_seconds": "1s",
        "scope": "shared",
        "mode": "observe",
        "count_rejected": True,
        "fallback": "deny",
        "anonymous": "skip",
    }
    counting: dict[str, Any] = {
        "algorithm": "buckets",
        "resolution": 12,
        "lease": 2,
        "lease_seconds": 1,
    }
    assert read_profile("login", config) == Profile(
        name="login",
        axis="user",
        policies=(
            Policy(limit=5, window=60, **counting),
            Policy(limit=20, window=3_600, **counting),
        ),
        scope="shared",
        mode="observe",
        count_rejected=True,
        fallback="deny",
        anonymous="skip",
    )


@pytest.mark.parametrize("rate", [plan_of, f"{HERE}.plan_of"])
def test_rate_may_be_a_callable_or_its_dotted_path(rate: Any) -> None:
    profile = read_profile("a", {"axis": "tenant", "rate": rate, "algorithm": "log"})
    assert profile.policies_for("acme") == (Policy(limit=10_000, window=86_400, algorithm="log"),)
    assert profile.policies_for("other")[0].limit == 100
    assert profile.policies_for("free") == ()


async def aseats_of(identifier: str, request: Any) -> int:
    return seats_of(identifier, request)


@pytest.mark.parametrize("limit", [seats_of, f"{HERE}.seats_of", aseats_of, f"{HERE}.aseats_of"])
def test_limit_may_be_a_callable_or_its_dotted_path(limit: Any) -> None:
    profile = read_profile("a", {"axis": "tenant", "limit": limit, "window": 60})
    assert profile.policies_for("acme") == (Policy(limit=4, window=60),)


def test_profile_problems_lists_every_problem() -> None:
    config = {
        "axis": "",
        "limit": -1,
        "rate": "10/month",
        "rates": ["5/m", "ten/m"],
        "window": 0,
        "algorithm": "fast",
        "resolution": 0,
        "lease": -1,
        "lease_seconds": "soon",
        "scope": 7,
        "mode": "warn",
        "count_rejected": "yes",
        "fallback": "none",
        "anonymous": "no",
        "burts": 1,
    }
    found = problems(config)
    assert [path for path, _ in found] == [
        "['burts']",
        "['axis']",
        "['limit']",
        "['window']",
        "['rate']",
        "['rates'][1]",
        "['algorithm']",
        "['resolution']",
        "['lease']",
        "['lease_seconds']",
        "['scope']",
        "['mode']",
        "['count_rejected']",
        "['fallback']",
        "['anonymous']",
        "",
    ]
    assert "is required, such as ip" in dict(found)["['axis']"]
    assert "found: limit, rate, rates" in dict(found)[""]


@pytest.mark.parametrize(
    ("config", "path", "problem"),
    [
        ([], "", "must be a dict, not list."),
        ({"axis": "ip"}, "", "needs exactly one of limit, rate, rates and tiers; found: -"),
        ({"axis": "ip", "limit": 1}, "", "limit needs a window"),
        ({"axis": "ip", "rate": "1/m", "window": 1}, "['window']", "is only for limit"),
        ({"axis": "ip", "rates": []}, "['rates']", "must be a list of rates"),
        ({"axis": "ip", "rates": "5/m"}, "['rates']", "must be a list of rates"),
        ({"axis": "ip", "rates": [plan_of]}, "['rates'][0]", "is not a string"),
        ({"axis": "ip", "rate": 5}, "['rate']", "is not a string"),
        ({"axis": "ip", "rate": "1.5/m"}, "['rate']", "'1.5' of rate '1.5/m' is not a whole"),
        ({"axis": "ip", "rate": "1.5"}, "['rate']", "has no '/'"),
        ({"axis": "ip", "rate": "no.such.path"}, "['rate']", "No module named 'no'"),
        ({"axis": "ip", "rate": f"{HERE}.no_such"}, "['rate']", "no_such"),
        ({"axis": "ip", "rate": f"{HERE}.NOT_CALLABLE"}, "['rate']", "is not a function"),
        ({"axis": "ip", "limit": "120", "window": 1}, "['limit']", "neither a whole number nor"),
        ({"axis": "ip", "limit": 1.5, "window": 1}, "['limit']", "1.5 is not a whole number"),
        ({"axis": "ip", "rate": "1/m", "lmit": 1}, "['lmit']", "did you mean 'limit'?"),
        (
            {"axis": "ip", "rate": plan_of, "algorithm": "x"},
            "['algorithm']",
            "is not one of compact",
        ),
        (
            {"axis": "ip", "rate": "1/m", "algorithm": "penalty"},
            "['algorithm']",
            "algorithm 'penalty' is not one of compact",
        ),
        (
            {"axis": "ip", "rate": "1/m", "algorithm": ["log"]},
            "['algorithm']",
            "algorithm ['log'] is not one of compact",
        ),
        ({"axis": "ip", "rate": "1/m", "scope": ""}, "['scope']", "must be a string"),
        (Profile(name="b", axis="ip", limit_for=plan_of), "", "another name, 'b'"),
    ],
)
def test_profile_problems_names_the_path_and_the_problem(
    config: Any, path: str, problem: str
) -> None:
    [(found_path, found)] = problems(config)
    assert found_path == path
    assert problem in found


@pytest.mark.parametrize("name", [None, "", 7])
def test_profile_problems_reports_a_wrong_name(name: Any) -> None:
    assert problems({"axis": "ip", "rate": "1/m"}, name) == [
        ("", "the name of a profile must be a string that is not empty.")
    ]


def test_profile_problems_is_empty_when_a_profile_is_valid() -> None:
    assert problems(Profile(name="mine", axis="ip", limit_for=plan_of)) == []
    assert all(problems(config, name) == [] for name, config in BUILT_IN.items())
