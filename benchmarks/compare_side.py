"""The process of `benchmarks.compare` that measures one checkout.

This file is run from its text in the folder of a checkout of any age, so it only uses public names.
Its arguments are the URL of Redis and the prefix of keys. It prints the names of the cases. Then it
reads lines with a case and a number of calls, and prints the microseconds of one call for each.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import types
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings
from django.urls import path
from django_redis import get_redis_connection

CLIENTS = 5_000
FLOODER = "192.0.2.1"
_PROFILES = {
    "wide": {"axis": "ip", "limit": 100, "window": 60},
    "hourly": {"axis": "ip", "limit": 10_000, "window": 3_600},
    "everyone": {"axis": "global", "limit": 100_000_000, "window": 60},
    "tenants": {"axis": "tenant", "limit": 100, "window": 60},
    "closed": {"axis": "ip", "limit": 0, "window": 60},
}


def tenant(request: HttpRequest) -> str:
    return f"tenant of {request.META['REMOTE_ADDR']}"


def set_up(url: str, prefix: str) -> dict[str, Callable[[int], float]]:
    """Return the cases: functions that take a number of calls, and return microseconds per call."""
    settings.configure(
        SECRET_KEY="only for the benchmark",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="compare_side_urls",
        INSTALLED_APPS=["django_slidingwindow"],
        CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}},
        USE_TZ=True,
        SLIDING_WINDOW={
            "PREFIX": prefix,
            "PROFILES": _PROFILES,
            "IDENTITIES": {"tenant": tenant},
            "RULES": [
                {"path": "^/ruled$", "profiles": ["wide"]},
                {"path": "^/ruled-closed$", "profiles": ["closed"]},
            ],
            # Do not measure the database, or the fallback after a slow moment.
            "LOG": False,
            "LATENCY_BUDGET": 30,
        },
    )
    django.setup()
    logging.disable(logging.CRITICAL)
    from django_slidingwindow import limits
    from django_slidingwindow.decorators import rate_limit

    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(b"ok")

    @cache
    def floor_script() -> str:
        # Only when it is needed: it opens a cache, which Django closes after each request.
        return str(get_redis_connection("default").script_load("return 1"))

    def floor(request: HttpRequest) -> HttpResponse:
        get_redis_connection("default").evalsha(floor_script(), 1, request.META["REMOTE_ADDR"])
        return view(request)

    urls: Any = types.ModuleType("compare_side_urls")
    urls.urlpatterns = [
        path("bare", view),
        path("floor", floor),
        path("limited", rate_limit("wide")(view)),
        path("tenant", rate_limit("tenants")(view)),
        path("three", rate_limit("wide", "hourly", "everyone")(view)),
        path("closed", rate_limit("closed")(view)),
        path("ruled", view),
        path("ruled-closed", view),
    ]
    sys.modules["compare_side_urls"] = urls
    plain = WSGIHandler()
    middleware = "django_slidingwindow.middleware.RateLimitMiddleware"
    with override_settings(MIDDLEWARE=[middleware]):
        ruled = WSGIHandler()
    factory = RequestFactory()
    numbers = count()

    def clients(calls: int, closed: bool) -> list[str]:
        if closed:
            return [FLOODER] * calls
        found = [next(numbers) % CLIENTS for _ in range(calls)]
        return [f"10.0.{number // 250}.{number % 250 + 1}" for number in found]

    def requests(handler: WSGIHandler, name: str) -> Callable[[int], float]:
        def measure(calls: int) -> float:
            environs = [
                factory.get(name, REMOTE_ADDR=one).environ
                for one in clients(calls, "closed" in name)
            ]
            begin = time.perf_counter()
            for environ in environs:
                response = handler(environ, _start_response)
                b"".join(response)
                response.close()
            return (time.perf_counter() - begin) / calls * 1e6

        return measure

    def checks(profile: str) -> Callable[[int], float]:
        def measure(calls: int) -> float:
            identifiers = clients(calls, profile == "closed")
            begin = time.perf_counter()
            for identifier in identifiers:
                limits.check(profile, identifier)
            return (time.perf_counter() - begin) / calls * 1e6

        return measure

    return {
        "bare view": requests(plain, "/bare"),
        "floor": requests(plain, "/floor"),
        "check, allowed": checks("wide"),
        "check, refused": checks("closed"),
        "decorator, allowed": requests(plain, "/limited"),
        "decorator, tenant": requests(plain, "/tenant"),
        "decorator, three profiles": requests(plain, "/three"),
        "decorator, refused": requests(plain, "/closed"),
        "middleware, allowed": requests(ruled, "/ruled"),
        "middleware, refused": requests(ruled, "/ruled-closed"),
    }


def _start_response(status: str, headers: list[tuple[str, str]], exc: Any = None) -> None:
    if not status.startswith(("200", "429")):
        raise RuntimeError(status)


if __name__ == "__main__":
    cases = set_up(*sys.argv[1:])
    print(json.dumps([*cases]), flush=True)
    for line in sys.stdin:
        case, _, calls = line.rpartition(" ")
        print(cases[case](int(calls)), flush=True)
