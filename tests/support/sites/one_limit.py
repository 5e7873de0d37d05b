"""A site for web servers whose limited view returns the source of the decision.

The settings come from environment variables: SITE_REDIS_URL, SITE_LIMIT, SITE_WORKERS and
SITE_LATENCY_BUDGET.
"""

from __future__ import annotations

import os
import time
from typing import Any

import django
from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.decorators import sync_and_async_middleware

settings.configure(
    SECRET_KEY="gunicorn",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[f"{__name__}.add_headers"],
    INSTALLED_APPS=["django_slidingwindow"],
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": os.environ["SITE_REDIS_URL"],
        }
    },
    SLIDING_WINDOW={
        "PROFILES": {
            "site": {
                "axis": "global",
                "limit": int(os.environ["SITE_LIMIT"]),
                "window": 3600,
            }
        },
        "FALLBACK_PROCESSES": int(os.environ["SITE_WORKERS"]),
        "LATENCY_BUDGET": float(os.environ.get("SITE_LATENCY_BUDGET", "0.1")),
        "LOG": False,
    },
)
django.setup()

from django_slidingwindow import limits  # noqa: E402
from django_slidingwindow.decorators import rate_limit  # noqa: E402


@rate_limit("site")
def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.rate_limit.source)  # type: ignore[attr-defined]


@rate_limit("site")
async def apage(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.rate_limit.source)  # type: ignore[attr-defined]


def up(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@sync_and_async_middleware
def add_headers(get_response: Any) -> Any:
    """Add headers with the process id and the seconds that the response took."""

    def with_headers(response: Any, start: float) -> Any:
        response["X-Worker"] = str(os.getpid())
        response["X-Seconds"] = str(time.monotonic() - start)
        return response

    def middleware(request: HttpRequest) -> Any:
        start = time.monotonic()
        return with_headers(get_response(request), start)

    async def amiddleware(request: HttpRequest) -> Any:
        start = time.monotonic()
        return with_headers(await get_response(request), start)

    return amiddleware if iscoroutinefunction(get_response) else middleware


urlpatterns = [path("", page), path("async/", apage), path("up/", up)]
# If the server preloads the site, the limiter is used before the server forks.
limits.check("site", "the parent's own")
application = get_wsgi_application()
asgi = get_asgi_application()
