"""Django REST framework's throttling, compared with a view of the framework without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.decorators import api_view, throttle_classes
from rest_framework.throttling import AnonRateThrottle

from .base import ALLOWED, BARE, DRF, DRF_FLOOR, Case, ViewContender
from .floor import limit as limit_by_floor


def bare(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    return api(view, [])


def limit(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    rate = f"{case.limit}/{'min' if case.window == 60 else 'day'}"
    throttle = type("Throttle", (AnonRateThrottle,), {"rate": rate, "scope": case.name})
    return api(view, [throttle])


def api(view: Callable[..., Any], throttles: list[Any]) -> Callable[..., Any]:
    """Return the view as a view of Django REST framework with these throttles."""

    def plain(request: Any) -> Any:
        return view(request)

    made: Callable[..., Any] = api_view(["GET"])(throttle_classes(throttles)(plain))
    return made


def floor(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    limited = limit_by_floor(case, view)
    # Django's own request: in that of Django REST framework, META takes longer to find.
    return api(lambda request: limited(request._request), [])


VIEWS = [
    ViewContender("drf-bare", f"{BARE}, of Django REST framework", bare),
    ViewContender("drf-floor", DRF_FLOOR, floor, base="drf-bare", cases=(ALLOWED,)),
    ViewContender("drf", DRF, limit, base="drf-bare"),
]
