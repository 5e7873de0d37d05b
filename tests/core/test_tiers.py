"""Tiers: from the plan of an identifier to its rates."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.http import HttpResponse
from django.test import RequestFactory

from django_slidingwindow import limits
from django_slidingwindow.core.tiers import Tiers, windows_of
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.inspection import profiles as overview
from django_slidingwindow.management.console import layouts
from django_slidingwindow.registry import profile_problems, registry
from django_slidingwindow.testing import limits_in_memory

HERE = __name__
PLANS = {"acme": "paid", "globex": "free", "own": "internal", "odd": ["not", "hashable"]}
TIERS = {"free": "100/d", "paid": ["20/s", "10000/d"], "internal": None}
asked: list[tuple[str, Any]] = []


def tier(identifier: str, request: Any) -> Any:
    asked.append((identifier, request))
    return PLANS.get(identifier, "gold")


async def atier(identifier: str, request: Any) -> Any:
    return tier(identifier, request)


class Plans:
    async def __call__(self, identifier: str, request: Any) -> Any:
        return tier(identifier, request)


def profile(**changes: Any) -> dict[str, Any]:
    return {"axis": "tenant", "tiers": TIERS, "tier": f"{HERE}.tier", **changes}


@pytest.fixture(autouse=True)
def _profiles(settings: Any) -> Iterator[None]:
    settings.SLIDING_WINDOW = {
        "PROFILES": {
            "tenant_api": profile(),
            "lenient": profile(tiers={**TIERS, "default": "5000/d"}),
            "awaited": profile(tier=f"{HERE}.atier"),
            "called": profile(tier=Plans()),
        },
        "IDENTITIES": {"tenant": lambda request: request.GET.get("tenant")},
    }
    asked.clear()
    with limits_in_memory():
        yield


@pytest.mark.parametrize(
    ("identifier", "rates"),
    [("acme", ["20/1s", "10000/86400s"]), ("globex", ["100/86400s"]), ("own", [])],
)
def test_tier_says_the_rates(identifier: str, rates: list[str]) -> None:
    decision = limits.check("tenant_api", identifier)
    assert [verdict.policy.label for verdict in decision.verdicts] == rates
    assert decision.reason == ("allowed" if rates else "unlimited")
    assert asked == [(identifier, None)]


@pytest.mark.parametrize("name", ["awaited", "called"])
async def test_tier_may_be_async(name: str) -> None:
    decision = await limits.acheck(name, "acme")
    assert (decision.limit, len(decision.verdicts)) == (20, 2)
    assert asked == [("acme", None)]
    assert (await sync_to_async(limits.check)(name, "globex")).limit == 100


def test_tier_of_a_request() -> None:
    request = RequestFactory().get("/?tenant=globex")
    rate_limit("tenant_api")(lambda request: HttpResponse())(request)
    assert request.rate_limit.limit == 100
    assert asked == [("globex", request)]


@pytest.mark.parametrize("identifier", ["stranger", "odd"])
def test_unknown_tier_is_logged_once_and_takes_the_strictest(
    identifier: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert limits.check("tenant_api", identifier).limit == 100
    assert limits.check("tenant_api", identifier).limit == 100
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().endswith("the tier 'free' applies")


def test_unknown_tier_takes_the_default_if_there_is_one() -> None:
    assert limits.check("lenient", "stranger").limit == 5_000


def test_function_that_makes_up_tiers_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tiers = Tiers({"free": ("1/d",)}, lambda identifier, request: identifier)
    for number in range(200):
        assert tiers(str(number), None) == ("1/d",)
    assert len(caplog.records) == 100


@pytest.mark.parametrize(
    ("rates", "strictest"),
    [
        ({"a": ("100/m",), "b": ("99/m",)}, "b"),
        ({"a": ("10/s", "100/d"), "b": ("1/m",)}, "a"),
        ({"a": ("60/m",), "b": ("1/s",)}, "b"),
        ({"a": None, "b": ("100000/s",)}, "b"),
        ({"a": None}, "a"),
    ],
)
def test_strictest_admits_the_least_in_the_long_run(rates: Any, strictest: str) -> None:
    assert Tiers(rates, tier).strictest == strictest


@pytest.mark.parametrize(
    ("changes", "path", "problem"),
    [
        ({"tiers": {}}, "['tiers']", "must be a dict with the rates"),
        ({"tiers": ["5/m"]}, "['tiers']", "must be a dict with the rates"),
        ({"tiers": {"": "5/m"}}, "['tiers']", "the name of a tier must be a string"),
        ({"tiers": {"free": 5}}, "['tiers']", "tier 'free': must be a list of rates"),
        ({"tiers": {"free": []}}, "['tiers']", "tier 'free': must be a list of rates"),
        ({"tiers": {"free": "many"}}, "['tiers']", "tier 'free': rate 'many' has no '/'"),
        ({"tiers": {"free": ["5/m", 5]}}, "['tiers']", "tier 'free': rate 5 is not a string"),
        ({"tier": "free"}, "['tier']", "neither a function nor the dotted path"),
        ({"tier": 5}, "['tier']", "neither a function nor the dotted path"),
        ({"tier": f"{HERE}.gone"}, "['tier']", "gone"),
        ({"rate": "5/m"}, "", "needs exactly one of"),
        ({"window": 60}, "['window']", "is only for limit"),
    ],
)
def test_problems(changes: dict[str, Any], path: str, problem: str) -> None:
    ((where, said),) = profile_problems("x", profile(**changes))
    assert where == f"SLIDING_WINDOW['PROFILES']['x']{path}"
    assert problem in said


@pytest.mark.parametrize("missing", ["tier", "tiers"])
def test_both_keys_are_needed(missing: str) -> None:
    config = profile()
    del config[missing]
    if missing == "tiers":
        config["rate"] = "5/m"
    assert "need each other" in " ".join(said for _, said in profile_problems("x", config))


def test_windows_of_profiles() -> None:
    assert windows_of(registry.get("tenant_api")) == (1.0, 86_400.0)
    assert windows_of(registry.get("ip_public")) == (60.0,)


def test_command_and_json_show_the_tiers() -> None:
    (state,) = [one for one in overview.profiles() if one.name == "tenant_api"]
    record = state.record()
    assert record["tiers"] == {"free": ["100/d"], "paid": ["20/s", "10000/d"], "internal": None}
    (column,) = [one for one in layouts.profiles().columns if one.title == "policies"]
    assert column.cell(record).text == "free: 100/d; paid: 20/s, 10000/d; internal: no limit"
