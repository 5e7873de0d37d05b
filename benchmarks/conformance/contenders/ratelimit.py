"""django-ratelimit, by its decorator."""

from __future__ import annotations

from typing import Any

from ..model import Ask, AsyncAsk, Contender, Setup
from ..site import base_settings, plain, plain_async, serve, serve_async


def settings(setup: Setup) -> dict[str, Any]:
    return {
        "INSTALLED_APPS": [*base_settings(setup)["INSTALLED_APPS"], "django_ratelimit"],
        "RATELIMIT_FAIL_OPEN": setup.tuned,
        # Its checks know Django's own cache backends only.
        "SILENCED_SYSTEM_CHECKS": ["django_ratelimit.E003", "django_ratelimit.W001"],
    }


def make(setup: Setup) -> Ask:
    return serve(_limited(setup, plain))


def make_async(setup: Setup) -> AsyncAsk:
    return serve_async(_limited(setup, plain_async))


def _limited(setup: Setup, view: Any) -> Any:
    from django_ratelimit.decorators import ratelimit

    # The last decorator is asked first.
    for number, rate in reversed(list(enumerate(setup.rates))):
        key = (lambda group, request: "all") if rate.shared else "ip"
        view = ratelimit(key=key, rate=f"{rate.limit}/{rate.window}s", group=f"rate{number}")(view)
    return view


DECORATOR = Contender(
    name="django-ratelimit",
    module="django_ratelimit",
    settings=settings,
    make=make,
    make_async=make_async,
    lacks={
        "retry-after": "no such header",
        "proxy": "a function of your own",
    },
)
