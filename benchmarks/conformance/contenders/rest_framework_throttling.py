"""Django REST framework's throttling."""

from __future__ import annotations

from typing import Any

from ..model import Ask, Contender, Rate, Setup
from ..site import base_settings, plain, serve


def settings(setup: Setup) -> dict[str, Any]:
    return {
        "INSTALLED_APPS": [*base_settings(setup)["INSTALLED_APPS"], "rest_framework"],
        "REST_FRAMEWORK": {"NUM_PROXIES": 1 if setup.proxy else None},
    }


def make(setup: Setup) -> Ask:
    from rest_framework.decorators import api_view, throttle_classes

    throttles = [_throttle(number, rate) for number, rate in enumerate(setup.rates)]
    return serve(api_view(["GET"])(throttle_classes(throttles)(lambda request: plain(request))))


def _throttle(number: int, rate: Rate) -> type:
    from rest_framework.throttling import SimpleRateThrottle

    class Throttle(SimpleRateThrottle):
        scope = f"rate{number}"
        rate = "by parse_rate"

        def parse_rate(self, text: str | None) -> tuple[int, int]:
            # Its own rates are per second, minute, hour or day; the rest is the same.
            return limit, window

        def get_cache_key(self, request: Any, view: Any) -> str:
            ident = "all" if shared else self.get_ident(request)
            return str(self.cache_format % {"scope": self.scope, "ident": ident})

    limit, window, shared = rate.limit, rate.window, rate.shared
    return Throttle


THROTTLE = Contender(
    name="DRF throttling",
    module="rest_framework",
    settings=settings,
    make=make,
    lacks={"async": "no async views"},
)
