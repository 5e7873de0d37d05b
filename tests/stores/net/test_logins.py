"""The login options of an alias apply to sync and async checks."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.credentials import CredentialProvider, UsernamePasswordCredentialProvider
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from django_slidingwindow import limits
from django_slidingwindow.core.breaker import CLOSED, OPEN, THRESHOLD
from django_slidingwindow.decisions import LOCAL, REDIS
from django_slidingwindow.stores.commands import pack
from django_slidingwindow.stores.net import threads
from django_slidingwindow.stores.net.async_settings import asynchronous, only_sync
from django_slidingwindow.stores.net.pool import ask_once
from django_slidingwindow.stores.net.sentinel import aask_once
from django_slidingwindow.stores.net.settings import ConnectionSettings
from django_slidingwindow.stores.net.threads import in_thread
from tests.support.servers import RedisServer
from tests.support.servers.redis import HOST

PASSWORD = "not in the settings"
_names = count()


class Login(Connection):
    """A project's own class, which logs in with a password from its own option `secret`."""

    def __init__(self, *args: Any, secret: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._secret = secret

    def on_connect(self) -> None:
        log_in(self, self._secret)

    def on_connect_check_health(self, check_health: bool = True) -> None:
        log_in(self, self._secret)


def log_in(connection: Any, secret: str = PASSWORD) -> None:
    connection._parser.on_connect(connection)
    connection.send_command("AUTH", secret, check_health=False)
    assert connection.read_response() == b"OK"


LOGINS: dict[str, dict[str, Any]] = {
    "connection_class": {"connection_class": Login, "secret": PASSWORD},
    "redis_connect_func": {"redis_connect_func": log_in},
    "credential_provider": {
        "credential_provider": UsernamePasswordCredentialProvider("default", PASSWORD)
    },
}
login: Any = pytest.mark.parametrize("login", LOGINS)


class Away(CredentialProvider):
    """A credential provider whose source of passwords is away."""

    def get_credentials(self) -> tuple[str]:
        raise RuntimeError("no token")

    async def get_credentials_async(self) -> tuple[str]:
        return self.get_credentials()


# The number of a database and connection options that lead to no login.
NO_LOGINS: dict[str, tuple[int, dict[str, Any]]] = {
    "credential_provider": (0, {"credential_provider": Away()}),
    "redis_connect_func": (0, {"redis_connect_func": lambda _: Away().get_credentials()}),
    "database": (99, {"password": PASSWORD}),
}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(password=PASSWORD) as server:
        yield server


@pytest.fixture
def use(server: RedisServer, settings: Any) -> Iterator[Callable[..., None]]:
    """Return a function that configures the server, with the connection options of a login."""

    def point(login: str | dict[str, Any], database: int = 0, **user: Any) -> None:
        # A URL that no other test uses, because django-redis keeps a pool for each URL.
        query = f"client_name=login{next(_names)}"
        options = LOGINS[login] if isinstance(login, str) else login
        settings.CACHES = {
            "default": {
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": f"redis://{HOST}:{server.port}/{database}?{query}",
                "OPTIONS": {"CONNECTION_POOL_KWARGS": options},
            }
        }
        profiles = {"some": {"axis": "ip", "limit": 50, "window": 3600}}
        settings.SLIDING_WINDOW = {
            "PROFILES": profiles,
            "LATENCY_BUDGET": 30,
            "SHIELD_SECONDS": 0,
            **user,
        }

    yield point
    with server.client() as client:
        client.flushall()


@login
def test_checks_log_in_as_the_alias_says(login: str, use: Any) -> None:
    use(login)
    assert limits.check("some", "a").source == REDIS
    assert asyncio.run(limits.acheck("some", "a")).source == REDIS
    assert limits.peek("some", "a").remaining == 47


@login
async def test_limit_is_exact_for_a_crowd_of_async_checks(login: str, use: Any) -> None:
    use(login)
    answers = await asyncio.gather(*(limits.acheck("some", "a") for _ in range(200)))
    assert {answer.source for answer in answers} == {REDIS}
    assert sum(answer.allowed for answer in answers) == 50


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("refused", NO_LOGINS)
def test_login_that_fails_is_an_outage(refused: str, asynchronous: bool, use: Any) -> None:
    database, options = NO_LOGINS[refused]
    use(options, database)
    for _ in range(THRESHOLD):
        if asynchronous:
            decision = asyncio.run(limits.acheck("some", "a"))
        else:
            decision = limits.check("some", "a")
        assert decision.source == LOCAL
    assert limits.get_limiter().breaker.state == OPEN


async def until_redis_decides() -> None:
    """Wait until Redis answers within the budget, which may take a while on a busy machine."""
    deadline = time.monotonic() + 20
    while (await limits.acheck("some", "a")).source != REDIS:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@login
async def test_async_checks_fall_back_within_the_budget_when_redis_is_frozen(
    login: str, use: Any, server: RedisServer
) -> None:
    use(login, LATENCY_BUDGET=0.2)
    await until_redis_decides()
    server.freeze()
    try:
        start = time.monotonic()
        # More checks than threads.
        answers = await asyncio.gather(*(limits.acheck("some", "a") for _ in range(100)))
        seconds = time.monotonic() - start
    finally:
        server.thaw()
    assert {answer.source for answer in answers} == {LOCAL}
    # They do not wait for one another, which would take much longer.
    assert seconds < 5
    await until_redis_decides()
    assert limits.get_limiter().breaker.state == CLOSED


async def test_threads_end_soon_when_none_is_free_in_time() -> None:
    ended = threading.Event()

    def busy(deadline: float | None) -> None:
        ended.wait()

    held = [
        asyncio.ensure_future(in_thread(busy, deadline=math.inf))
        for _ in range(threads._MAX_THREADS)
    ]
    late = asyncio.ensure_future(in_thread(busy, deadline=time.monotonic()))
    await asyncio.sleep(0.05)
    ended.set()
    with pytest.raises(RedisTimeoutError, match="no thread was free"):
        await late
    await asyncio.gather(*held)


def test_forked_child_has_threads_of_its_own(use: Any) -> None:
    use("connection_class")
    assert asyncio.run(limits.acheck("some", "a")).source == REDIS
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover -- coverage does not see the child
        source = "failed"
        try:
            source = asyncio.run(asyncio.wait_for(limits.acheck("some", "a"), 20)).source
        finally:
            os.write(writing, source.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert said.read() == REDIS
    os.waitpid(child, 0)


class SentinelLogin(SentinelManagedConnection):
    """A project's own connection class for an alias with sentinels."""

    on_connect = on_connect_check_health = lambda self, check_health=True: log_in(self)


async def test_connection_class_of_an_alias_with_sentinels_logs_in(server: RedisServer) -> None:
    connection_settings = ConnectionSettings(SentinelLogin, {"connection_pool": None}, None, 1).at(
        HOST, server.port
    )
    assert ask_once(connection_settings, pack(b"PING"), time.monotonic() + 20) == b"PONG"
    assert await aask_once(connection_settings, pack(b"PING"), time.monotonic() + 20) == b"PONG"
    assert "service=primary" in repr(connection_settings.sync(0.0))


async def test_sentinel_is_asked_as_its_options_say(server: RedisServer) -> None:
    connection_settings = ConnectionSettings(
        Login, {"host": HOST, "port": server.port, "secret": PASSWORD}, None, 1
    )
    assert await aask_once(connection_settings, pack(b"PING"), time.monotonic() + 20) == b"PONG"


@pytest.mark.parametrize(
    "connection_class",
    [
        *(Connection, SSLConnection, UnixDomainSocketConnection),
        *(SentinelManagedConnection, SentinelManagedSSLConnection),
    ],
)
def test_connections_of_redis_py_have_an_asynchronous_form(connection_class: type) -> None:
    assert only_sync(ConnectionSettings(connection_class, {}, None, 1)) is None


def test_options_of_tls_that_only_sync_connections_have_are_left_out_when_unset() -> None:
    given = {"host": HOST, "port": 1, "ssl_validate_ocsp": False, "ssl_check_hostname": False}
    connection_settings = ConnectionSettings(SSLConnection, given, None, 1)
    assert only_sync(connection_settings) is None
    assert asynchronous(connection_settings).check_hostname is False
    connection_settings = ConnectionSettings(
        SSLConnection, {**given, "ssl_validate_ocsp": True}, None, 1
    )
    assert only_sync(connection_settings) == "ssl_validate_ocsp"
