"""The slots of a request are taken with its rates, and freed once, when its response is closed."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import ThreadSensitiveContext, async_to_sync
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, AsyncRequestFactory, Client, RequestFactory
from django.urls import path
from django.views import View
from ninja import NinjaAPI
from rest_framework.views import APIView, Response

from django_slidingwindow import limits
from django_slidingwindow.contrib import drf, ninja
from django_slidingwindow.decorators import RateLimitMixin, rate_limit
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.guard import check as guard
from django_slidingwindow.guard import inflight
from django_slidingwindow.guard.requirements import joined, requirements_from
from tests.support.servers.redis import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from redis import Redis

    from tests.support.servers import RedisServer

# Django warns that it reads a sync stream as a whole before it sends it.
pytestmark = pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume:Warning")

MIDDLEWARE = "django_slidingwindow.middleware.RateLimitMiddleware"
CLIENT = "127.0.0.1"
PROFILES = {
    "two": {"axis": "ip", "inflight": 2, "hold": "1h"},
    "mixed": {"axis": "ip", "rate": "100/h", "inflight": 2, "hold": "1h"},
    "watched": {"axis": "ip", "inflight": 1, "hold": "1h", "mode": "observe"},
    "closed": {"axis": "ip", "limit": 0, "window": 60},
    "everybody": {"axis": "global", "inflight": 9},
}
KEY = "throttle:ip:{127.0.0.1}:two:i3600"
MIXED = "throttle:ip:{127.0.0.1}:mixed:i3600"


def in_flight(redis: Redis, key: str = KEY) -> int:
    return int(redis.zcard(key))


# The requests in flight that views have counted while they ran.
SEEN: list[int] = []
LOOK: list[Any] = []


def seen(key: str = KEY) -> None:
    SEEN.append(in_flight(LOOK[0], key))


@pytest.fixture(autouse=True)
def _site(settings: Any, redis: Redis) -> Iterator[None]:
    settings.SLIDING_WINDOW = {"LOG": False, "LATENCY_BUDGET": 60, "PROFILES": PROFILES}
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = []
    SEEN.clear()
    LOOK[:] = [redis]
    # These tests have no database, whose connections Django would close.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)
    limits.get_limiter().close()


def plain(request: Any) -> HttpResponse:
    seen()
    return HttpResponse("ok")


async def aplain(request: Any) -> HttpResponse:
    seen()
    return HttpResponse("ok")


def failing(request: Any) -> HttpResponse:
    seen()
    raise ValueError("on purpose")


async def afailing(request: Any) -> HttpResponse:
    seen()
    raise ValueError("on purpose")


def streaming(request: Any) -> StreamingHttpResponse:
    def parts() -> Iterator[bytes]:
        for _ in range(3):
            seen()
            yield b"part"

    return StreamingHttpResponse(parts())


async def astreaming(request: Any) -> StreamingHttpResponse:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(3):
            seen()
            yield b"part"

    return StreamingHttpResponse(parts())


class Watched(io.BytesIO):
    def read(self, *args: Any) -> bytes:
        seen()
        return super().read(*args)


def download(request: Any) -> FileResponse:
    return FileResponse(Watched(b"a file"))


class Page(RateLimitMixin, View):
    rate_limit_profiles = ("two",)

    def get(self, request: Any) -> HttpResponse:
        return plain(request)


class Orders(APIView):
    throttle_classes = (drf.ProfileThrottle("two"),)
    authentication_classes = ()

    def get(self, request: Any) -> Response:
        seen()
        return Response({})


api = NinjaAPI(throttle=[ninja.ProfileThrottle("two")], urls_namespace="inflight")
api.add_decorator(ninja.throttled, mode="view")


@api.get("/sync/")
def operation(request: Any) -> dict[str, Any]:
    seen()
    return {}


@api.get("/async/")
async def aoperation(request: Any) -> dict[str, Any]:
    seen()
    return {}


limited = rate_limit("two")
urlpatterns = [
    path("plain/", limited(plain)),
    path("aplain/", limited(aplain)),
    path("failing/", limited(failing)),
    path("afailing/", limited(afailing)),
    path("streaming/", limited(streaming)),
    path("astreaming/", limited(astreaming)),
    path("download/", limited(download)),
    path("page/", Page.as_view()),
    path("drf/", Orders.as_view()),
    path("ninja/", api.urls),
    path("bare/", plain),
    path("abare/", aplain),
    path("then-closed/", limited(rate_limit("closed")(plain))),
    path("inner/", limited(lambda request: rate_limit("closed")(plain)(request))),
    path("twice/", limited(lambda request: limited(plain)(request))),
]
WAYS = ["plain", "failing", "streaming", "download", "page", "drf", "ninja/sync"]
ASYNC_WAYS = [*WAYS, "aplain", "afailing", "astreaming", "ninja/async"]


@pytest.mark.parametrize("way", [*WAYS, "aplain", "afailing", "ninja/async"])
def test_slot_is_held_while_the_view_runs_and_free_afterwards(redis: Redis, way: str) -> None:
    client = Client(raise_request_exception=False)
    for _ in range(3):
        response = client.get(f"/{way}/")
        if response.streaming:
            b"".join(response)
    assert SEEN
    assert set(SEEN) == {1}
    assert in_flight(redis) == 0


@pytest.mark.parametrize("way", ASYNC_WAYS)
def test_slot_is_held_while_the_view_runs_under_asgi(redis: Redis, way: str) -> None:
    async def ask() -> None:
        client = AsyncClient(raise_request_exception=False)
        for _ in range(3):
            response = await client.get(f"/{way}/")
            if response.streaming:
                async for _part in response:
                    pass

    asyncio.run(ask())
    assert SEEN
    assert set(SEEN) == {1}
    assert in_flight(redis) == 0


def test_middleware_holds_and_frees_slots(redis: Redis, settings: Any) -> None:
    settings.MIDDLEWARE = [MIDDLEWARE]
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "RULES": [{"profiles": ["two"]}]}
    assert Client().get("/bare/").status_code == 200
    assert async_to_sync(AsyncClient().get)("/abare/").status_code == 200
    assert async_to_sync(AsyncClient().get)("/bare/").status_code == 200
    # A path that does not exist is charged after its response was made.
    assert Client().get("/nowhere/").status_code == 404
    assert SEEN == [1, 1, 1]
    assert in_flight(redis) == 0


class Replacing:
    """A middleware that drops the response of the view, or fails after it."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        self.get_response(request)
        if "fail" in request.GET:
            raise ValueError("on purpose")
        return HttpResponse("another")


@pytest.mark.parametrize("query", ["", "?fail"])
def test_slot_is_free_if_a_middleware_drops_the_response(
    redis: Redis, settings: Any, query: str
) -> None:
    settings.MIDDLEWARE = [f"{__name__}.Replacing"]
    Client(raise_request_exception=False).get(f"/plain/{query}")
    assert SEEN == [1]
    assert in_flight(redis) == 0


@pytest.mark.parametrize("way", ["then-closed", "inner"])
def test_refusal_by_a_later_profile_leaves_no_slot_behind(redis: Redis, way: str) -> None:
    assert Client().get(f"/{way}/").status_code == 429
    assert in_flight(redis) == 0
    assert SEEN == []


def test_profile_that_is_named_twice_takes_one_slot(redis: Redis) -> None:
    assert Client().get("/twice/").status_code == 200
    assert SEEN == [1]
    assert in_flight(redis) == 0


def test_refusal_without_a_free_slot_names_no_time(redis: Redis) -> None:
    with limits.hold("two", CLIENT), limits.hold("two", CLIENT):
        response = Client().get("/plain/", headers={"accept": "application/json"})
        asked = Client().get("/drf/")
        other = Client().get("/ninja/sync/")
    assert [one.status_code for one in (response, asked, other)] == [429] * 3
    for one in (response, asked, other):
        assert "Retry-After" not in one.headers
    assert response.headers["RateLimit-Policy"] == '"two";q=2;qu="concurrent-requests"'
    assert response.headers["RateLimit"] == '"two";r=0'
    assert response.json() == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too many requests",
        "status": 429,
        "detail": "Please try again later.",
        "violated-policies": ["two"],
    }
    assert Client().get("/plain/").status_code == 200
    assert in_flight(redis) == 0


@pytest.mark.parametrize("keep", [True, False])
def test_charge_when_gives_hits_back_and_keeps_the_slot(redis: Redis, keep: bool) -> None:
    def parts() -> Iterator[bytes]:
        seen(MIXED)
        yield b"part"

    view = rate_limit("mixed", charge_when=lambda response: keep)(
        lambda request: StreamingHttpResponse(parts())
    )
    urlpatterns.append(path("mixed/", view))
    try:
        response = Client().get("/mixed/")
        assert b"".join(response) == b"part"  # type: ignore[arg-type]
    finally:
        urlpatterns.pop()
    assert SEEN == [1]
    assert in_flight(redis, MIXED) == 0
    assert limits.peek("mixed", CLIENT, 0).verdicts[0].remaining == (99 if keep else 100)


def test_observed_requests_are_counted_and_admitted(redis: Redis) -> None:
    with limits.hold("watched", "acme") as first, limits.hold("watched", "acme") as second:
        assert (first.allowed, first.reason) == (True, "allowed")
        assert (second.allowed, second.reason) == (True, "observe")
    assert redis.dbsize() == 0


# Requests without a handler, and clients that go away

TWO = joined(requirements_from(["two"]))


def held(redis: Redis) -> Any:
    """Return a request that holds a slot."""
    request = RequestFactory().get("/")
    decision = guard.check(request, TWO)
    assert decision is not None
    assert decision.allowed
    assert in_flight(redis) == 1
    return request


def test_close_is_called_once_for_all_checks_and_closes_the_request_too(redis: Redis) -> None:
    request = held(redis)
    uploaded = io.BytesIO()
    request._files = type("Files", (), {"lists": lambda self: [("one", [uploaded])]})()
    guard.check(request, joined(requirements_from(["everybody"])))
    request.close()
    assert uploaded.closed
    assert redis.dbsize() == 0
    other = held(redis)
    # The slot of another request stays.
    request.close()
    assert in_flight(redis) == 1
    other.close()


def test_close_of_another_library_is_called_as_well(redis: Redis) -> None:
    request = RequestFactory().get("/")
    called: list[bool] = []
    request.close = lambda: called.append(True)  # type: ignore[method-assign]
    guard.check(request, TWO)
    request.close()
    assert called == [True]
    assert in_flight(redis) == 0


def test_request_that_nobody_closes_frees_its_slot_when_it_is_deleted(redis: Redis) -> None:
    request = held(redis)
    close = request.close
    del request
    # As a response does, this still refers to the method.
    assert in_flight(redis) == 1
    del close
    wait_until(lambda: in_flight(redis) == 0, "the slot is free", 10)


def test_response_may_be_closed_after_its_request_is_deleted(redis: Redis) -> None:
    close = held(redis).close
    gc.collect()
    close()
    assert in_flight(redis) == 0


def test_forked_child_does_not_free_the_slot_of_its_parent(redis: Redis) -> None:
    request = held(redis)
    child = os.fork()
    if not child:
        del request
        gc.collect()
        # The thread is the parent's, and the child has not started another.
        os._exit(0 if not inflight._background.running and not inflight._to_free else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert in_flight(redis) == 1
    request.close()


def test_request_succeeds_when_the_thread_cannot_be_started(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(inflight._background, "_thread", None)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    request = held(redis)
    request.close()
    assert in_flight(redis) == 0


async def ahello(request: Any) -> HttpResponse:
    return HttpResponse("hello")


async def cancelled(redis: Redis) -> None:
    """Make a request in a task that is cancelled while the view runs."""
    running = asyncio.Event()
    request = AsyncRequestFactory().get("/")

    async def waiting(request: Any) -> HttpResponse:
        running.set()
        await asyncio.sleep(3600)
        raise AssertionError

    task = asyncio.ensure_future(limited(waiting)(request))
    await running.wait()
    assert in_flight(redis) == 1
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    # Even if something keeps the request alive.
    await until_free(redis)
    del request


async def until_free(redis: Redis, key: str = KEY) -> None:
    for _ in range(1000):
        if in_flight(redis, key) == 0:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the slot is not free")


def test_cancelled_request_frees_its_slot(redis: Redis) -> None:
    asyncio.run(cancelled(redis))


def test_cancelled_request_frees_its_slot_after_its_thread_has_ended(redis: Redis) -> None:
    async def ask() -> None:
        async with ThreadSensitiveContext():
            asking = asyncio.ensure_future(cancelled(redis))
            await asyncio.sleep(0)
        await asking

    asyncio.run(ask())


def test_request_that_is_cancelled_during_a_refund_frees_its_slot(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> None:
        refunding, refund = asyncio.Event(), limits.get_limiter().arefund

        async def never(decision: Any) -> int:
            refunding.set()
            await asyncio.sleep(3600)
            return await refund(decision)

        monkeypatch.setattr(limits.get_limiter(), "arefund", never)
        request = AsyncRequestFactory().get("/")
        view = rate_limit("mixed", charge_when=lambda response: False)(ahello)
        task = asyncio.ensure_future(view(request))
        await refunding.wait()
        assert in_flight(redis, MIXED) == 1
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await until_free(redis, MIXED)
        del request

    asyncio.run(ask())


def test_task_that_ends_before_its_response_is_closed_keeps_the_slot(redis: Redis) -> None:
    async def ask() -> Any:
        request = AsyncRequestFactory().get("/")
        await asyncio.ensure_future(limited(aplain)(request))
        return request

    request = asyncio.run(ask())
    assert in_flight(redis) == 1
    request.close()
    assert in_flight(redis) == 0


def test_slot_is_free_when_the_request_is_deleted_before_its_task_is_cancelled(
    redis: Redis,
) -> None:
    async def ask() -> None:
        async def work() -> None:
            await guard.acheck(AsyncRequestFactory().get("/"), TWO)
            started.set()
            await asyncio.sleep(3600)

        started = asyncio.Event()
        task = asyncio.ensure_future(work())
        await started.wait()
        gc.collect()
        await until_free(redis)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    assert in_flight(redis) == 0


# WSGI and ASGI servers


def wsgi(url: str) -> Any:
    environ = RequestFactory().get(url).environ
    return WSGIHandler()(environ, lambda *args: None)


@pytest.mark.parametrize("way", ["streaming", "download"])
def test_slot_is_free_when_a_wsgi_server_closes_in_the_middle_of_a_stream(
    redis: Redis, way: str
) -> None:
    response = wsgi(f"/{way}/")
    next(iter(response))
    gc.collect()
    assert in_flight(redis) == 1
    response.close()
    assert in_flight(redis) == 0


def test_slot_is_free_when_a_wsgi_server_never_closes(redis: Redis) -> None:
    response = wsgi("/plain/")
    assert in_flight(redis) == 1
    del response
    gc.collect()
    wait_until(lambda: in_flight(redis) == 0, "the slot is free", 10)


async def disconnecting(url: str, after: str) -> list[str]:
    """Send a request to the ASGI application, and disconnect after an event.

    Return the types of the messages that it sent.
    """
    sent: list[str] = []
    gone = asyncio.Event()
    received = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in received:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message["type"])
        if after in sent:
            gone.set()
            await asyncio.sleep(3600)

    scope = AsyncRequestFactory()._base_scope(path=url)
    if after == "view":
        asyncio.get_running_loop().call_later(0.2, gone.set)
    await ASGIHandler()(scope, receive, send)
    return sent


async def slow(request: Any) -> HttpResponse:
    seen()
    await asyncio.sleep(3600)
    raise AssertionError


def sync_slow(request: Any) -> HttpResponse:
    seen()
    RELEASE.wait(30)
    seen()
    return HttpResponse()


RELEASE = threading.Event()
urlpatterns += [path("slow/", limited(slow)), path("sync-slow/", limited(sync_slow))]


@pytest.mark.parametrize("middleware", [True, False])
@pytest.mark.parametrize(
    ("way", "after"),
    [
        ("plain", "http.response.start"),
        ("aplain", "http.response.start"),
        ("streaming", "http.response.body"),
        ("astreaming", "http.response.body"),
        ("download", "http.response.body"),
        ("slow", "view"),
    ],
)
def test_slot_is_free_when_an_asgi_client_goes_away(
    redis: Redis, settings: Any, way: str, after: str, middleware: bool
) -> None:
    settings.MIDDLEWARE = [MIDDLEWARE] if middleware else []

    async def ask() -> None:
        await asyncio.wait_for(disconnecting(f"/{way}/", after), 60)
        await until_free(redis)

    asyncio.run(ask())
    assert set(SEEN) == {1}


@pytest.mark.parametrize("middleware", [True, False])
def test_slot_is_held_until_a_sync_view_ends_when_an_asgi_client_goes_away(
    redis: Redis, settings: Any, middleware: bool
) -> None:
    settings.MIDDLEWARE = [MIDDLEWARE] if middleware else []
    RELEASE.clear()

    async def ask() -> None:
        asking = asyncio.ensure_future(disconnecting("/sync-slow/", "view"))
        await asyncio.sleep(0.5)
        # The client is gone, and the view runs.
        assert in_flight(redis) == 1
        RELEASE.set()
        await asyncio.wait_for(asking, 60)
        await until_free(redis)

    # Django's handler and its request refer to each other. The slot must not wait for the garbage
    # collector.
    gc.disable()
    try:
        asyncio.run(ask())
    finally:
        gc.enable()
    assert SEEN == [1, 1]


# Redis away


def away(settings: Any, server: RedisServer, **changes: Any) -> None:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}
    settings.CACHES = {**settings.CACHES, "default": cache}
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "LATENCY_BUDGET": 1.0, **changes}


def test_request_succeeds_when_redis_is_away_at_the_release(
    settings: Any, fresh_server: RedisServer
) -> None:
    away(settings, fresh_server)
    request = RequestFactory().get("/")
    assert guard.check(request, TWO)
    fresh_server.kill()
    request.close()
    # The fallback of this process counts now, and frees its own slots.
    for _ in range(5):
        with limits.hold("two", CLIENT) as decision:
            assert (decision.allowed, decision.source) == (True, "local")
    two = limits.hold("two", CLIENT), limits.hold("two", CLIENT)
    with two[0], two[1], limits.hold("two", CLIENT) as third:
        assert (third.allowed, third.reason, third.retry_after) == (False, "fallback", 0.0)


def test_slot_that_was_taken_without_redis_is_free_when_it_is_back(
    settings: Any, fresh_server: RedisServer
) -> None:
    away(settings, fresh_server)
    port_was = fresh_server.url
    fresh_server.kill()
    with limits.hold("two", CLIENT) as local:
        assert local.source == "local"
        fresh_server.start()
        assert fresh_server.url == port_was
        wait_until(lambda: limits.peek("two", CLIENT).source == "redis", "Redis decides", 30)
        taken = limits.check("two", CLIENT)
        assert (taken.source, taken.remaining) == ("redis", 1)
    # Nothing was freed in Redis.
    assert limits.peek("two", CLIENT, 0).remaining == 1
    assert limits.refund(taken) == 1


async def test_concurrent_checks_of_one_request_free_all_slots(redis: Redis) -> None:
    async def view(request: Any) -> HttpResponse:
        return HttpResponse()

    request = RequestFactory().get("/", REMOTE_ADDR=CLIENT)
    one, other = rate_limit("two")(view), rate_limit("two")(view)
    await asyncio.gather(one(request), other(request))
    assert limits.peek("two", CLIENT, 0).remaining == 0
    request.close()
    assert limits.peek("two", CLIENT, 0).remaining == 2


def test_error_at_the_release_is_logged(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    request = held(redis)

    def broken(decision: Any) -> int:
        raise StoreError("broken on purpose")

    monkeypatch.setattr(limits.get_limiter(), "release", broken)
    request.close()
    assert "could not free the slot" in caplog.text


def test_module_is_not_imported_by_views_without_slots() -> None:
    text = Path(guard.__file__).read_text()
    assert "\n    from .inflight import hold" in text
    assert "\nfrom .inflight" not in text
