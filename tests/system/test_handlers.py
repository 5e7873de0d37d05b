"""Limits under Django's WSGI and ASGI handlers: equal results, and no blocked event loop."""

from __future__ import annotations

import asyncio
import io
import threading

import pytest
from django.contrib.auth.models import User
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.http import HttpResponse
from django.test import Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from django_slidingwindow.decorators import RateLimitMixin, rate_limit
from django_slidingwindow.guard import check as guard

OURS = "django_slidingwindow.middleware.RateLimitMiddleware"
AUTH = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
CLIENT = "203.0.113.9"


def plain(request):
    return HttpResponse("seen")


async def async_plain(request):
    return HttpResponse("seen")


@method_decorator(rate_limit("burst"), name="dispatch")
class Decorated(View):
    def get(self, request):
        return HttpResponse("seen")


@method_decorator(rate_limit("burst"), name="dispatch")
class AsyncDecorated(View):
    async def get(self, request):
        return HttpResponse("seen")


class Mixed(RateLimitMixin, View):
    rate_limit_profiles = "burst"

    def get(self, request):
        return HttpResponse("seen")


class AsyncMixed(RateLimitMixin, View):
    rate_limit_profiles = "burst"

    async def get(self, request):
        return HttpResponse("seen")


urlpatterns = [
    path("plain/", plain),
    path("plain/async/", async_plain),
    path("function/", rate_limit("burst")(plain)),
    path("function/async/", rate_limit("burst")(async_plain)),
    path("class/", Decorated.as_view()),
    path("class/async/", AsyncDecorated.as_view()),
    path("mixin/", Mixed.as_view()),
    path("mixin/async/", AsyncMixed.as_view()),
    path("user/async/", rate_limit("user")(async_plain)),
    path("many/async/", rate_limit("many", "user", "blocking")(async_plain)),
]
SETTINGS = {
    "LOG": False,
    "LATENCY_BUDGET": 10,
    "PROFILES": {
        "burst": {"axis": "ip", "rate": "3/m"},
        "user": {"axis": "user", "rate": "3/m"},
        "many": {"axis": "ip", "rate": "100/m"},
    },
}

pytestmark = [pytest.mark.urls(__name__)]


@pytest.fixture(autouse=True)
def project(settings, redis):
    settings.MIDDLEWARE = []
    settings.SLIDING_WINDOW = SETTINGS
    # As in Django's test client: a request must not close the test's database connection.
    request_started.disconnect(close_old_connections)
    request_finished.disconnect(close_old_connections)
    yield settings
    request_started.connect(close_old_connections)
    request_finished.connect(close_old_connections)


def wsgi(handler, url, cookie=""):
    """Return status and headers as a WSGI server gets them."""
    started = []
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": url,
        "SERVER_NAME": "testserver",
        "SERVER_PORT": "80",
        "REMOTE_ADDR": CLIENT,
        "HTTP_COOKIE": cookie,
        "wsgi.input": io.BytesIO(),
        "wsgi.url_scheme": "http",
    }
    response = handler(environ, lambda status, headers: started.append((status, headers)))
    assert b"".join(response)
    response.close()
    status, headers = started[0]
    return int(status.split()[0]), {name.lower(): value for name, value in headers}


async def asgi(handler, url, cookie=""):
    """Return status and headers as an ASGI server gets them."""
    sent = []
    incoming = asyncio.Queue()
    incoming.put_nowait({"type": "http.request"})
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": url,
        "query_string": b"",
        "headers": [(b"host", b"testserver"), (b"cookie", cookie.encode())],
        "client": (CLIENT, 50_000),
        "server": ("testserver", 80),
    }

    async def send(message):
        sent.append(message)

    await handler(scope, incoming.get, send)
    headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers


def served(kind, url, count, cookie=""):
    """A function that returns the responses of a handler made with the current settings."""
    if kind == "wsgi":
        handler = WSGIHandler()
        return [wsgi(handler, url, cookie) for _ in range(count)]

    async def serve():
        handler = ASGIHandler()
        return [await asgi(handler, url, cookie) for _ in range(count)]

    return asyncio.run(serve())


VIEWS = [
    f"/{view}/{suffix}" for view in ("function", "class", "mixin") for suffix in ("", "async/")
]
RULE = {"path": "^/", "profiles": ["burst"]}


@pytest.mark.parametrize("kind", ["wsgi", "asgi"])
@pytest.mark.parametrize(
    ("url", "middleware", "rules"),
    [
        *[(url, False, []) for url in VIEWS],
        *[(url, True, []) for url in VIEWS],
        *[(url, True, [RULE]) for url in VIEWS],
        ("/plain/", True, [RULE]),
        ("/plain/async/", True, [RULE]),
    ],
)
def test_every_way_to_limit_a_view_gives_the_same_result(project, kind, url, middleware, rules):
    """The ways are decorator, class, mixin, rule, and rule with decorator."""
    project.MIDDLEWARE = [OURS] if middleware else []
    project.SLIDING_WINDOW = {**SETTINGS, "RULES": rules}
    answers = served(kind, url, 5)
    assert [status for status, _ in answers] == [200, 200, 200, 429, 429]
    assert [headers["ratelimit-remaining"] for _, headers in answers] == ["2", "1", "0", "0", "0"]
    assert {headers["ratelimit-policy"] for _, headers in answers} == {'"burst";q=3;w=60'}
    assert all(("retry-after" in headers) == (status == 429) for status, headers in answers)


@pytest.mark.parametrize("kind", ["wsgi", "asgi"])
def test_unknown_path_is_limited_by_rules(project, kind):
    project.MIDDLEWARE = [OURS]
    project.SLIDING_WINDOW = {**SETTINGS, "RULES": [RULE]}
    answers = served(kind, "/wp-login.php", 5)
    assert [status for status, _ in answers] == [404, 404, 404, 429, 429]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["wsgi", "asgi"])
@pytest.mark.parametrize("middleware", [[*AUTH], [OURS, *AUTH]])
def test_user_of_an_async_view_is_loaded_and_counted(project, kind, middleware, redis):
    project.MIDDLEWARE = middleware
    user = User.objects.create(username="somebody")
    client = Client()
    client.force_login(user)
    cookie = f"sessionid={client.cookies['sessionid'].value}"
    answers = served(kind, "/user/async/", 4, cookie)
    assert [status for status, _ in answers] == [200, 200, 200, 429]
    assert redis.keys("throttle:*") == [f"throttle:user:{{{user.pk}}}:user:c60"]


async def test_middleware_under_asgi_uses_no_thread(project):
    """django-smart-ratelimit's middleware fails under ASGI."""
    project.MIDDLEWARE = [OURS]
    project.SLIDING_WINDOW = {**SETTINGS, "RULES": [{"profiles": ["burst", "many"]}]}
    handler = ASGIHandler()
    await asgi(handler, "/plain/async/")
    threads = set()
    start = threading.Thread.start

    def watched(thread):
        threads.add(thread.name)
        start(thread)

    chain = handler._middleware_chain
    names = []

    async def observed(request):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", watched)
            patch.setattr("asgiref.sync.SyncToAsync.__call__", names.append)
            return await chain(request)

    handler._middleware_chain = observed
    status, _ = await asgi(handler, "/plain/async/")
    assert (status, threads, names) == (200, set(), [])


@pytest.mark.parametrize("middleware", [[], [OURS]])
async def test_blocking_functions_never_block_the_event_loop(project, middleware):
    """All 200 requests wait for a heartbeat of the loop, which one blocking call would stop."""
    beaten = threading.Event()

    def blocking(*args):
        return "100/m" if beaten.wait(20) else None

    project.MIDDLEWARE = middleware
    project.SLIDING_WINDOW = {
        **SETTINGS,
        "IDENTITIES": {"slow": blocking},
        "PROFILES": {**SETTINGS["PROFILES"], "blocking": {"axis": "slow", "rate": blocking}},
    }
    handler = ASGIHandler()
    requests = [asyncio.create_task(asgi(handler, "/many/async/")) for _ in range(200)]
    for _ in range(20):
        await asyncio.sleep(0.005)
    assert not any(request.done() for request in requests)
    beaten.set()
    statuses = [status for status, _ in await asyncio.gather(*requests)]
    # The profile `user` admits three requests of this address.
    assert sorted(statuses) == [200] * 3 + [429] * 197


async def test_hanging_redis_never_blocks_the_event_loop(project, fresh_server):
    project.MIDDLEWARE = [OURS]
    project.CACHES = {
        "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}
    }
    project.SLIDING_WINDOW = {**SETTINGS, "RULES": [{"profiles": ["many"]}]}
    handler = ASGIHandler()
    assert (await asgi(handler, "/plain/async/"))[0] == 200
    fresh_server.freeze()
    requests = [asyncio.create_task(asgi(handler, "/plain/async/")) for _ in range(200)]
    for _ in range(20):
        await asyncio.sleep(0.005)
    assert not any(request.done() for request in requests)
    fresh_server.thaw()
    statuses = [status for status, _ in await asyncio.gather(*requests)]
    assert sorted(statuses) == [200] * 99 + [429] * 101


async def test_two_hundred_concurrent_requests_admit_exactly_the_limit(project):
    """DRF's GET and SET let 284 of 300 through at limit 20."""
    project.MIDDLEWARE = [OURS]
    project.SLIDING_WINDOW = {**SETTINGS, "RULES": [{"profiles": ["many"]}]}
    handler = ASGIHandler()
    answers = await asyncio.gather(*(asgi(handler, "/plain/async/") for _ in range(200)))
    assert sorted(status for status, _ in answers) == [200] * 100 + [429] * 100


def test_threads_of_a_wsgi_server_admit_exactly_the_limit(project):
    project.MIDDLEWARE = [OURS]
    project.SLIDING_WINDOW = {**SETTINGS, "RULES": [{"profiles": ["many"]}]}
    handler = WSGIHandler()
    statuses = []

    def ask():
        for _ in range(20):
            statuses.append(wsgi(handler, "/plain/")[0])

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * 100 + [429] * 100


async def test_sync_view_under_asgi_is_checked_in_its_thread(project, monkeypatch):
    threads = []

    def identity(request):
        threads.append(threading.current_thread())
        return "somebody"

    project.SLIDING_WINDOW = {**SETTINGS, "IDENTITIES": {"ip": identity}}
    monkeypatch.setattr(guard, "acheck", None)
    handler = ASGIHandler()
    statuses = [(await asgi(handler, "/function/"))[0] for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    assert threading.current_thread() not in threads
