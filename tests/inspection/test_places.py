"""`explain` finds limits in views of Django, Django REST framework and ninja."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from django.core.handlers.base import BaseHandler
from django.http import HttpResponse
from django.urls import path
from django.views import View
from ninja import NinjaAPI
from rest_framework.decorators import action
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_slidingwindow.contrib import drf, ninja
from django_slidingwindow.decorators import rate_limit, rate_limit_exempt
from django_slidingwindow.guard.usages import usages
from django_slidingwindow.inspection.explain import explain
from django_slidingwindow.inspection.sample_request import request_of
from tests.support.explanations import Inside, explained, real

if TYPE_CHECKING:
    from django_slidingwindow.inspection.explanation import Explanation

OURS = "django_slidingwindow.middleware.RateLimitMiddleware"
PROFILES: dict[str, Any] = {
    "site": {"axis": "ip", "rate": "50/h"},
    "outer": {"axis": "ip", "rate": "40/h"},
    "inner": {"axis": "ip", "rate": "30/h"},
    "users": {"axis": "user_or_ip", "rate": "20/h"},
    "wide": {"axis": "ip", "rate": "20/h"},
    "later": {"axis": "ip", "rate": "20/h", "mode": "deferred"},
    "leased": {"axis": "ip", "rate": "2000/h", "lease": 10},
    "chosen": {"axis": "ip", "rate": lambda identifier, request: "2000/h", "lease": 10},
}


def seen(request: Any, **kwargs: Any) -> HttpResponse:
    return HttpResponse("seen")


class Throttled(APIView):
    authentication_classes = ()
    throttle_classes = (drf.ProfileThrottle("inner"), drf.ProfileThrottle("users", cost=2))

    def get(self, request: Any) -> Response:
        return Response({})


class Named(APIView):
    authentication_classes = ()
    throttle_classes = (drf.ProfileThrottle,)
    rate_limit_profiles = "inner"

    def get(self, request: Any) -> Response:
        return Response({})


class Things(ViewSet):
    authentication_classes = ()

    def list(self, request: Any) -> Response:
        return Response({})

    @action(detail=False, throttle_classes=[drf.ProfileThrottle("users")])
    def busy(self, request: Any) -> Response:
        return Response({})


class Numbered(APIView):
    authentication_classes = ()

    def get_throttles(self) -> Any:
        return [drf.ProfileThrottle("users" if self.kwargs["number"] > 1 else "inner")()]

    def get(self, request: Any, number: int) -> Response:
        return Response({})


class Secretive(APIView):
    def get_throttles(self) -> Any:
        raise LookupError("ask again with a real request")


class Picky(View):
    def __init__(self, **options: Any) -> None:
        raise LookupError("ask again with a real request")


api = NinjaAPI(urls_namespace="places", throttle=[ninja.ProfileThrottle("inner")])
api.add_decorator(ninja.throttled, mode="view")


@api.get("/sync")
def sync_operation(request: Any) -> dict[str, Any]:
    return {}


@api.post("/sync")
def other_operation(request: Any) -> dict[str, Any]:
    return {}


VIEWS: dict[str, Any] = {
    "plain": seen,
    "decorated": rate_limit("outer")(seen),
    "partial": partial(rate_limit("outer")(seen)),
    "exempt": rate_limit_exempt(seen),
    "throttled": Throttled.as_view(),
    "both": rate_limit("outer")(Throttled.as_view()),
    "named": Named.as_view(),
    "things": Things.as_view({"get": "list"}),
    "busy": Things.as_view({"get": "busy"}, **Things.busy.kwargs),
}
urlpatterns = [
    *[path(f"{name}/", view) for name, view in VIEWS.items()],
    path("numbered/<int:number>/", Numbered.as_view()),
    path("secretive/", Secretive.as_view()),
    path("picky/", Picky.as_view()),
    path("inside/", Inside.as_view()),
    path("later/", rate_limit("later", "leased", "chosen")(seen)),
    path("api/", api.urls),
]
pytestmark = [pytest.mark.urls(__name__), pytest.mark.usefixtures("redis")]


@pytest.fixture(autouse=True)
def _settings(settings: Any) -> None:
    settings.MIDDLEWARE = [OURS]
    settings.SLIDING_WINDOW = {
        "PROFILES": PROFILES,
        "RULES": [{"profiles": ["site"], "methods": "GET"}],
        "LATENCY_BUDGET": 60,
    }


def asked(url: str, method: str = "GET") -> Explanation:
    return explain(request_of(method, url, ip="203.0.113.9"))


def where(found: Explanation) -> list[tuple[str, str]]:
    return [(state.profile, state.place) for state in found.profiles]


@pytest.mark.parametrize(
    "url", [*[f"/{name}/" for name in VIEWS], "/numbered/7/", "/api/sync", "/nowhere/"]
)
@pytest.mark.parametrize("middleware", [True, False])
def test_explanation_equals_what_every_place_charges(
    settings: Any, url: str, middleware: bool
) -> None:
    settings.MIDDLEWARE = [OURS] if middleware else []
    handler = BaseHandler()
    handler.load_middleware()
    for _ in range(3):
        found = asked(url)
        request = request_of("GET", url, ip="203.0.113.9")
        handler.get_response(request)
        assert explained(found) == real(request)


def test_explanation_names_the_place_of_each_profile() -> None:
    assert where(asked("/plain/")) == [("site", "middleware")]
    assert where(asked("/partial/")) == [("site", "middleware"), ("outer", "middleware")]
    assert where(asked("/exempt/")) == []
    throttles = [("inner", "throttle"), ("users", "throttle")]
    assert where(asked("/both/")) == [("site", "middleware"), ("outer", "middleware"), *throttles]
    assert where(asked("/busy/"))[1:] == [("users", "throttle")]
    assert where(asked("/things/"))[1:] == []
    assert where(asked("/api/sync"))[1:] == [("inner", "throttle")]


def test_view_charges_when_there_is_no_middleware(settings: Any) -> None:
    settings.MIDDLEWARE = []
    found = asked("/decorated/")
    assert where(found) == [("outer", "view")]
    assert [rule.why for rule in found.rules] == ["RateLimitMiddleware is not in MIDDLEWARE"]


def test_explanation_of_a_class_declares_no_usage() -> None:
    before = len(usages())
    assert where(asked("/inside/", "POST"))[1:] == [
        ("users", "inside the view"),
        ("wide", "inside the view"),
    ]
    assert len(usages()) == before


def test_places_skip_frameworks_that_are_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ninja", "drf"):
        monkeypatch.delitem(sys.modules, f"django_slidingwindow.contrib.{name}")
    assert where(asked("/throttled/")) == where(asked("/api/sync")) == [("site", "middleware")]


def test_explanation_lists_what_is_unknown() -> None:
    doubts = "\n".join(asked("/secretive/").unknown)
    assert "limits inside the view are unknown: get_throttles failed: ask again" in doubts
    doubts = "\n".join(asked("/picky/").unknown)
    assert "limits inside the view are unknown: the view could not be created: ask again" in doubts
    doubts = "\n".join(asked("/later/").unknown)
    assert "later is deferred" in doubts
    assert "leased is leased" in doubts
    assert "chosen is leased" in doubts
    assert "authenticates by itself, and only if the request gets there: inner, users." in (
        "\n".join(asked("/throttled/").unknown)
    )
    assert "No view has this path" in "\n".join(asked("/nowhere/").unknown)
