"""Django REST framework's throttling, measured against a view of its own without any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.decorators import api_view, throttle_classes
from rest_framework.throttling import AnonRateThrottle

from .base import BARE, Case, ViewContender


def bare(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    return _api(view, [])


def limit(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    rate = f"{case.limit}/{'min' if case.window == 60 else 'day'}"
    throttle = type("Throttle", (AnonRateThrottle,), {"rate": rate, "scope": case.name})
    return _api(view, [throttle])


def _api(view: Callable[..., Any], throttles: list[type]) -> Callable[..., Any]:
    def plain(request: Any) -> Any:
        return view(request)

    made: Callable[..., Any] = api_view(["GET"])(throttle_classes(throttles)(plain))
    return made


VIEWS = [
    ViewContender("drf-bare", f"{BARE}, of Django REST framework", bare),
    ViewContender("drf", "Django REST framework's throttling", limit, base="drf-bare"),
]
