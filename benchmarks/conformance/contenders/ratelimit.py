"""django-ratelimit, by its decorator."""

from __future__ import annotations

from typing import Any

from ..model import Ask, Contender, Setup
from ..site import base_settings, plain, serve


def settings(setup: Setup) -> dict[str, Any]:
    return {
        "INSTALLED_APPS": [*base_settings(setup)["INSTALLED_APPS"], "django_ratelimit"],
        "RATELIMIT_FAIL_OPEN": setup.tuned,
        # Its checks know Django's own cache backends only.
        "SILENCED_SYSTEM_CHECKS": ["django_ratelimit.E003", "django_ratelimit.W001"],
    }


def make(setup: Setup) -> Ask:
    from django_ratelimit.decorators import ratelimit

    view: Any = plain
    # The last decorator is called first.
    for number, rate in reversed(list(enumerate(setup.rates))):
        key = (lambda group, request: "all") if rate.shared else "ip"
        view = ratelimit(key=key, rate=f"{rate.limit}/{rate.window}s", group=f"rate{number}")(view)
    return serve(view)


DECORATOR = Contender(
    name="django-ratelimit",
    module="django_ratelimit",
    settings=settings,
    make=make,
    lacks={
        "retry-after": "no such header",
        "proxy": "a function of your own",
        "async": "no async views",
    },
)
