"""Counts of the work that a check does. Unlike times, they are the same on every machine."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import LazySettings
from django.core.handlers.base import BaseHandler
from django.db import connection
from django.http import HttpResponse
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import path
from ninja import NinjaAPI
from rest_framework.views import APIView

from django_slidingwindow import limits
from django_slidingwindow.contrib import drf, ninja
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.rejections import recorder
from tests.support.function_calls import Calls, calls_of, functions_of
from tests.support.server_commands import commands_of

if TYPE_CHECKING:
    from redis import Redis

MIDDLEWARE = "django_slidingwindow.middleware.RateLimitMiddleware"


def planned(identifier: str, request: Any) -> list[str]:
    return ["1000000/m", "10000000/d"]


PROFILES = {
    "planned": {"axis": "ip", "rate": planned},
    "wide": {"axis": "ip", "limit": 1_000_000, "window": 60},
    "tenants": {"axis": "tenant", "limit": 1_000_000, "window": 60},
    "everyone": {"axis": "global", "limit": 1_000_000, "window": 60},
    "site": {"axis": "ip", "limit": 1_000_000, "window": 3_600},
    "closed": {"axis": "ip", "limit": 0, "window": 60},
    "audited": {"axis": "ip", "limit": 1_000_000, "window": 60, "log": "all"},
    "leased": {"axis": "ip", "limit": 1_000_000, "window": 86_400, "lease": 100},
}


def tenant(request: Any) -> str:
    return "acme"


def chosen(request: Any) -> str:
    return "wide"


def costing(request: Any) -> int:
    return 2


@pytest.fixture(autouse=True)
def _profiles(settings: Any, redis: Redis) -> Iterator[None]:
    settings.SLIDING_WINDOW = {
        "PROFILES": PROFILES,
        "IDENTITIES": {"tenant": tenant},
        "RULES": [{"path": "^/", "profiles": ["site"]}],
        # Redis must decide, and the shield must not expire, however slow the machine is.
        "LATENCY_BUDGET": 60,
        "SHIELD_SECONDS": 600,
        # Without the log, no receiver listens to refusals.
        "LOG": False,
    }
    yield
    limits.get_limiter().store.close()


def bare(request: Any) -> HttpResponse:
    return HttpResponse(b"ok")


async def abare(request: Any) -> HttpResponse:
    return HttpResponse(b"ok")


VIEWS: dict[str, tuple[Callable[..., Any], bool]] = {
    "bare": (bare, False),
    "decorator": (rate_limit("wide")(bare), False),
    "tenant": (rate_limit("tenants")(bare), False),
    "limit by function": (rate_limit("planned")(bare), False),
    "profile and cost by function": (rate_limit(profile=chosen, cost=costing)(bare), False),
    "three profiles": (rate_limit("wide", "tenants", "everyone")(bare), False),
    "refused": (rate_limit("closed")(bare), False),
    "two decorators": (rate_limit("wide")(rate_limit("tenants")(bare)), False),
    "middleware": (bare, True),
    "middleware and decorator": (rate_limit("wide", "tenants")(bare), True),
    "leased": (rate_limit("leased")(bare), False),
}
urlpatterns = [path(f"{number}/", view) for number, (view, _) in enumerate(VIEWS.values())]


@pytest.fixture
def asks(settings: Any) -> Callable[[str], Callable[[], object]]:
    """A function that returns a check or a request through Django's handler by its name.

    The check has run before, so that everything that is prepared once is prepared.
    """

    def named(way: str) -> Callable[[], object]:
        ask = CHECKS[way] if way in CHECKS else request_of(way)
        for _ in range(3):
            ask()
        return ask

    def request_of(way: str) -> Callable[[], object]:
        _, by_middleware = VIEWS[way]
        settings.ROOT_URLCONF = __name__
        settings.MIDDLEWARE = [MIDDLEWARE] if by_middleware else []
        handler = BaseHandler()
        handler.load_middleware()
        url = f"/{list(VIEWS).index(way)}/"
        # Created here, so that their creation is not counted.
        requests = [RequestFactory().get(url) for _ in range(11)]

        def ask() -> object:
            response = handler.get_response(requests.pop())
            assert response.status_code == (429 if way == "refused" else 200)
            return response

        return ask

    return named


CHECKS: dict[str, Callable[[], object]] = {
    "check": lambda: limits.check("wide", "203.0.113.9"),
    "refused check": lambda: limits.check("closed", "203.0.113.9"),
    "leased check": lambda: limits.check("leased", "203.0.113.9"),
}
WAYS = [*CHECKS, *VIEWS]
way = pytest.mark.parametrize("way", [way for way in WAYS if way != "bare"])


Asks = Callable[[str], Callable[[], object]]


@way
def test_request_sends_one_command_or_none_with_shield_or_lease(
    redis: Redis, asks: Asks, way: str
) -> None:
    ask = asks(way)
    in_memory = "refused" in way or "leased" in way
    assert commands_of(redis, ask) == ([] if in_memory else ["EVALSHA"])


async def test_async_request_sends_one_command(redis: Redis) -> None:
    view = rate_limit("wide", "tenants", "everyone")(abare)
    request = RequestFactory().get
    for _ in range(3):
        await view(request("/page"))
    redis.config_resetstat()
    assert (await view(request("/page"))).status_code == 200
    stats = redis.info("commandstats")
    sent = {name for name in stats if name.startswith(("cmdstat_eval", "cmdstat_script"))}
    assert sent == {"cmdstat_evalsha"}
    assert stats["cmdstat_evalsha"]["calls"] == 1


@way
@pytest.mark.django_db
def test_request_makes_no_database_query(asks: Asks, way: str) -> None:
    ask = asks(way)
    with CaptureQueriesContext(connection) as queries:
        ask()
    assert len(queries) == 0


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each setting is read from now on."""
    names: Counter[str] = Counter()
    plain = LazySettings.__getattribute__

    def noted(self: LazySettings, name: str) -> Any:
        if name.isupper():
            names[name] += 1
        return plain(self, name)

    monkeypatch.setattr(LazySettings, "__getattribute__", noted)
    return names


@way
def test_request_reads_no_setting_that_django_does_not(
    looked_up: Counter[str], asks: Asks, way: str
) -> None:
    by_django: Counter[str] = Counter()
    if way in VIEWS:
        ask = asks("bare")
        looked_up.clear()
        ask()
        by_django = looked_up.copy()
        assert by_django
    ask = asks(way)
    looked_up.clear()
    ask()
    if way == "refused":
        # Without an active language, Django reads it to translate a refusal. It reads it twice
        # for the first refusal with this number of seconds.
        by_django["LANGUAGE_CODE"] += 2
    assert looked_up - by_django == Counter()


@way
def test_request_imports_compiles_and_inspects_nothing(asks: Asks, way: str) -> None:
    calls = calls_of(asks(way))
    by_django = calls_of(asks("bare"))
    assert calls.imports == by_django.imports
    known_before = ("re.", "importlib", "json", "inspect", "django.utils.module_loading")
    assert calls.of(*known_before) - by_django.of(*known_before) == Counter()


# One match for each identifier (does it need escaping?), for each rule, and for the Accept header
# of a refusal.
MOST_MATCHES = {"three profiles": 3, "two decorators": 2, "middleware": 2} | {
    "middleware and decorator": 4
}


@way
def test_regular_expressions_run_once_for_each_identifier_and_rule(asks: Asks, way: str) -> None:
    assert calls_of(asks(way)).matches <= MOST_MATCHES.get(way, 1)


@way
def test_request_logs_nothing_and_sends_no_signal_without_receivers(asks: Asks, way: str) -> None:
    calls = calls_of(asks(way))
    assert not calls.of("logging")
    assert not calls.of("django.dispatch")


# Lower these numbers when the code makes fewer calls.
MOST_FUNCTIONS = {
    "check": 9,
    "refused check": 10,
    "leased check": 9,
    "decorator": 18,
    "tenant": 18,
    "limit by function": 27,
    "profile and cost by function": 25,
    "three profiles": 33,
    "refused": 27,
    "leased": 18,
    "two decorators": 50,
    "middleware": 23,
    "middleware and decorator": 57,
}


@way
def test_request_makes_few_calls(asks: Asks, way: str) -> None:
    functions = functions_of(asks(way))
    assert len(functions) <= MOST_FUNCTIONS[way], functions


class Throttled(APIView):
    throttle_classes = (drf.ProfileThrottle("wide"),)
    authentication_classes = ()

    def get(self, request: Any) -> HttpResponse:
        return HttpResponse(b"ok")


api = NinjaAPI(urls_namespace="hot-path", throttle=[ninja.ProfileThrottle("wide")])
api.add_decorator(ninja.throttled, mode="view")


@api.get("/page")
def page(request: Any) -> str:
    return "ok"


urlpatterns += [path("drf/", Throttled.as_view()), path("ninja/", api.urls)]


def through_django(settings: Any, url: str) -> Callable[[], object]:
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = []
    handler = BaseHandler()
    handler.load_middleware()
    return lambda: handler.get_response(RequestFactory().get(url))


@pytest.mark.parametrize(("url", "most"), [("/drf/", 24), ("/ninja/page", 26)])
def test_throttle_of_a_framework_makes_few_calls(settings: Any, url: str, most: int) -> None:
    functions = functions_of(through_django(settings, url))
    assert len(functions) <= most, functions


def test_acquire_with_a_free_slot_makes_few_calls() -> None:
    functions = functions_of(lambda: limits.acquire("wide", "203.0.113.9"))
    assert len(functions) <= 21, functions


@pytest.mark.django_db
def test_refusal_with_its_log_row_makes_few_calls(settings: Any) -> None:
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "LOG": True}
    ask = through_django(settings, f"/{list(VIEWS).index('refused')}/")
    try:
        functions = functions_of(ask)
        assert len(functions) <= 42, functions
    finally:
        # Write the row now, so that the log's thread does not do it during another test.
        recorder.flush()


@pytest.mark.django_db
def test_admission_with_its_log_row_makes_few_calls(settings: Any) -> None:
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "LOG": True}
    plain = functions_of(lambda: limits.check("wide", "203.0.113.9"))
    try:
        logged = functions_of(lambda: limits.check("audited", "203.0.113.9"))
    finally:
        recorder.flush()
    # Some of these calls find out which test is running, to decide when rows are written.
    assert len(logged) - len(plain) <= 14, logged


def test_async_code_makes_few_calls() -> None:
    async def count() -> tuple[int, int]:
        view = rate_limit("wide")(abare)
        for _ in range(3):
            await limits.acheck("wide", "203.0.113.9")
            await view(RequestFactory().get("/page"))
        counts = []
        # The fewest of three, because a delay adds calls.
        for _ in range(3):
            with Calls() as check:
                await limits.acheck("wide", "203.0.113.9")
            request = RequestFactory().get("/page")
            with Calls() as decorator:
                await view(request)
            counts.append(
                [calls.of("django_slidingwindow.").total() for calls in (check, decorator)]
            )
        check_calls, decorator_calls = zip(*counts, strict=True)
        return min(check_calls), min(decorator_calls)

    check, decorator = asyncio.run(count())
    assert check <= 22
    assert decorator <= 31


def test_counters_notice_a_detour(looked_up: Counter[str], settings: Any) -> None:
    from django.conf import settings as read

    def detour() -> None:
        assert read.USE_TZ
        assert re.compile("a+").fullmatch("aaa")
        import json  # noqa: F401

    calls = calls_of(detour)
    assert looked_up["USE_TZ"] == 1
    assert calls.of("re.")
    assert calls.matches == 1
    assert calls.of(f"{__name__}.detour").total() == 1
    assert calls.imports == ["json"]
