"""Leased and deferred profiles at every entry point, sync and async."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from ninja import NinjaAPI
from rest_framework.views import APIView

from django_slidingwindow import decisions, limits, signals
from django_slidingwindow.contrib import drf, ninja
from django_slidingwindow.decorators import rate_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_django.fixtures import SettingsWrapper

    from django_slidingwindow.decisions import Decision

pytestmark = pytest.mark.usefixtures("redis")
PROFILES = {
    "leased": {"axis": "ip", "rate": "1000/m", "lease": 50},
    "later": {"axis": "ip", "rate": "1000/m", "mode": "deferred"},
}


def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=404 if "missing" in request.GET else 200)


async def apage(request: HttpRequest) -> HttpResponse:
    return page(request)


def found(response: Any) -> bool:
    return bool(response.status_code == 200)


def drf_view(profile: str) -> Any:
    class Throttled(APIView):
        throttle_classes = (drf.ProfileThrottle(profile),)
        authentication_classes = ()

        def get(self, request: Any) -> HttpResponse:
            return HttpResponse()

    return Throttled.as_view()


def ninja_urls(profile: str) -> Any:
    api = NinjaAPI(urls_namespace=f"edges-{profile}", throttle=[ninja.ProfileThrottle(profile)])
    api.add_decorator(ninja.throttled, mode="view")
    api.get("/")(lambda request: "ok")
    return api.urls


urlpatterns = [
    route
    for profile in PROFILES
    for route in (
        path(f"decorator/{profile}/", rate_limit(profile)(page)),
        path(f"async-decorator/{profile}/", rate_limit(profile)(apage)),
        path(f"middleware/{profile}/", page),
        path(f"async-middleware/{profile}/", apage),
        path(f"drf/{profile}/", drf_view(profile)),
        path(f"ninja/{profile}/", ninja_urls(profile)),
        path(f"charged/{profile}/", rate_limit(profile, charge_when=found)(page)),
    )
]
EDGES = ["decorator", "async-decorator", "middleware", "async-middleware", "drf", "ninja"]


@pytest.fixture(autouse=True)
def site(settings: SettingsWrapper) -> None:
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = ["django_slidingwindow.middleware.RateLimitMiddleware"]
    rules = [{"path": f"middleware/{name}/", "profiles": [name]} for name in PROFILES]
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES, "RULES": rules, "LATENCY_BUDGET": 20}


@pytest.fixture
def decided() -> Iterator[list[Decision]]:
    made: list[Decision] = []

    def note(decision: Decision, **_: Any) -> None:
        made.append(decision)

    signals.limit_checked.connect(note)
    yield made
    signals.limit_checked.disconnect(note)


def getter(edge: str) -> Callable[[str], Any]:
    if edge.startswith("async"):
        return lambda url: asyncio.run(AsyncClient().get(url))  # type: ignore[arg-type]
    return Client().get


@pytest.mark.parametrize("edge", EDGES)
def test_leased_profile_is_decided_from_memory(edge: str, decided: list[Decision]) -> None:
    get = getter(edge)
    assert [get(f"/{edge}/leased/").status_code for _ in range(4)] == [200] * 4
    assert [each.source for each in decided] == ["redis", "redis", "lease", "lease"]


@pytest.mark.parametrize("edge", EDGES)
def test_deferred_profile_is_charged_afterwards(edge: str, decided: list[Decision]) -> None:
    get = getter(edge)
    responses = [get(f"/{edge}/later/") for _ in range(4)]
    assert [each.status_code for each in responses] == [200] * 4
    assert {each.source for each in decided} == {decisions.DEFERRED}
    # The header fields show the last known state.
    assert responses[-1].headers["RateLimit"].startswith('"later";r=996')
    limits.get_limiter().deferred.flush()
    assert limits.peek("later", "127.0.0.1").remaining == 1000 - 4 - 1


@pytest.mark.parametrize("profile", PROFILES)
def test_charge_when_refunds_a_leased_hit(profile: str) -> None:
    for query in ("", "", "?missing", "?missing", ""):
        Client().get(f"/charged/{profile}/{query}")
    limits.get_limiter().close()
    assert limits.peek(profile, "127.0.0.1").remaining == 1000 - 3 - 1
