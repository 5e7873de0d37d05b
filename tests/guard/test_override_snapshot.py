"""Overrides in memory change the decisions of every entry point."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from django.core.handlers.base import BaseHandler
from django.db import connection
from django.http import HttpResponse, JsonResponse
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import path
from ninja import NinjaAPI
from rest_framework.views import APIView

from django_slidingwindow import decisions, limits
from django_slidingwindow.contrib import drf, ninja
from django_slidingwindow.core.keys import parse_key
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.guard import override_snapshot
from django_slidingwindow.guard.current_limiter import limiters_from
from django_slidingwindow.guard.limiter_factory import make_limiter
from django_slidingwindow.guard.override import Override
from django_slidingwindow.rejections import rows
from django_slidingwindow.testing import FrozenClock, limits_disabled, limits_in_memory
from tests.support.function_calls import functions_of
from tests.support.override_factories import ADDRESS, limited, put

if TYPE_CHECKING:
    from redis import Redis

MIDDLEWARE = "django_slidingwindow.middleware.RateLimitMiddleware"
asked: list[str] = []


def planned(identifier: str, request: Any) -> list[str]:
    asked.append(identifier)
    return ["5/m", "9/h"]


def tier(identifier: str, request: Any) -> str:
    return "paid"


PROFILES = {
    "one": {"axis": "ip", "rate": "3/m"},
    "two": {"axis": "ip", "rates": ["3/m", "8/h"]},
    "watching": {"axis": "ip", "rate": "3/m", "mode": "observe"},
    "planned": {"axis": "ip", "rate": planned},
    "tiered": {"axis": "ip", "tiers": {"free": "1/d", "paid": ["5/m", "9/h"]}, "tier": tier},
    "slots": {"axis": "ip", "rate": "9/2m", "inflight": 1, "hold": "2m"},
    "other": {"axis": "ip", "rate": "100/m"},
}


@pytest.fixture(autouse=True)
def clock(settings: Any) -> Iterator[FrozenClock]:
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES}
    asked.clear()
    with limits_in_memory() as clock:
        yield clock
    override_snapshot.publish(None)


# Actions


def test_limit_replaces_the_limit_and_keeps_the_hits() -> None:
    assert limits.check("one", ADDRESS, 2).remaining == 1
    put(**limited((5, None)))
    decision = limits.check("one", ADDRESS)
    assert (decision.limit, decision.remaining, decision.override) == (5, 2, "limit")
    assert decision.policy is not None
    assert decision.policy.label == "5/60s"
    override_snapshot.publish(None)
    assert limits.check("one", ADDRESS).reason == decisions.LIMIT
    assert limits.check("one", "203.0.113.10").override == ""


@pytest.mark.parametrize("profile", ["two", "planned", "tiered"])
def test_limit_of_several_policies_changes_the_one_with_its_window(profile: str) -> None:
    plain = [verdict.limit for verdict in limits.peek(profile, ADDRESS).verdicts]
    put(profile, **limited((50, 3600.0)))
    verdicts = limits.peek(profile, ADDRESS).verdicts
    assert [verdict.limit for verdict in verdicts] == [plain[0], 50]
    assert [verdict.policy.override for verdict in verdicts] == ["", "limit"]


@pytest.mark.parametrize("limit", [(50, None), (50, 86_400.0)])
def test_limit_that_fits_no_window_changes_nothing(limit: tuple[int, float | None]) -> None:
    plain = limits.peek("two", ADDRESS)
    put("two", **limited(limit))
    assert limits.peek("two", ADDRESS) == plain


def test_limit_of_requests_in_flight_changes_and_not_the_rate_of_that_window() -> None:
    with limits.hold("slots", ADDRESS):
        assert not limits.peek("slots", ADDRESS).allowed
        put("slots", **limited((2, 0.0)))
        with limits.hold("slots", ADDRESS) as second:
            assert [verdict.limit for verdict in second.verdicts] == [9, 2]
            assert second.override == "limit"
            assert not limits.check("slots", ADDRESS).allowed
            put("slots", action="observe")
            assert limits.check("slots", ADDRESS).reason == decisions.OBSERVED
            put("slots", action="exempt")
            with limits.hold("slots", ADDRESS) as free:
                assert free.reason == decisions.EXEMPT
            put("slots", action="block")
            with limits.hold("slots", ADDRESS) as blocked:
                assert (blocked.allowed, blocked.reason) == (False, decisions.BLOCK)
    override_snapshot.publish(None)
    assert limits.peek("slots", ADDRESS, 0).verdicts[1].remaining == 1


def test_limit_of_zero_refuses() -> None:
    put(**limited((0, None)))
    decision = limits.check("one", ADDRESS)
    assert (decision.allowed, decision.reason, decision.limit) == (False, "limit", 0)


def test_exempt_identifier_is_never_counted() -> None:
    put("planned", action="exempt")
    for _ in range(9):
        decision = limits.check("planned", ADDRESS)
    assert (decision.allowed, decision.reason, decision.source) == (True, "exempt", "override")
    assert (decision.override, decision.policy) == ("exempt", None)
    assert asked == []
    override_snapshot.publish(None)
    assert limits.peek("planned", ADDRESS).remaining == 4


def test_observe_counts_and_refuses_nothing() -> None:
    put(action="observe")
    reasons = [limits.check("one", ADDRESS).reason for _ in range(5)]
    assert reasons == ["allowed"] * 3 + ["observe"] * 2
    assert limits.check("one", ADDRESS).override == "observe"
    override_snapshot.publish(None)
    assert limits.check("one", ADDRESS).reason == "limit"


@pytest.mark.parametrize("profile", ["one", "watching", "planned"])
def test_block_refuses_until_its_end(profile: str, clock: FrozenClock) -> None:
    put(profile, action="block", until=override_snapshot.clock() + 90)
    clock.advance(30)
    decision = limits.check(profile, ADDRESS)
    assert (decision.allowed, decision.reason, decision.source) == (False, "block", "override")
    assert (decision.retry_after, decision.override) == (pytest.approx(60), "block")
    assert asked == []
    parts = parse_key(decision.key, "throttle")
    assert parts is not None
    assert (parts.axis, parts.identifier, parts.scope) == ("ip", ADDRESS, profile)
    clock.advance(61)
    assert limits.check(profile, ADDRESS).reason == "allowed"


def test_block_without_an_end_has_no_retry_after() -> None:
    put(action="block")
    decision = limits.check("one", ADDRESS)
    assert (decision.retry_after, decision.reset_after) == (None, 0.0)


async def test_acquire_does_not_wait_for_a_block_to_end() -> None:
    put(action="block", until=override_snapshot.clock() + 3600)
    assert limits.acquire("one", ADDRESS).reason == "block"
    assert (await limits.aacquire("one", ADDRESS)).reason == "block"


async def test_async_checks_obey_overrides() -> None:
    put("planned", action="block")
    assert (await limits.acheck("planned", ADDRESS)).reason == "block"
    assert (await limits.apeek("planned", ADDRESS)).reason == "block"


async def test_reset_deletes_windows_when_an_override_is_in_force() -> None:
    limits.check("one", ADDRESS)
    limits.check("one", "203.0.113.10")
    put(identifier="", action="exempt")
    assert limits.reset("one", ADDRESS) == 1
    assert await limits.areset("one", "203.0.113.10") == 1


def test_nothing_is_overridden_when_limits_are_disabled() -> None:
    put(action="block")
    with limits_disabled():
        assert limits.check("one", ADDRESS).allowed


# Which override counts


def test_override_of_an_identifier_comes_before_one_for_all() -> None:
    put(identifier="", action="block")
    put(action="exempt")
    assert limits.check("one", ADDRESS).reason == "exempt"
    assert limits.check("one", "203.0.113.10").reason == "block"


def test_newest_override_counts_until_it_ends_and_then_the_one_before_it(
    clock: FrozenClock,
) -> None:
    put(**limited((50, None)))
    put(action="block", until=override_snapshot.clock() + 60)
    assert limits.check("one", ADDRESS).reason == "block"
    clock.advance(61)
    assert limits.check("one", ADDRESS).limit == 50


def test_identifier_is_found_in_every_spelling_of_a_request() -> None:
    put(identifier="2001:db8::/64", action="block")
    assert limits.check("one", "2001:DB8:0::17").reason == "block"


def test_long_identifier_is_found_by_its_beginning_and_hash(settings: Any) -> None:
    settings.SLIDING_WINDOW = {
        "PROFILES": {"own": {"axis": "tenant", "rate": "3/m"}},
        "IDENTITIES": {"tenant": "shop.tenant"},
    }
    long = "é" * 300
    key = limits.peek("own", long).key
    parts = parse_key(key, "throttle")
    assert parts is not None
    assert parts.shortened
    put("own", parts.identifier, action="block")
    assert override_snapshot.current is not None
    assert limits.check("own", long).allowed
    override_snapshot.current["own"].shortened = True
    assert limits.check("own", long).reason == "block"
    assert limits.check("own", "è" * 300).allowed


# Entry points


def view(request: Any) -> JsonResponse:
    decision = request.rate_limit
    return JsonResponse({"limit": decision.limit, "override": decision.override})


async def aview(request: Any) -> JsonResponse:
    return view(request)


class Throttled(APIView):
    throttle_classes = (drf.ProfileThrottle("one"),)
    authentication_classes = ()

    def get(self, request: Any) -> JsonResponse:
        return view(request)


api = NinjaAPI(urls_namespace="overriding", throttle=[ninja.ProfileThrottle("one")])
api.add_decorator(ninja.throttled, mode="view")


@api.get("/page")
def page(request: Any) -> dict[str, Any]:
    decision = request.rate_limit
    return {"limit": decision.limit, "override": decision.override}


@api.get("/apage")
async def apage(request: Any) -> dict[str, Any]:
    return page(request)


urlpatterns = [
    path("decorator/", rate_limit("one")(view)),
    path("adecorator/", rate_limit("one")(aview)),
    path("ruled/", view),
    path("drf/", Throttled.as_view()),
    path("ninja/", api.urls),
]
WAYS = ["/decorator/", "/adecorator/", "/ruled/", "/drf/", "/ninja/page", "/ninja/apage"]
Get = Callable[[str], Any]


@pytest.fixture
def get(settings: Any) -> Get:
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = [MIDDLEWARE]
    settings.SLIDING_WINDOW = {
        "PROFILES": PROFILES,
        "RULES": [{"path": "^/ruled/", "profiles": ["one"]}],
    }
    handler, ahandler = BaseHandler(), BaseHandler()
    handler.load_middleware()
    ahandler.load_middleware(is_async=True)

    def answer(url: str) -> Any:
        request = RequestFactory().get(url, REMOTE_ADDR=ADDRESS)
        if "/a" in url:
            return asyncio.run(ahandler.get_response_async(request))
        return handler.get_response(request)

    return answer


@pytest.mark.parametrize("url", WAYS)
def test_every_entry_point_obeys_overrides(get: Get, url: str) -> None:
    assert get(url).headers["RateLimit-Limit"] == "3"
    put(**limited((7, None)))
    raised = get(url)
    assert raised.headers["RateLimit-Limit"] == "7"
    assert raised.headers["RateLimit-Policy"] == '"one";q=7;w=60'
    assert b'"limit":7' in raised.content.replace(b" ", b"")
    assert b'"override":"limit"' in raised.content.replace(b" ", b"")
    put(action="exempt")
    assert "RateLimit-Limit" not in get(url).headers
    put(action="block", until=override_snapshot.clock() + 90)
    refused = get(url)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "90")
    assert "RateLimit-Limit" not in refused.headers
    put(action="observe")
    assert [get(url).status_code for _ in range(5)] == [200] * 5


def test_exempt_profile_leaves_the_others_of_a_request() -> None:
    both = rate_limit("one", "other")(view)
    request = RequestFactory().get("/", REMOTE_ADDR=ADDRESS)
    put("one", action="exempt")
    assert both(request).headers["RateLimit-Policy"] == '"other";q=100;w=60'
    put("other", action="exempt")
    request = RequestFactory().get("/", REMOTE_ADDR=ADDRESS)
    both(request)
    assert request.rate_limit.reason == "exempt"


def test_blocked_profile_charges_nothing_to_the_others() -> None:
    both = rate_limit("other", "one")(view)
    put("one", action="block")
    request = RequestFactory().get("/", REMOTE_ADDR=ADDRESS, headers={"Accept": "application/json"})
    response = both(request)
    assert response.status_code == 429
    assert "Retry-After" not in response.headers
    assert b'"type": "about:blank"' in response.content
    assert limits.peek("other", ADDRESS).remaining == 99


def test_profile_that_was_charged_before_is_not_charged_again() -> None:
    nested = rate_limit("one")(lambda request: rate_limit("one", "other")(view)(request))
    request = RequestFactory().get("/", REMOTE_ADDR=ADDRESS)
    put(**limited((7, None)))
    assert nested(request).status_code == 200
    assert limits.peek("one", ADDRESS).remaining == 5


def test_log_row_of_a_block_names_the_identifier() -> None:
    put(action="block", until=override_snapshot.clock() + 60)
    request = RequestFactory().get("/", REMOTE_ADDR=ADDRESS)
    rate_limit("one")(view)(request)
    ((group, tally),) = rows.refusals(request, request.rate_limit, 0.0)
    row = group.row(tally)
    assert (row.identifier, row.reason, row.override) == (ADDRESS, "block", "block")
    assert (row.limit, row.window, row.retry_after) == (None, None, pytest.approx(60, abs=1))


def test_log_row_has_the_effective_limit() -> None:
    put(**limited((0, None)))
    request = RequestFactory().get("/", REMOTE_ADDR=ADDRESS)
    rate_limit("one")(view)(request)
    ((group, tally),) = rows.refusals(request, request.rate_limit, 0.0)
    row = group.row(tally)
    assert (row.limit, row.override) == (0, "limit")


# Costs


@pytest.mark.django_db
def test_ten_thousand_overrides_cost_a_request_no_query_and_no_more_calls_than_one(
    get: Get,
) -> None:
    put(**limited((1_000, None)))
    few = few_calls(get)
    for number in range(10_000):
        put_quietly(f"10.{number >> 8}.{number & 255}.1")
    assert few_calls(get) == few
    with CaptureQueriesContext(connection) as queries:
        assert get("/decorator/").headers["RateLimit-Limit"] == "1000"
    assert len(queries) == 0


def put_quietly(identifier: str) -> None:
    assert override_snapshot.current is not None
    override_snapshot.current["one"][identifier] = (Override("limit", ((5, None),)),)


def few_calls(get: Get) -> int:
    return len(functions_of(lambda: get("/decorator/")))


def test_shield_forgets_what_was_refused_before(redis: Redis, settings: Any) -> None:
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES, "SHIELD_SECONDS": 600, "LATENCY_BUDGET": 60}
    with limiters_from(make_limiter):
        for _ in range(5):
            decision = limits.check("one", ADDRESS)
        assert decision.source == "shield"
        assert len(limits.get_limiter().shield) == 1
        put(**limited((9, None)))
        assert len(limits.get_limiter().shield) == 0
        assert limits.check("one", ADDRESS).remaining == 5
        limits.get_limiter().close()


def test_response_has_no_fields_when_the_request_is_exempt() -> None:
    put(action="exempt")
    response = rate_limit("one")(lambda request: HttpResponse("ok"))(
        RequestFactory().get("/", REMOTE_ADDR=ADDRESS)
    )
    assert response.status_code == 200
    assert not [name for name in response.headers if name.startswith("RateLimit")]
