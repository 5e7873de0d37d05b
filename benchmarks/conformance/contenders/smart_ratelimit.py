"""django-smart-ratelimit: its decorator and its middleware, with its Redis backend."""

from __future__ import annotations

from typing import Any

from ..model import Ask, AsyncAsk, Contender, Setup
from ..site import TIMEOUT, base_settings, plain, plain_async, serve, serve_async

MIDDLEWARE_PATH = "django_smart_ratelimit.middleware.RateLimitMiddleware"


def settings(setup: Setup) -> dict[str, Any]:
    redis: dict[str, Any] = {"url": setup.redis}
    if setup.tuned:
        redis |= {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}
    found: dict[str, Any] = {
        "INSTALLED_APPS": [*base_settings(setup)["INSTALLED_APPS"], "django_smart_ratelimit"],
        "RATELIMIT_BACKEND": "django_smart_ratelimit.backends.redis_backend.RedisBackend",
        "RATELIMIT_ALGORITHM": "sliding_window",
        "RATELIMIT_REDIS": redis,
        "RATELIMIT_FAIL_OPEN": setup.tuned,
    }
    if setup.proxy:
        found["RATELIMIT_TRUSTED_PROXIES"] = [setup.proxy]
    return found


def settings_of_middleware(setup: Setup) -> dict[str, Any]:
    rate = f"{setup.rate.limit}/{setup.rate.window}s"
    return {
        **settings(setup),
        "MIDDLEWARE": [MIDDLEWARE_PATH],
        "RATELIMIT_MIDDLEWARE": {"DEFAULT_RATE": rate},
    }


def make(setup: Setup) -> Ask:
    return serve(_limited(setup, plain))


def make_async(setup: Setup) -> AsyncAsk:
    return serve_async(_limited(setup, plain_async))


def _limited(setup: Setup, view: Any) -> Any:
    from django_smart_ratelimit.decorator import rate_limit

    for rate in reversed(setup.rates):
        key = (lambda request, *args, **kwargs: "all") if rate.shared else "ip"
        view = rate_limit(key=key, rate=f"{rate.limit}/{rate.window}s")(view)
    return view


DECORATOR = Contender(
    name="django-smart-ratelimit, decorator",
    module="django_smart_ratelimit",
    settings=settings,
    make=make,
    make_async=make_async,
)
MIDDLEWARE = Contender(
    name="django-smart-ratelimit, middleware",
    module="django_smart_ratelimit",
    settings=settings_of_middleware,
    make=lambda setup: serve(plain),
    make_async=lambda setup: serve_async(plain_async),
    lacks={"several": "one rate per path"},
)
