"""A site for web servers whose views hold slots and record when they begin and end.

The settings come from environment variables: SITE_REDIS_URL, SITE_INFLIGHT and SITE_NOTES (a
folder).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

if TYPE_CHECKING:
    from typing_extensions import Self

settings.configure(
    SECRET_KEY="in flight",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django_slidingwindow.middleware.RateLimitMiddleware"],
    INSTALLED_APPS=["django_slidingwindow"],
    LOGGING_CONFIG=None,
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
                "inflight": int(os.environ["SITE_INFLIGHT"]),
                "hold": "1h",
            }
        },
        # Redis must decide, however slow the machine is.
        "LATENCY_BUDGET": 60,
        "FALLBACK": "deny",
        "LOG": False,
    },
)
django.setup()

from django_slidingwindow.decorators import rate_limit  # noqa: E402

KEY = "throttle:global:{all}:site:i3600"


def note(change: int) -> None:
    """Append the time, which is the same in all processes, and +1 or -1 to a file per process."""
    line = f"{time.monotonic_ns()} {change}\n"
    # Open the file each time, so that threads and forked processes share no file object.
    with (Path(os.environ["SITE_NOTES"]) / str(os.getpid())).open("a") as file:
        file.write(line)


class Running:
    """Records the begin of a view, and its end once."""

    def __init__(self) -> None:
        self._runs = [True]
        note(1)

    def close(self) -> None:
        if self._runs:
            self._runs.pop()
            note(-1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def seconds(request: HttpRequest) -> float:
    return float(request.GET.get("seconds", "0"))


@rate_limit("site")
def view(request: HttpRequest) -> HttpResponse:
    with Running():
        time.sleep(seconds(request))
        if "fail" in request.GET:
            raise ValueError("on purpose")
        return HttpResponse("ok")


@rate_limit("site")
async def aview(request: HttpRequest) -> HttpResponse:
    with Running():
        await asyncio.sleep(seconds(request))
        if "fail" in request.GET:
            raise ValueError("on purpose")
        return HttpResponse("ok")


class Parts(Running):
    """A stream. Django closes it with the response, before it closes the request."""

    def __init__(self, pause: float) -> None:
        super().__init__()
        self._left, self._pause = 4, pause

    def _part(self) -> bytes:
        self._left -= 1
        return b"x" * 1000

    def __iter__(self) -> Iterator[bytes]:
        while self._left:
            time.sleep(self._pause)
            yield self._part()


class AsyncParts(Parts):
    __iter__ = None  # type: ignore[assignment]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        await asyncio.sleep(self._pause)
        return self._part()


@rate_limit("site")
def stream(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(Parts(seconds(request)))


@rate_limit("site")
async def astream(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(AsyncParts(seconds(request)))


@rate_limit("site")
def download(request: HttpRequest) -> FileResponse:
    return FileResponse(Path(__file__).open("rb"))


urlpatterns = [
    path("view/", view),
    path("aview/", aview),
    path("stream/", stream),
    path("astream/", astream),
    path("download/", download),
    path("up/", lambda request: HttpResponse("up")),
]
application = get_wsgi_application()
asgi = get_asgi_application()
