"""A site for `test_override_processes`: a limited view and the admin, for WSGI and ASGI servers."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import django
from django.conf import settings

from tests import settings as suite

SHARED = (
    *("SECRET_KEY", "USE_TZ", "DEFAULT_AUTO_FIELD", "INSTALLED_APPS", "TEMPLATES"),
    *("STATIC_URL", "PASSWORD_HASHERS"),
)
settings.configure(
    **{name: getattr(suite, name) for name in SHARED},
    ALLOWED_HOSTS=["*"],
    DEBUG=True,
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[f"{__name__}.count_queries", *suite.MIDDLEWARE],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ["SITE_DATABASE"],
            "OPTIONS": {"timeout": 20},
        }
    },
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": os.environ["SITE_REDIS_URL"],
        }
    },
    SLIDING_WINDOW={
        "PROFILES": {"site": {"axis": "ip", "limit": 1_000_000, "window": 3600}},
        "LATENCY_BUDGET": 5.0,
        "LOG": False,
    },
)
django.setup()

from django.contrib import admin  # noqa: E402
from django.contrib.staticfiles import handlers  # noqa: E402
from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import connections  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402

from django_slidingwindow.decorators import rate_limit  # noqa: E402


def count_queries(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[..., Any]:
    """Add headers with the number of queries and the process id."""

    def middleware(request: HttpRequest) -> HttpResponse:
        queries = 0

        def counted(execute: Any, *arguments: Any) -> Any:
            nonlocal queries
            queries += 1
            return execute(*arguments)

        with ExitStack() as stack:
            for connection in connections.all():
                stack.enter_context(connection.execute_wrapper(counted))
            response = get_response(request)
        response["X-Queries"] = str(queries)
        response["X-Process"] = str(os.getpid())
        return response

    return middleware


@rate_limit("site")
def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse(b"ok")


urlpatterns = [path("", page), path("admin/", admin.site.urls)]
application = handlers.StaticFilesHandler(get_wsgi_application())
asgi_application = handlers.ASGIStaticFilesHandler(get_asgi_application())
