"""django-ninja: its own throttle and this app's, compared with an operation without a throttle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ninja import NinjaAPI
from ninja.throttling import AnonRateThrottle, BaseThrottle

from django_slidingwindow.contrib.ninja import ProfileThrottle, throttled

from .base import BARE, OURS_NINJA, Case, ViewContender


def bare(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    return _operation(NinjaAPI(urls_namespace=f"bare-{case.name}"), view, [])


def limit(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    throttle = AnonRateThrottle(f"{case.limit}/{'m' if case.window == 60 else 'd'}")
    throttle.scope = f"ninja-{case.name}"
    return _operation(NinjaAPI(urls_namespace=f"ninja-{case.name}"), view, [throttle])


def limit_by_profile(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    api = NinjaAPI(urls_namespace=f"ours-{case.name}")
    api.add_decorator(throttled, mode="view")
    return _operation(api, view, [ProfileThrottle(f"{case.name}_ninja")])


def _operation(
    api: NinjaAPI, view: Callable[..., Any], throttles: list[BaseThrottle]
) -> Callable[..., Any]:
    """Return the view of an operation, called as ninja's own route calls it."""

    def plain(request: Any) -> Any:
        return view(request)

    api.get("/view", throttle=throttles)(plain)
    routes, _, _ = api.urls
    (operation,) = (route.callback for route in routes if str(route.pattern) == "view")

    def called(request: Any) -> Any:
        request.resolver_match.func = operation
        return operation(request)

    return called


VIEWS = [
    ViewContender("ninja-bare", f"{BARE}, of django-ninja", bare),
    ViewContender("ninja", "django-ninja's throttling", limit, base="ninja-bare"),
    ViewContender("ours-ninja", OURS_NINJA, limit_by_profile, base="ninja-bare"),
]
