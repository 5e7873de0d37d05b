"""A Django site with one view at `/`, and requests to it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

from .model import ADMITTED, REFUSED, Answer, Ask, AsyncAsk, Question, Setup

urlpatterns: list[Any] = []
TIMEOUT = 0.25
"""Seconds of the time-outs of a tuned setup."""


def base_settings(setup: Setup) -> dict[str, Any]:
    """Return the settings that all contenders share."""
    options: dict[str, Any] = {}
    if setup.tuned:
        options = {
            "SOCKET_TIMEOUT": TIMEOUT,
            "SOCKET_CONNECT_TIMEOUT": TIMEOUT,
            "IGNORE_EXCEPTIONS": True,
            "CONNECTION_POOL_KWARGS": {"retry": no_retry()},
        }
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": setup.redis}
    return {
        "SECRET_KEY": "only for the comparison",
        "ALLOWED_HOSTS": ["*"],
        "USE_TZ": True,
        "ROOT_URLCONF": "benchmarks.conformance.site",
        "MIDDLEWARE": [],
        "INSTALLED_APPS": ["django.contrib.contenttypes", "django.contrib.auth"],
        "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        "CACHES": {"default": {**cache, "OPTIONS": options}},
        "DEFAULT_AUTO_FIELD": "django.db.models.BigAutoField",
        "LOGGING_CONFIG": None,
    }


def no_retry() -> Any:
    """Return redis-py's policy of sending a command once."""
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return Retry(NoBackoff(), 0)


def plain(request: Any) -> Any:
    """Answer 200."""
    from django.http import HttpResponse

    return HttpResponse(b"ok")


async def plain_async(request: Any) -> Any:
    """Answer 200."""
    return plain(request)


def serve(view: Callable[..., Any]) -> Ask:
    """Return a function that sends requests to the view through the WSGI handler."""
    from django.core.handlers.wsgi import WSGIHandler
    from django.urls import path

    urlpatterns[:] = [path("", view)]
    handler = WSGIHandler()

    def ask(question: Question) -> Answer:
        found: list[Any] = []
        response = handler(_environ(question), lambda *start: found.extend(start))
        b"".join(response)
        response.close()
        fields = {name.lower(): value for name, value in found[1]}
        return _answer(int(found[0].split()[0]), fields.get("retry-after"))

    return ask


def serve_async(view: Callable[..., Any]) -> AsyncAsk:
    """Return a function that sends requests to the view through the ASGI handler."""
    from django.core.handlers.asgi import ASGIHandler
    from django.urls import path

    urlpatterns[:] = [path("", view)]
    handler = ASGIHandler()

    async def ask(question: Question) -> Answer:
        unread, status = [b""], []

        async def receive() -> Any:
            if not unread:
                await asyncio.get_running_loop().create_future()
            return {"type": "http.request", "body": unread.pop(), "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                status.append(message["status"])

        await handler(_scope(question), receive, send)
        return _answer(status[0], None)

    return ask


def _answer(status: int, retry_after: str | None) -> Answer:
    outcome = {200: ADMITTED, 429: REFUSED, 403: REFUSED}.get(status, str(status))
    return Answer(outcome, float(retry_after) if retry_after else None)


def _environ(question: Question) -> dict[str, Any]:
    forwarded = {"HTTP_X_FORWARDED_FOR": question.forwarded} if question.forwarded else {}
    return {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/",
        "QUERY_STRING": "",
        "SERVER_NAME": "example.com",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": question.client,
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
        **forwarded,
    }


def _scope(question: Question) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"example.com")],
        "client": (question.client, 40_000),
        "server": ("example.com", 80),
    }
