"""django-smart-ratelimit: its Redis backend, decorator and middleware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_smart_ratelimit.backends.redis_backend import RedisBackend
from django_smart_ratelimit.decorator import rate_limit

from .base import Case, Check, Contender, ViewContender

MIDDLEWARE = "django_smart_ratelimit.middleware.RateLimitMiddleware"


def make(case: Case) -> Check:
    backend = RedisBackend()

    def check(identifier: str) -> bool:
        # The backend only counts, and its callers compare with the limit.
        return bool(backend.incr(f"{case.name}:{identifier}", case.window) <= case.limit)

    return check


def _rate(case: Case) -> str:
    return f"{case.limit}/{'m' if case.window == 60 else 'd'}"


def limit(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    decorated: Callable[..., Any] = rate_limit(key="ip", rate=_rate(case))(view)
    return decorated


def by_middleware(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    return view


def settings_for(case: Case) -> dict[str, Any]:
    """Return the settings that its middleware reads when a handler is made."""
    return {"RATELIMIT_MIDDLEWARE": {"DEFAULT_RATE": _rate(case)}}


CONTENDERS = [Contender("django-smart-ratelimit, backend", make)]
VIEWS = [
    ViewContender("smart-decorator", "django-smart-ratelimit, decorator", limit, base="bare"),
    ViewContender(
        "smart-middleware",
        "django-smart-ratelimit, middleware",
        by_middleware,
        middleware=(MIDDLEWARE,),
        settings=settings_for,
        base="bare",
    ),
]
