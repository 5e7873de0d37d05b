"""A site for the command `load`: a sliding window, a fixed window, and false headers."""

from __future__ import annotations

import os

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django_ratelimit.decorators import ratelimit

LIMIT, WINDOW = 10, 2

if not settings.configured:
    settings.configure(
        SECRET_KEY="load",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        MIDDLEWARE=[],
        INSTALLED_APPS=["django_slidingwindow"],
        CACHES={
            "default": {
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": os.environ["SITE_REDIS_URL"],
            }
        },
        SLIDING_WINDOW={
            "PROFILES": {"sliding": {"axis": "ip", "limit": LIMIT, "window": WINDOW}},
            # Redis must decide, however slow the machine is.
            "LATENCY_BUDGET": 10,
            "LOG": False,
        },
    )
    django.setup()

from django_slidingwindow.decorators import rate_limit  # noqa: E402


@rate_limit("sliding")
def sliding(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@ratelimit(key="ip", rate=f"{LIMIT}/{WINDOW}s", block=False)
def fixed(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=429 if request.limited else 200)  # type: ignore[attr-defined]


def refused(request: HttpRequest) -> HttpResponse:
    """Refuse every request, with headers that promise to admit the next one."""
    headers = {"Retry-After": "0", "RateLimit-Remaining": "5", "RateLimit-Limit": "7"}
    return HttpResponse(status=429, headers=headers)


def seen(request: HttpRequest) -> HttpResponse:
    """Return the User-Agent of the request in a header."""
    return HttpResponse(headers={"X-Seen": request.headers["User-Agent"]})


urlpatterns = [
    path("sliding/", sliding),
    path("fixed/", fixed),
    path("refused/", refused),
    path("seen/", seen),
]
application = get_wsgi_application()
asgi = get_asgi_application()
