"""This app, by its decorator."""

from __future__ import annotations

from typing import Any

from ..model import Ask, AsyncAsk, Contender, Setup
from ..site import base_settings, plain, plain_async, serve, serve_async


def settings(setup: Setup) -> dict[str, Any]:
    profiles = {
        f"rate_{number}": {
            "axis": "global" if rate.shared else "ip",
            "limit": rate.limit,
            "window": rate.window,
        }
        for number, rate in enumerate(setup.rates)
    }
    ours: dict[str, Any] = {"PROFILES": profiles, "LOG": False}
    if setup.proxy:
        ours["TRUSTED_PROXIES"] = [setup.proxy]
    if setup.patient:
        ours["LATENCY_BUDGET"] = 30
    apps = [*base_settings(setup)["INSTALLED_APPS"], "django_slidingwindow"]
    return {"INSTALLED_APPS": apps, "SLIDING_WINDOW": ours}


def make(setup: Setup) -> Ask:
    return serve(_limited(setup, plain))


def make_async(setup: Setup) -> AsyncAsk:
    return serve_async(_limited(setup, plain_async))


def _limited(setup: Setup, view: Any) -> Any:
    from django_slidingwindow.decorators import rate_limit

    return rate_limit(*(f"rate_{number}" for number in range(len(setup.rates))))(view)


OURS = Contender(
    name="**django_slidingwindow**",
    module="django_slidingwindow",
    settings=settings,
    make=make,
    make_async=make_async,
)
