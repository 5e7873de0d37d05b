"""A profile that a rule and a view name is charged once, with the higher cost, per identity."""

# ruff: noqa: RUF012 -- lists on the class are DRF's own way

from __future__ import annotations

from functools import wraps

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.views import View
from ninja import NinjaAPI
from ninja.security import HttpBearer
from rest_framework.authentication import BaseAuthentication
from rest_framework.response import Response
from rest_framework.views import APIView

from django_slidingwindow import limits
from django_slidingwindow.contrib.drf import ProfileThrottle
from django_slidingwindow.contrib.ninja import ProfileThrottle as NinjaThrottle
from django_slidingwindow.contrib.ninja import throttled
from django_slidingwindow.decorators import RateLimitMixin, rate_limit
from django_slidingwindow.guard import check as guard
from django_slidingwindow.guard.requirements import Requirement, joined

MIDDLEWARE = "django_slidingwindow.middleware.RateLimitMiddleware"
CLIENT = "203.0.113.9"
PROFILES = {
    "units": {"axis": "ip", "rate": "10/m"},
    "per_user": {"axis": "user", "rate": "3/m"},
    "anonymous": {"axis": "ip", "rate": "3/m"},
}


def user_of(token):
    """Return the user of a token. Django's authentication middleware does not know tokens."""
    return User(pk=int(token), username=f"user {token}") if token else None


def token_required(view):
    """Set `request.user`, as decorators of token authentication do."""

    def login(request):
        request.user = user_of(request.headers.get("X-Token")) or AnonymousUser()

    if iscoroutinefunction(view):

        @wraps(view)
        async def awrapper(request, *args, **kwargs):
            login(request)
            return await view(request, *args, **kwargs)

        return awrapper

    @wraps(view)
    def wrapper(request, *args, **kwargs):
        login(request)
        return view(request, *args, **kwargs)

    return wrapper


def page(request):
    return HttpResponse()


async def async_page(request):
    return HttpResponse()


class TokenMixin:
    def dispatch(self, request, *args, **kwargs):
        return token_required(super().dispatch)(request, *args, **kwargs)


class Page(TokenMixin, RateLimitMixin, View):
    def get(self, request):
        return HttpResponse()


class AsyncPage(TokenMixin, RateLimitMixin, View):
    async def get(self, request):
        return HttpResponse()


class Token(BaseAuthentication):
    def authenticate(self, request):
        user = user_of(request.headers.get("X-Token"))
        return user and (user, None)


class Throttled(APIView):
    authentication_classes = [Token]

    def get(self, request):
        return Response()


class NinjaToken(HttpBearer):
    def __call__(self, request):
        request.user = user_of(request.headers.get("X-Token")) or AnonymousUser()
        return "anybody"

    def authenticate(self, request, token):
        raise AssertionError


api = NinjaAPI(urls_namespace="named_twice", auth=NinjaToken())
api.add_decorator(throttled, mode="view")


def plan(request):
    return "per_user" if request.user.is_authenticated else "anonymous"


PLACES = ["decorator", "async_decorator", "mixin", "async_mixin", "drf", "ninja", "async_ninja"]
urlpatterns = []
for kind, profile, cost in [("cost", "units", 5), ("user", "per_user", 1), ("same", "units", 1)]:
    limit = rate_limit(profile, cost=cost)
    of_mixin = {"rate_limit_profiles": profile, "rate_limit_cost": cost}
    throttle = [ProfileThrottle(profile, cost=cost)]
    urlpatterns += [
        path(f"{kind}/decorator", token_required(limit(page))),
        path(f"{kind}/async_decorator", token_required(limit(async_page))),
        path(f"{kind}/mixin", Page.as_view(**of_mixin)),
        path(f"{kind}/async_mixin", AsyncPage.as_view(**of_mixin)),
        path(f"{kind}/drf", Throttled.as_view(throttle_classes=throttle)),
    ]
    own = {"throttle": [NinjaThrottle(profile, cost=cost)], "operation_id": None}
    api.get(f"/{kind}/ninja", **own)(lambda request: {})

    @api.get(f"/{kind}/async_ninja", **own)
    async def async_operation(request):
        return {}


choosing = rate_limit(profile=plan)
given_back = rate_limit("units", cost=5, charge_when=lambda response: False)
urlpatterns += [
    path("chosen", choosing(token_required(rate_limit(profile=plan)(page)))),
    path("given_back", token_required(given_back(page))),
    path("", api.urls),
]

pytestmark = pytest.mark.urls(__name__)


@pytest.fixture(autouse=True)
def _project(settings, redis):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    settings.SLIDING_WINDOW = {
        "LOG": False,
        "LATENCY_BUDGET": 10,
        "SHIELD_SECONDS": 0,
        "HEADERS": ["draft", "legacy"],
        "TRUSTED_PROXIES": ["127.0.0.1"],
        "PROFILES": PROFILES,
        "RULES": [
            {"path": "^/(cost|same|given_back)", "profiles": "units"},
            {"path": "^/user/", "profiles": "per_user"},
        ],
    }


@pytest.fixture(params=["sync", "async"])
def get(request):
    """Send a GET through Django's sync or async handler."""

    def ask(url, address=CLIENT, token=""):
        headers = {"X-Token": token, "X-Forwarded-For": address}
        if request.param == "sync":
            return Client().get(url, headers=headers)
        return async_to_sync(AsyncClient().get)(url, headers=headers)

    return ask


def used(profile, identifier=CLIENT):
    decision = limits.peek(profile, identifier, cost=0)
    return decision.limit - decision.remaining


@pytest.mark.parametrize("place", PLACES)
def test_place_with_a_higher_cost_charges_the_difference(get, place):
    statuses = [get(f"/cost/{place}").status_code for _ in range(4)]
    assert statuses == [200, 200, 429, 429]
    assert used("units") == 10


@pytest.mark.parametrize("place", PLACES)
def test_user_that_is_authenticated_later_is_counted(get, place):
    """Twelve addresses used to get twelve requests at three a minute."""
    addresses = [f"203.0.113.{number}" for number in range(12)]
    statuses = [get(f"/user/{place}", address, token="7").status_code for address in addresses]
    assert statuses == [200] * 3 + [429] * 9
    assert used("per_user", "7") == 3
    assert [used("per_user", f"ip:{address}") for address in addresses] == [1] * 12


@pytest.mark.parametrize("place", PLACES)
def test_place_with_the_same_cost_charges_nothing(get, redis, place):
    get(f"/same/{place}")
    redis.config_resetstat()
    assert get(f"/same/{place}").status_code == 200
    assert redis.info("commandstats")["cmdstat_evalsha"]["calls"] == 1
    assert used("units") == 2


def test_profile_is_chosen_again_when_the_user_is_authenticated(get):
    statuses = [get("/chosen", f"203.0.113.{number}", token="7").status_code for number in range(5)]
    assert statuses == [200] * 3 + [429] * 2
    assert used("per_user", "7") == 3
    assert used("anonymous", "203.0.113.0") == 1


@pytest.mark.parametrize("url", ["/cost/decorator", "/cost/drf", "/cost/ninja"])
def test_fields_show_a_profile_once_with_what_is_left(get, url):
    response = get(url)
    assert response["RateLimit-Policy"] == '"units";q=10;w=60'
    assert response["RateLimit"].startswith('"units";r=5;t=')
    assert response["RateLimit-Remaining"] == "5"


def test_fields_show_the_identity_with_the_least_left(get):
    get("/user/decorator", "203.0.113.1", token="7")
    get("/user/decorator", "203.0.113.2", token="7")
    response = get("/user/decorator", CLIENT, token="7")
    assert response["RateLimit-Policy"] == '"per_user";q=3;w=60'
    assert response["RateLimit-Remaining"] == "0"


def test_refund_gives_back_what_all_places_charged(get):
    response = get("/given_back")
    assert response["RateLimit-Remaining"] == "10"
    assert used("units") == 0


@pytest.mark.parametrize("first", [5, 1], ids=["dearer first", "cheaper first"])
def test_identity_that_is_known_later_is_charged_the_highest_cost(rf, first):
    request = rf.get("/", REMOTE_ADDR=CLIENT)
    guard.check(request, joined([Requirement(("units",), cost=first)]))
    request.META["REMOTE_ADDR"] = "203.0.113.10"
    guard.check(request, joined([Requirement(("units",), cost=6 - first)]))
    assert (used("units"), used("units", "203.0.113.10")) == (first, 5)


def test_refusal_of_an_identity_that_is_known_later_is_the_decision(rf):
    limits.check("per_user", "7", cost=3)
    request = rf.get("/", REMOTE_ADDR=CLIENT)
    assert guard.check(request, joined([Requirement(("per_user",))])).allowed
    request.user = user_of("7")
    again = [Requirement(("per_user",))]
    assert not guard.check(request, joined(again)).allowed
    assert not guard.check(request, joined(again)).allowed
    assert not request.rate_limit.allowed


def test_identity_that_is_lost_again_leaves_the_decision(rf, settings):
    profiles = {"key": {"axis": "header:X-API-Key", "rate": "3/m"}}
    settings.SLIDING_WINDOW |= {"PROFILES": profiles}
    request = rf.get("/", HTTP_X_API_KEY="secret")
    decision = guard.check(request, joined([Requirement(("key",))]))
    del request.META["HTTP_X_API_KEY"]
    assert guard.check(request, joined([Requirement(("key",))])) is decision
