"""Django REST framework's throttling, measured against a view of its own without any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.decorators import api_view, throttle_classes
from rest_framework.throttling import AnonRateThrottle

from .base import BARE, DRF, Case, ViewContender


def bare(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    return api(view, [])


def limit(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    rate = f"{case.limit}/{'min' if case.window == 60 else 'day'}"
    throttle = type("Throttle", (AnonRateThrottle,), {"rate": rate, "scope": case.name})
    return api(view, [throttle])


def api(view: Callable[..., Any], throttles: list[Any]) -> Callable[..., Any]:
    """Return the view as one of Django REST framework, with these throttles."""

    def plain(request: Any) -> Any:
        return view(request)

    made: Callable[..., Any] = api_view(["GET"])(throttle_classes(throttles)(plain))
    return made


VIEWS = [
    ViewContender("drf-bare", f"{BARE}, of Django REST framework", bare),
    ViewContender("drf", DRF, limit, base="drf-bare"),
]
