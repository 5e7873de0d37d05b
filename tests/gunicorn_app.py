"""A site for gunicorn: one view, limited, that says who decided. Settings by environment."""

from __future__ import annotations

import os
from typing import Any

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

settings.configure(
    SECRET_KEY="gunicorn",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[f"{__name__}.tell_worker"],
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
        "LOG": False,
    },
)
django.setup()

from django_slidingwindow import limits  # noqa: E402
from django_slidingwindow.decorators import rate_limit  # noqa: E402


@rate_limit("site")
def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.rate_limit.source)  # type: ignore[attr-defined]


def tell_worker(get_response: Any) -> Any:
    """A middleware: which process has answered."""

    def middleware(request: HttpRequest) -> Any:
        response = get_response(request)
        response["X-Worker"] = str(os.getpid())
        return response

    return middleware


urlpatterns = [path("", page)]
# Before gunicorn forks, if it loads the site beforehand.
limits.check("site", "the parent's own")
application = get_wsgi_application()
