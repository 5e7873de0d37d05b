"""The alias's settings reach every connection, and each event loop has one of its own."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from asgiref.sync import async_to_sync
from django_redis.pool import ConnectionFactory

from django_slidingwindow import limits
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.stores.protocol import Evaluate, WindowRule, WindowRules
from django_slidingwindow.stores.redis import RedisStore
from tests.support.server_commands import commands_of
from tests.support.servers import RedisServer
from tests.support.servers.redis import HOST, has_tls, wait_until
from tests.support.suite.needs import TLS, require

if TYPE_CHECKING:
    from redis import Redis

POLICY = Policy(limit=1_000, window=60)
CALL = Evaluate(("throttle:ip:{x}:y:c60",), (WindowRule(POLICY, 1),), writes=True)
NAME = "limits-of-the-test"
PASSWORD = "p@ss/w:rd #1"


@pytest.fixture
def alias(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that makes a cache alias, whose connections have the name `NAME`."""
    # django-redis keeps a pool for each URL, and another test may have used the same port.
    monkeypatch.setattr(ConnectionFactory, "_pools", {})

    def alias(location: str, pool: dict[str, Any] | None = None, **options: Any) -> str:
        options["CONNECTION_POOL_KWARGS"] = {"client_name": NAME, **(pool or {})}
        cache = {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": location,
            "OPTIONS": options,
        }
        settings.CACHES = {**settings.CACHES, "limits": cache}
        return "limits"

    return alias


@pytest.fixture(params=["sync", "async"])
def asked(request: pytest.FixtureRequest) -> Callable[..., dict[str, str]]:
    """Return a function that runs a call and returns the server's entry for its connection."""

    def sync(store: RedisStore, server: RedisServer, **login: Any) -> dict[str, str]:
        assert store.run(CALL)[0] == 1
        [found] = connections(server, **login)
        store.close()
        return found

    def asynchronous(store: RedisStore, server: RedisServer, **login: Any) -> dict[str, str]:
        async def ask() -> dict[str, str]:
            assert (await store.arun(CALL))[0] == 1
            [found] = connections(server, **login)
            return found

        found = asyncio.run(ask())
        # A connection that was not closed with its loop raises a warning now, which is an error.
        gc.collect()
        return found

    return sync if request.param == "sync" else asynchronous


def connections(server: RedisServer, **login: Any) -> list[dict[str, str]]:
    """Return the server's entries for the current connections of the store."""
    with server.client(**login) as client:
        return [one for one in client.client_list() if one["name"] == NAME]


def wait_until_closed(server: RedisServer) -> None:
    wait_until(lambda: not connections(server), "the store's connections are closed")


def test_address_and_database_of_the_alias_are_used(
    fresh_server: RedisServer, alias: Callable[..., str], asked: Callable[..., dict[str, str]]
) -> None:
    url = f"redis://{HOST}:{fresh_server.port}/3"
    found = asked(RedisStore(alias(url)), fresh_server)
    assert found["db"] == "3"
    with fresh_server.client() as client:
        assert list(client.info("keyspace")) == ["db3"]


def test_unix_socket_of_the_alias_is_used(
    fresh_server: RedisServer, alias: Callable[..., str], asked: Callable[..., dict[str, str]]
) -> None:
    found = asked(RedisStore(alias(fresh_server.unix_url.replace("db=0", "db=2"))), fresh_server)
    assert f"{fresh_server.folder}/redis.sock" in found["addr"]  # Valkey puts it in brackets
    assert found["db"] == "2"


def test_tls_of_the_alias_is_used(
    alias: Callable[..., str], asked: Callable[..., dict[str, str]]
) -> None:
    require(TLS, has_tls())
    with RedisServer(tls=True) as server:
        assert server.url.startswith("rediss://")
        assert asked(RedisStore(alias(server.url)), server)["name"] == NAME


def test_certificate_is_refused_when_it_is_not_trusted(alias: Callable[..., str]) -> None:
    require(TLS, has_tls())
    with RedisServer(tls=True) as server:
        store = RedisStore(alias(server.url.partition("?")[0]))
        with pytest.raises(StoreError, match=r"(?i)certificate"):
            store.run(CALL)
        with pytest.raises(StoreError, match=r"(?i)certificate"):
            asyncio.run(store.arun(CALL))


@pytest.mark.parametrize("where", ["url", "options"])
def test_password_of_the_alias_is_used(
    alias: Callable[..., str], asked: Callable[..., dict[str, str]], where: str
) -> None:
    with RedisServer(password="secret word") as server:
        if where == "url":
            name = alias(server.url)
        else:
            name = alias(f"redis://{HOST}:{server.port}/0", PASSWORD="secret word")
        assert asked(RedisStore(name), server)["user"] == "default"


@pytest.mark.parametrize("where", ["url", "options"])
def test_username_of_the_alias_is_used(
    alias: Callable[..., str], asked: Callable[..., dict[str, str]], where: str
) -> None:
    with RedisServer() as server:
        with server.client() as client:
            client.acl_setuser(
                "limits",
                enabled=True,
                passwords=[f"+{PASSWORD}"],
                keys=["throttle:*"],
                categories=["+@all"],
            )
        address = f"{HOST}:{server.port}/0"
        if where == "url":
            name = alias(f"redis://limits:{quote(PASSWORD, safe='')}@{address}")
        else:
            login = {"username": "limits", "password": PASSWORD}
            name = alias(f"redis://{address}", pool=login)
        assert asked(RedisStore(name), server)["user"] == "limits"


@pytest.mark.parametrize("missing", ["command", "keys"])
def test_missing_right_of_a_script_is_an_outage(
    fresh_server: RedisServer, alias: Callable[..., str], missing: str
) -> None:
    """The error does not concern one window only: no check of this user can succeed."""
    with fresh_server.client() as client:
        client.acl_setuser(
            "limits",
            enabled=True,
            passwords=[f"+{PASSWORD}"],
            keys=["other:*" if missing == "keys" else "*"],
            categories=["+@all"],
            commands=["-set", "-setrange"] if missing == "command" else [],
        )
    login = {"username": "limits", "password": PASSWORD}
    store = RedisStore(alias(fresh_server.url, pool=login))
    for answer in (lambda: store.run(CALL), lambda: asyncio.run(store.arun(CALL))):
        with pytest.raises(StoreError) as caught:
            answer()
        assert caught.value.outage
    store.close()


def test_wrong_password_raises_a_store_error(alias: Callable[..., str]) -> None:
    with RedisServer(password="right") as server:
        store = RedisStore(alias(f"redis://:wrong@{HOST}:{server.port}/0"))
        with pytest.raises(StoreError):
            store.run(CALL)
        with pytest.raises(StoreError):
            asyncio.run(store.arun(CALL))


@pytest.mark.parametrize("bound", ["alias", "budget"])
def test_time_out_bounds_every_call(
    fresh_server: RedisServer, alias: Callable[..., str], bound: str
) -> None:
    options = {"SOCKET_TIMEOUT": 0.2} if bound == "alias" else {}
    store = RedisStore(
        alias(fresh_server.url, **options), budget=0.2 if bound == "budget" else None
    )

    async def ask_frozen() -> None:
        await store.arun(CALL)
        fresh_server.freeze()
        with pytest.raises(StoreError) as caught:
            await store.arun(CALL)
        assert caught.value.outage

    # Without a time-out these would never return.
    store.run(CALL)
    fresh_server.freeze()
    with pytest.raises(StoreError) as caught:
        store.run(CALL)
    assert caught.value.outage
    fresh_server.thaw()
    asyncio.run(ask_frozen())
    fresh_server.thaw()
    store.close()


async def test_many_tasks_share_one_connection_of_their_loop(
    fresh_server: RedisServer, alias: Callable[..., str]
) -> None:
    store = RedisStore(alias(fresh_server.url))
    for _ in range(3):
        replies = await asyncio.gather(*(store.arun(CALL) for _ in range(50)))
        assert all(reply[0] for reply in replies)
    assert len(connections(fresh_server)) == 1


def test_each_running_loop_has_its_own_connection(
    fresh_server: RedisServer, alias: Callable[..., str]
) -> None:
    store = RedisStore(alias(fresh_server.url))
    both = threading.Barrier(3)

    async def ask() -> None:
        for _ in range(10):
            await store.arun(CALL)
        await asyncio.to_thread(both.wait)
        await asyncio.to_thread(both.wait)

    threads = [threading.Thread(target=asyncio.run, args=(ask(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    both.wait()
    assert len(connections(fresh_server)) == 2
    both.wait()
    for thread in threads:
        thread.join()
    wait_until_closed(fresh_server)


@pytest.mark.parametrize("how", ["run", "async_to_sync"])
def test_connection_is_closed_with_its_loop(
    fresh_server: RedisServer, alias: Callable[..., str], how: str
) -> None:
    store = RedisStore(alias(fresh_server.url))
    loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()

    async def ask() -> int:
        loops.add(asyncio.get_running_loop())
        return (await store.arun(CALL))[3]

    drive = async_to_sync(ask) if how == "async_to_sync" else lambda: asyncio.run(ask())
    assert [drive() for _ in range(30)] == list(range(999, 969, -1))
    gc.collect()
    assert not list(loops)
    wait_until_closed(fresh_server)


class BlockedError(AssertionError):
    """A call that would have blocked the event loop."""


@pytest.fixture
def no_blocking(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make blocking sockets and sleeps in this thread raise BlockedError."""
    here = threading.get_ident()

    def guarded(name: str) -> Callable[..., Any]:
        original = getattr(socket.socket, name)

        def method(self: socket.socket, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == here and self.gettimeout() != 0:
                raise BlockedError(name)
            return original(self, *args, **kwargs)

        return method

    def sleep(seconds: float) -> None:
        if threading.get_ident() == here:
            raise BlockedError("sleep")
        real_sleep(seconds)

    real_sleep = time.sleep
    for name in ("connect", "recv", "recv_into", "send", "sendall"):
        monkeypatch.setattr(socket.socket, name, guarded(name))
    monkeypatch.setattr(time, "sleep", sleep)
    yield
    monkeypatch.undo()


async def test_nothing_blocks_the_event_loop(
    fresh_server: RedisServer, alias: Callable[..., str], settings: Any, no_blocking: None
) -> None:
    settings.SLIDING_WINDOW = {"CACHE": alias(fresh_server.url), "LATENCY_BUDGET": 30}
    mine = Profile(name="mine", axis="user", policies=(Policy(limit=1, window=0.2),))
    with socket.socket() as waits, pytest.raises(BlockedError):
        waits.connect((HOST, fresh_server.port))
    decision = await limits.acheck(mine, "ada")
    assert decision.source == "redis"
    await limits.apeek(mine, "ada")
    assert (await limits.aacquire(mine, "ada")).allowed
    assert await limits.arefund(decision) in (0, 1)
    await limits.areset(mine, "ada")


async def test_event_loop_is_not_blocked_when_the_server_hangs(
    fresh_server: RedisServer, alias: Callable[..., str], settings: Any, no_blocking: None
) -> None:
    settings.SLIDING_WINDOW = {"CACHE": alias(fresh_server.url), "LATENCY_BUDGET": 0.2}
    mine = Profile(name="mine", axis="user", policies=(Policy(limit=5, window=60),))
    await limits.acheck(mine, "ada")
    fresh_server.freeze()
    turns = 0
    waiting = asyncio.ensure_future(limits.acheck(mine, "ada"))
    while not waiting.done():
        turns += 1
        await asyncio.sleep(0)
    fresh_server.thaw()
    assert (await waiting).source == "local"
    assert turns > 10


def test_run_many_returns_results_in_order(
    fresh_server: RedisServer, alias: Callable[..., str]
) -> None:
    store = RedisStore(alias(fresh_server.url))
    peek = Evaluate(CALL.keys, CALL.rules, writes=False)
    replies = store.run_many([CALL, peek, CALL, CALL])
    assert [reply[3] for reply in replies] == [999, 998, 998, 997]
    store.close()
    assert not connections(fresh_server)


def test_every_call_raises_a_store_error_when_the_server_is_down(
    fresh_server: RedisServer, alias: Callable[..., str]
) -> None:
    store = RedisStore(alias(fresh_server.url))
    store.run(CALL)
    fresh_server.kill()
    for ask in (
        lambda: store.run(CALL),
        lambda: store.run_many([CALL]),
        lambda: asyncio.run(store.arun(CALL)),
    ):
        with pytest.raises(StoreError) as caught:
            ask()
        assert caught.value.outage
        assert caught.value.__cause__ is not None


class TestCharge:
    """The fast path of most checks, which gives the same results as `run`."""

    KEYS = ("throttle:ip:{x}:y:c60", "throttle:ip:{x}:y:c61")
    RULES = (WindowRule(POLICY, 1), WindowRule(Policy(limit=7, window=61), 1))

    @pytest.fixture
    def hit(self, redis: Redis) -> Iterator[Callable[..., list[int]]]:
        """Return a function that charges the first keys on a store that is connected already."""
        store = RedisStore("default", budget=30)
        kept = {count: WindowRules(self.RULES[:count]) for count in (1, 2)}

        def hit(count: int) -> list[int]:
            return list(store.charge(self.KEYS[:count], kept[count]))

        for count in kept:
            hit(count)
        redis.flushdb()
        yield hit
        store.close()

    @pytest.mark.parametrize("count", [1, 2])
    def test_charge_sends_the_same_commands_as_run(
        self, hit: Callable[..., list[int]], redis: Redis, count: int
    ) -> None:
        store = RedisStore("default", budget=30)
        call = Evaluate(self.KEYS[:count], self.RULES[:count], writes=True)
        store.run(call)  # connects; what a new connection sends depends on the server
        assert commands_of(redis, lambda: hit(count)) == commands_of(redis, lambda: store.run(call))
        store.close()

    def test_charge_returns_integers(self, hit: Callable[..., list[int]]) -> None:
        admitted, clock, *said = hit(2)
        assert (admitted, said) == (1, [1, 999, 0, 60_000_000, 1, 6, 0, 61_000_000])
        assert hit(2)[1] > clock

    def test_charge_is_made_once_when_the_server_has_lost_the_script(
        self, hit: Callable[..., list[int]], redis: Redis
    ) -> None:
        redis.script_flush()
        assert [hit(1)[3], hit(1)[3]] == [999, 998]

    def test_error_of_the_server_raises_a_store_error(
        self, hit: Callable[..., list[int]], redis: Redis
    ) -> None:
        redis.rpush(self.KEYS[0], "no window")
        with pytest.raises(StoreError, match="WRONGTYPE") as caught:
            hit(1)
        assert not caught.value.outage

    def test_charge_works_without_a_time_limit(
        self, alias: Callable[..., str], redis: Redis, redis_server: RedisServer
    ) -> None:
        store = RedisStore(alias(redis_server.url))
        kept = WindowRules(self.RULES[:1])
        assert [store.charge(self.KEYS[:1], kept)[0] for _ in range(2)] == [1, 1]
        redis.script_flush()
        assert store.charge(self.KEYS[:1], kept)[0] == 1
        store.close()

    def test_charge_raises_an_outage_when_the_server_is_down(
        self, alias: Callable[..., str]
    ) -> None:
        with RedisServer() as server:
            store = RedisStore(alias(server.url), budget=5)
            kept = WindowRules(self.RULES[:1])
            assert store.charge(self.KEYS[:1], kept)[0] == 1
        with pytest.raises(StoreError) as caught:
            store.charge(self.KEYS[:1], kept)
        assert caught.value.outage
