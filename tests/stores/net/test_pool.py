"""Connections end by their deadline, are checked before use, and are shared safely."""

from __future__ import annotations

import asyncio
import math
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from redis._parsers import _HiredisParser, _RESP2Parser
from redis.connection import Connection, ConnectionPool, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import (
    MaxConnectionsError,
    NoPermissionError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.stores.commands import pack
from django_slidingwindow.stores.errors import is_outage, store_error
from django_slidingwindow.stores.net import async_connection
from django_slidingwindow.stores.net import server as servers
from django_slidingwindow.stores.net.async_connection import Multiplexer
from django_slidingwindow.stores.net.pool import Connections, ask_once
from django_slidingwindow.stores.net.readiness import Select, watch
from django_slidingwindow.stores.net.sentinel import aask_once
from django_slidingwindow.stores.net.server import Server, exchange_all
from django_slidingwindow.stores.net.settings import ConnectionSettings
from django_slidingwindow.stores.protocol import Reset
from django_slidingwindow.stores.redis import RedisStore
from tests.support.redis_failures import listening
from tests.support.servers.redis import HOST, RedisServer, free_port, wait_until

if TYPE_CHECKING:
    from redis import Redis

PING = pack(b"PING")
RESET = pack(b"RESET")
# Much longer than a budget, but short enough to notice a call without a time limit.
SOON = 5.0


Serve = Callable[..., list[Server]]


def settings_for(
    port: int, limit: float | None = None, most: int = 10, **options: Any
) -> ConnectionSettings:
    pool = ConnectionPool.from_url(f"redis://{HOST}:{port}/0", max_connections=most, **options)
    return ConnectionSettings.of(pool, limit)


def connections_to(server: RedisServer, most: int = 10) -> Connections:
    connection_settings = settings_for(server.port, most=most)
    return Connections(lambda deadline: connection_settings, most=most)


def later(seconds: float) -> float:
    return time.monotonic() + seconds


def made(connections: Connections) -> int:
    """Return the number of connections, idle or in use."""
    return sum(place() is not None for place in connections._places)


@pytest.fixture
def connections(redis_server: RedisServer) -> Connections:
    return connections_to(redis_server)


class TestConnectionSettings:
    @pytest.mark.parametrize(
        ("own", "budget", "limit"),
        [
            (None, None, math.inf),
            (2.0, None, 2.0),
            (None, 0.1, 0.1),
            (2.0, 0.1, 0.1),
            (0.05, 0.1, 0.05),
        ],
    )
    def test_shorter_of_time_out_and_budget_is_the_limit(
        self, own: float | None, budget: float | None, limit: float
    ) -> None:
        assert settings_for(1, budget, socket_timeout=own).limit == limit

    def test_deadline_is_the_sooner_of_the_limit_and_that_of_the_call(self) -> None:
        assert settings_for(1).deadline() == math.inf
        for connection_settings, within in (
            (settings_for(1, 50), None),
            (settings_for(1, 900), 50),
            (settings_for(1), 50),
        ):
            assert connection_settings.deadline(within) - time.monotonic() == pytest.approx(
                50, abs=5
            )

    @pytest.mark.parametrize(
        ("given", "used"),
        [
            (Connection, Connection),
            (SSLConnection, SSLConnection),
            (SentinelManagedConnection, Connection),
            (SentinelManagedSSLConnection, SSLConnection),
        ],
    )
    def test_connection_has_the_class_of_the_pool(self, given: type, used: type) -> None:
        connection_settings = ConnectionSettings(given, {"host": HOST, "port": 1}, None, 1)
        connection = connection_settings.sync(later(SOON))
        assert isinstance(connection, used)
        assert isinstance(connection, SentinelManagedConnection) is False
        assert connection.retry.get_retries() == 0

    def test_without_a_deadline_connections_wait(self, redis_server: RedisServer) -> None:
        connection = settings_for(redis_server.port).sync(math.inf)
        connection.connect()
        assert connection.socket_timeout is None
        connection.send_command("PING")
        assert connection.read_response() == b"PONG"
        connection.disconnect()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that makes servers for some ports. Close their connections at the end."""
    made: list[Server] = []

    def make(*ports: int, most: int = 10) -> list[Server]:
        made.extend(Server(settings_for(port, most=most)) for port in ports)
        return made

    yield make
    for server in made:
        server.close()


class TestExchangeAll:
    def test_error_of_one_server_is_returned_with_the_replies_of_others(
        self, redis_server: RedisServer, serve: Serve
    ) -> None:
        with listening(drip=b"!") as nonsense:
            ports = redis_server.port, free_port(), nonsense, redis_server.port
            asked = [(server, PING + PING, 2) for server in serve(*ports)]
            found = exchange_all(asked, later(1.0))
        assert found[0] == found[3] == [b"PONG", b"PONG"]
        assert isinstance(found[1], RedisConnectionError)
        assert isinstance(found[2], RedisError)

    def test_server_whose_connections_are_in_use_is_asked_last(
        self, redis_server: RedisServer, serve: Serve
    ) -> None:
        (busy, free) = serve(redis_server.port, redis_server.port, most=1)
        asked = [
            (busy, pack(b"APPEND", b"order", b"1"), 1),
            (busy, pack(b"APPEND", b"order", b"2"), 1),
            (free, pack(b"APPEND", b"order", b"3"), 1),
            (free, pack(b"NONSENSE"), 1),
        ]
        *lengths, (error,) = exchange_all(asked, later(SOON))
        assert sorted(lengths) == [[1], [2], [3]]
        assert lengths[1] == [3]
        assert isinstance(error, ResponseError)

    def test_error_of_a_busy_server_is_returned_at_its_position(
        self, redis_server: RedisServer, serve: Serve
    ) -> None:
        (server,) = serve(redis_server.port, most=1)
        halves = server.in_halves(PING, 1, later(SOON))
        next(halves)
        (error,) = exchange_all([(server, PING, 1)], later(0.05))
        halves.close()
        assert isinstance(error, MaxConnectionsError)

    def test_interruption_closes_connections_that_are_in_use(
        self, redis_server: RedisServer, serve: Serve
    ) -> None:
        (first, second) = serve(redis_server.port, redis_server.port)
        interrupted: Any = second

        def interrupt(*arguments: Any) -> Any:
            raise KeyboardInterrupt

        interrupted.in_halves = interrupt
        with pytest.raises(KeyboardInterrupt):
            exchange_all([(first, PING, 1), (second, PING, 1)], later(SOON))
        assert made(first._connections) == 0


class TestDeadline:
    @pytest.mark.parametrize("drip", [b"", b"+OK\r\n+OK\r\n+OK\r\n", b"$1000000\r\n" + b"x" * 999])
    def test_server_that_is_silent_or_drips_ends_by_the_deadline(self, drip: bytes) -> None:
        with listening(drip=drip) as port:
            connection_settings = settings_for(port)
            connections = Connections(lambda deadline: connection_settings, most=1)
            start = time.monotonic()
            with pytest.raises(RedisError):
                connections.exchange(pack(b"GET", b"k"), 100, later(0.2))
            assert time.monotonic() - start < SOON

    def test_server_that_drips_quickly_ends_soon_after_the_deadline(self) -> None:
        with listening(drip=b"$1000000\r\n" + b"x" * 100_000, pause=0.001) as port:
            start = time.monotonic()
            with pytest.raises(RedisTimeoutError):
                ask_once(settings_for(port), PING, later(0.1))
            assert time.monotonic() - start < SOON

    def test_address_that_swallows_packets_ends_by_the_deadline(self) -> None:
        # The backlog is full, so the kernel drops further attempts to connect.
        with socket.socket() as full:
            full.bind((HOST, 0))
            full.listen(0)
            with ThreadPoolExecutor(4) as executor:
                connection_settings = settings_for(full.getsockname()[1])
                start = time.monotonic()
                tries = [
                    executor.submit(ask_once, connection_settings, PING, later(0.2))
                    for _ in range(4)
                ]
                for each in tries:
                    assert isinstance(each.exception(), RedisError)
            assert time.monotonic() - start < SOON

    def test_budget_ends_every_call_of_a_store(self, settings: Any) -> None:
        with listening() as port:
            settings.CACHES = {
                "default": {
                    "BACKEND": "django_redis.cache.RedisCache",
                    "LOCATION": f"redis://{HOST}:{port}/0",
                }
            }
            store = RedisStore("default", budget=0.1)
            start = time.monotonic()
            with pytest.raises(StoreError, match=r"(?i)time"):
                store.run(Reset(("k",)))
            with pytest.raises(StoreError, match=r"(?i)time"):
                asyncio.run(store.arun(Reset(("k",))))
            with pytest.raises(StoreError, match=r"(?i)time"):
                asyncio.run(store.arun(Reset(("k",), 0.01)))
            assert time.monotonic() - start < SOON

    def test_long_payload_is_sent_in_parts(self, redis_server: RedisServer) -> None:
        connections = connections_to(redis_server)
        long = bytes(10_000_000)
        assert connections.exchange(pack(b"ECHO", long), 1, later(60)) == [long]
        connections.close()


def asked(connections: Connections, payload: bytes, seconds: float = 5) -> Any:
    """Return the reply to one command."""
    (reply,) = connections.exchange(payload, 1, later(seconds))
    return reply


class CountingWatch:
    """A poll object that never has anything to read, and counts its calls."""

    looks = 0

    def poll(self, timeout: float) -> list[Any]:
        self.looks += 1
        return []


class TestConnections:
    def test_connection_is_used_again(self, connections: Connections, redis: Redis) -> None:
        for seconds in (5, 5, 6, 5, math.inf, math.inf):
            assert asked(connections, PING, seconds) == b"PONG"
        assert made(connections) == len(connections._idle) == 1

    @pytest.mark.parametrize("parser", [_HiredisParser, _RESP2Parser])
    def test_reply_may_be_long_or_an_error(self, redis_server: RedisServer, parser: type) -> None:
        connection_settings = settings_for(redis_server.port, parser_class=parser)
        connections = Connections(lambda _: connection_settings, most=1)
        long = bytes(range(256)) * 100
        for _ in range(2):
            assert asked(connections, pack(b"ECHO", long)) == long
            assert isinstance(asked(connections, pack(b"NONSENSE")), ResponseError)
        assert made(connections) == len(connections._idle) == 1
        connections.close()

    def test_exchange_in_halves_pauses_between_sending_and_reading(
        self, connections: Connections, redis_server: RedisServer
    ) -> None:
        halves = connections.in_halves(pack(b"INCR", b"halves"), 1, later(SOON))
        next(halves)
        with redis_server.client() as client:
            wait_until(lambda: client.get("halves"), "it was sent")
        with pytest.raises(StopIteration) as stop:
            next(halves)
        assert stop.value.value == [1]
        assert connections.exchange(PING, 1, later(SOON)) == [b"PONG"]
        assert made(connections) == 1

    def test_half_an_exchange_leaves_no_reply_to_the_next(self, connections: Connections) -> None:
        halves = connections.in_halves(pack(b"ECHO", b"unread"), 1, later(SOON))
        next(halves)
        halves.close()
        assert made(connections) == 0
        assert connections.exchange(PING, 1, later(SOON)) == [b"PONG"]

    def test_exchange_in_halves_does_not_wait_for_a_connection(
        self, redis_server: RedisServer
    ) -> None:
        connections = connections_to(redis_server, most=1)
        first = connections.in_halves(PING, 1, later(SOON))
        next(first)
        with pytest.raises(MaxConnectionsError):
            next(connections.in_halves(PING, 1, later(SOON)))
        with pytest.raises(StopIteration):
            next(first)
        assert connections.exchange(PING, 1, later(SOON)) == [b"PONG"]

    def test_several_replies_come_in_their_order(self, connections: Connections) -> None:
        payload = pack(b"ECHO", b"1") + pack(b"NONSENSE") + pack(b"ECHO", b"2")
        one, error, two = connections.exchange(payload, 3, later(5))
        assert (one, two) == (b"1", b"2")
        assert isinstance(error, ResponseError)
        assert connections.exchange(PING, 1, later(5)) == [b"PONG"]

    def test_connection_that_the_server_closed_is_not_used(
        self, connections: Connections, redis: Redis
    ) -> None:
        asked(connections, PING)
        number = asked(connections, pack(b"CLIENT", b"ID"))
        redis.client_kill_filter(_id=number)
        wait_until(lambda: bool(connections._idle[0].channel.watch.poll(0)), "the end has come")
        # Make the connection look as if it had been idle for a while.
        connections._idle[0].channel.deadline -= 1
        assert asked(connections, PING) == b"PONG"
        assert made(connections) == 1

    @pytest.mark.parametrize(("idle", "looks"), [(0.0, 0), (0.005, 0), (0.02, 1), (-1.0, 1)])
    def test_connection_is_used_without_a_check_when_it_has_just_answered(
        self, connections: Connections, idle: float, looks: int
    ) -> None:
        asked(connections, PING)
        (place,) = connections._idle
        watch = place.channel.watch = CountingWatch()
        connections.exchange(PING, 1, place.channel.deadline + idle)
        assert watch.looks == looks
        assert list(connections._idle) == [place]

    def test_server_that_hangs_up_before_it_answers_is_an_error(
        self, connections: Connections, redis: Redis
    ) -> None:
        number = asked(connections, pack(b"CLIENT", b"ID"))
        with ThreadPoolExecutor(1) as executor:
            reply = executor.submit(asked, connections, pack(b"BLPOP", b"nobody", b"5"))
            wait_until(lambda: redis.info("clients")["blocked_clients"] == 1, "it waits")
            redis.client_kill_filter(_id=number)
            with pytest.raises(RedisConnectionError):
                reply.result()
        assert made(connections) == 0

    def test_unread_reply_never_answers_the_next_call(
        self, connections: Connections, redis: Redis
    ) -> None:
        assert asked(connections, PING, 0.05) == b"PONG"
        with pytest.raises(TimeoutError, match="timed out"):
            asked(connections, pack(b"BLPOP", b"nobody", b"0.3") + PING, 0.05)
        assert made(connections) == 0
        assert asked(connections, pack(b"ECHO", b"mine")) == b"mine"

    def test_connection_is_closed_when_the_server_cannot_answer(
        self, fresh_server: RedisServer
    ) -> None:
        connections = connections_to(fresh_server)
        with fresh_server.client() as client:
            asked(connections, PING)
            client.execute_command("REPLICAOF", HOST, free_port())
            error = asked(connections, pack(b"SET", b"k", b"v"))
        assert is_outage(error)
        assert made(connections) == 0, "the next one is made anew, perhaps elsewhere"

    def test_number_of_connections_is_limited(self, redis_server: RedisServer) -> None:
        connections = connections_to(redis_server, most=2)
        blocked = pack(b"BLPOP", b"nobody", b"0.4")
        with ThreadPoolExecutor(2) as executor:
            busy = [executor.submit(asked, connections, blocked) for _ in "ab"]
            wait_until(lambda: made(connections) == 2, "both are in use")
            with pytest.raises(MaxConnectionsError):
                asked(connections, PING, 0.02)
            # A waiting caller gets the first connection that becomes free.
            assert asked(connections, PING) == b"PONG"
            assert asked(connections, PING, math.inf) == b"PONG"
            for each in busy:
                assert each.result() is None
        assert made(connections) == 2

    def test_threads_share_the_stack(self, redis_server: RedisServer) -> None:
        connections = connections_to(redis_server, most=3)

        def echo(number: int) -> bool:
            word = b"%d" % number
            return bool(asked(connections, pack(b"ECHO", word), 20) == word)

        with ThreadPoolExecutor(8) as executor:
            assert all(executor.map(echo, range(400)))
        assert made(connections) <= 3

    def test_connections_are_made_again_after_closing(self, connections: Connections) -> None:
        connections.exchange(PING, 1, later(5))
        connections.close()
        assert made(connections) == 0
        assert connections.exchange(PING, 1, later(5)) == [b"PONG"]

    def test_no_place_is_taken_when_the_server_cannot_be_found(self) -> None:
        def nowhere(deadline: float | None) -> ConnectionSettings:
            raise RedisConnectionError("nowhere")

        connections = Connections(nowhere, most=1)
        for _ in range(3):
            with pytest.raises(RedisConnectionError, match="nowhere"):
                connections.exchange(PING, 1, later(5))

    def test_ask_once_uses_a_new_connection(self, redis_server: RedisServer) -> None:
        connection_settings = settings_for(redis_server.port)
        assert ask_once(connection_settings, PING, later(5)) == b"PONG"
        assert isinstance(ask_once(connection_settings, pack(b"NONSENSE"), math.inf), ResponseError)


def multiplexer_to(*ports: int, limit: float = 0.0) -> Multiplexer:
    """Return a multiplexer that connects to each port once, and then always to the last."""
    links = [settings_for(port) for port in ports]

    async def find(deadline: float | None) -> ConnectionSettings:
        return links.pop(0) if len(links) > 1 else links[0]

    return Multiplexer(find, limit=limit, closed=lambda: None)


def incident_of(error: Any) -> int | None:
    return store_error(error).incident


def connections_made(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.info("stats")["total_connections_received"])


class InterruptedCheckError(Exception):
    """Raised by a signal handler."""


class TestMultiplexer:
    async def test_concurrent_calls_share_the_connection(
        self, redis_server: RedisServer, redis: Redis
    ) -> None:
        multiplexer = multiplexer_to(redis_server.port)

        async def echo(number: int) -> bool:
            word = b"%d" % number
            return await multiplexer.exchange(pack(b"ECHO", word), 1, later(20)) == [word]

        before = redis.info("stats")["total_connections_received"]
        assert all(await asyncio.gather(*map(echo, range(300))))
        assert redis.info("stats")["total_connections_received"] == before + 1

    async def test_several_replies_belong_to_one_call(self, redis_server: RedisServer) -> None:
        multiplexer = multiplexer_to(redis_server.port)

        async def two(number: int) -> bool:
            words = [b"%d" % number, b"%d" % -number]
            payload = b"".join(pack(b"ECHO", word) for word in words)
            return await multiplexer.exchange(payload, 2, math.inf) == words

        assert all(await asyncio.gather(*map(two, range(50))))

    async def test_error_of_the_server_is_returned(self, redis_server: RedisServer) -> None:
        multiplexer = multiplexer_to(redis_server.port)
        (error,) = await multiplexer.exchange(pack(b"NONSENSE"), 1, later(5))
        assert isinstance(error, ResponseError)
        assert await multiplexer.exchange(PING, 1, later(5)) == [b"PONG"]

    async def test_late_reply_is_not_given_to_another_call(self, redis_server: RedisServer) -> None:
        multiplexer = multiplexer_to(redis_server.port)
        slow = multiplexer.exchange(pack(b"BLPOP", b"nobody", b"0.3"), 1, later(0.1))
        behind = multiplexer.exchange(pack(b"ECHO", b"behind"), 1, later(5))
        answers = await asyncio.gather(slow, behind, return_exceptions=True)
        assert [type(answer) for answer in answers] == [RedisTimeoutError] * 2
        assert await multiplexer.exchange(pack(b"ECHO", b"mine"), 1, later(5)) == [b"mine"]

    async def test_call_with_less_time_does_not_end_the_others(
        self, redis_server: RedisServer
    ) -> None:
        server = Server(settings_for(redis_server.port, limit=20))
        slow = server.aexchange(pack(b"BLPOP", b"nobody", b"0.3"), 1, later(0.1))
        behind = server.aexchange(pack(b"ECHO", b"behind"), 1, later(20))
        error, reply = await asyncio.gather(slow, behind, return_exceptions=True)
        assert type(error) is RedisTimeoutError
        assert reply == [b"behind"]
        assert await server.aexchange(pack(b"ECHO", b"mine"), 1, later(20)) == [b"mine"]

    async def test_connection_is_closed_when_the_server_takes_longer_than_a_call_may(
        self, fresh_server: RedisServer
    ) -> None:
        multiplexer = multiplexer_to(fresh_server.port, limit=0.5)
        await multiplexer.exchange(PING, 1, later(5))
        fresh_server.freeze()
        calls = [multiplexer.exchange(PING, 1, later(seconds)) for seconds in (0.1, 20)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        fresh_server.thaw()
        assert {type(error) for error in errors} == {RedisTimeoutError}
        assert len({incident_of(error) for error in errors}) == 1

    async def test_cancelled_call_does_not_disturb_the_others(
        self, redis_server: RedisServer
    ) -> None:
        multiplexer = multiplexer_to(redis_server.port)
        await multiplexer.exchange(PING, 1, later(5))
        slow = asyncio.ensure_future(
            multiplexer.exchange(pack(b"BLPOP", b"nobody", b"0.1"), 1, later(5))
        )
        await asyncio.sleep(0.01)
        slow.cancel()
        assert await multiplexer.exchange(pack(b"ECHO", b"mine"), 1, later(5)) == [b"mine"]

    async def test_call_that_is_interrupted_while_it_is_sent_leaves_no_reply_to_the_next(
        self, redis_server: RedisServer
    ) -> None:
        """A signal handler may raise between any two instructions."""

        class Interrupting(deque[Any]):
            def append(self, call: Any) -> None:
                raise InterruptedCheckError

        multiplexer = multiplexer_to(redis_server.port)
        await multiplexer.exchange(PING, 1, later(5))
        multiplexer._waiting = Interrupting()
        with pytest.raises(InterruptedCheckError):
            await multiplexer.exchange(pack(b"BLPOP", b"nobody", b"0.1"), 1, later(5))
        multiplexer._waiting = deque()
        assert await multiplexer.exchange(pack(b"ECHO", b"mine"), 1, later(5)) == [b"mine"]

    async def test_connection_that_is_interrupted_while_it_closes_disturbs_no_other_call(
        self, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(call: Any, error: Exception) -> None:
            raise InterruptedCheckError

        multiplexer = multiplexer_to(redis_server.port)
        await multiplexer.exchange(PING, 1, later(5))
        payloads = [pack(b"BLPOP", b"nobody", b"0.2"), pack(b"ECHO", b"old")]
        calls = [
            asyncio.ensure_future(multiplexer.exchange(payload, 1, later(5)))
            for payload in payloads
        ]
        await asyncio.sleep(0)
        old = multiplexer._connection
        with monkeypatch.context() as patch:
            patch.setattr(async_connection.PendingCall, "fail", interrupted)
            with pytest.raises(InterruptedCheckError):
                multiplexer._drop(RedisConnectionError("closed"))
        assert await multiplexer.exchange(pack(b"ECHO", b"mine"), 1, later(5)) == [b"mine"]
        assert await asyncio.gather(*calls) == [[None], [b"old"]]
        new = multiplexer._connection
        old._writer.transport.abort()
        await asyncio.sleep(0.05)
        assert await multiplexer.exchange(PING, 1, later(5)) == [b"PONG"]
        assert multiplexer._connection is new

    async def test_connection_that_is_interrupted_while_it_is_made_is_not_used(
        self, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(sock: Any) -> None:
            raise InterruptedCheckError

        multiplexer = multiplexer_to(redis_server.port)
        with monkeypatch.context() as patch:
            patch.setattr(async_connection, "watch", interrupted)
            with pytest.raises(InterruptedCheckError):
                await multiplexer.exchange(PING, 1, later(5))
        assert await multiplexer.exchange(PING, 1, later(5)) == [b"PONG"]

    async def test_connection_is_made_again_when_the_end_of_the_last_attempt_was_interrupted(
        self, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(connecting: Any) -> None:
            raise InterruptedCheckError

        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        multiplexer = multiplexer_to(redis_server.port)
        monkeypatch.setattr(multiplexer, "_connecting_done", interrupted)
        assert await multiplexer.exchange(PING, 1, later(5)) == [b"PONG"]
        multiplexer._drop(RedisConnectionError("closed"))
        assert await multiplexer.exchange(PING, 1, later(5)) == [b"PONG"]

    async def test_reply_is_read_when_the_loop_was_blocked(self, redis_server: RedisServer) -> None:
        multiplexer = multiplexer_to(redis_server.port)
        await multiplexer.exchange(PING, 1, later(5))
        call = asyncio.ensure_future(multiplexer.exchange(PING, 1, later(0.05)))
        await asyncio.sleep(0)
        time.sleep(0.3)  # noqa: ASYNC251
        assert await call == [b"PONG"]
        await asyncio.sleep(0.05)
        assert await multiplexer.exchange(PING, 1, later(5)) == [b"PONG"], "it is not dropped"

    async def test_call_gets_more_time_only_once_when_the_loop_is_late_in_every_round(
        self, redis_server: RedisServer
    ) -> None:
        multiplexer = multiplexer_to(redis_server.port)
        await multiplexer.exchange(PING, 1, later(5))
        slow = multiplexer.exchange(pack(b"BLPOP", b"nobody", b"5"), 1, later(0.05))
        call, rounds = asyncio.ensure_future(slow), 0
        while not call.done() and rounds < 20:
            await asyncio.sleep(0)
            time.sleep(0.1)  # noqa: ASYNC251
            rounds += 1
        assert rounds < 8
        with pytest.raises(RedisTimeoutError):
            await call

    async def test_connection_that_was_closed_meanwhile_is_not_used(
        self, redis_server: RedisServer, redis: Redis
    ) -> None:
        multiplexer = multiplexer_to(redis_server.port)
        (number,) = await multiplexer.exchange(pack(b"CLIENT", b"ID"), 1, later(5))
        redis.client_kill_filter(_id=number)
        # The loop has not run meanwhile, so it has not noticed the end.
        assert await multiplexer.exchange(PING, 1, later(5)) == [b"PONG"]

    async def test_waiting_calls_fail_when_the_connection_ends(
        self, redis_server: RedisServer, redis: Redis
    ) -> None:
        multiplexer = multiplexer_to(redis_server.port)
        (number,) = await multiplexer.exchange(pack(b"CLIENT", b"ID"), 1, later(5))
        waiting = asyncio.ensure_future(
            multiplexer.exchange(pack(b"BLPOP", b"nobody", b"5"), 1, later(5))
        )
        await asyncio.sleep(0.05)
        redis.client_kill_filter(_id=number)
        with pytest.raises(RedisConnectionError):
            await waiting
        assert await multiplexer.exchange(PING, 1, later(5)) == [b"PONG"]

    async def test_unexpected_reply_closes_the_connection(self, redis_server: RedisServer) -> None:
        multiplexer = multiplexer_to(redis_server.port)
        assert await multiplexer.exchange(PING + PING, 1, later(5)) == [b"PONG"]
        await asyncio.sleep(0.05)
        assert multiplexer._connection is None
        assert await multiplexer.exchange(PING, 1, later(5)) == [b"PONG"]

    async def test_connection_is_closed_when_the_server_cannot_answer(
        self, fresh_server: RedisServer
    ) -> None:
        multiplexer = multiplexer_to(fresh_server.port)
        with fresh_server.client() as client:
            client.execute_command("REPLICAOF", HOST, free_port())
        (error,) = await multiplexer.exchange(pack(b"SET", b"k", b"v"), 1, later(5))
        assert is_outage(error)
        assert multiplexer._connection is None

    async def test_calls_wait_for_one_connection_together(self) -> None:
        with listening() as port:
            multiplexer = multiplexer_to(port)
            calls = [multiplexer.exchange(PING, 1, later(0.2)) for _ in range(10)]
            # A call with less time does not wait for the others.
            calls.append(multiplexer.exchange(PING, 1, later(0.05)))
            answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(answer) for answer in answers] == [RedisTimeoutError] * 11

    async def test_call_connects_again_when_another_call_stopped_connecting(
        self, redis_server: RedisServer
    ) -> None:
        with listening() as port:
            multiplexer = multiplexer_to(port, redis_server.port)
            calls = [multiplexer.exchange(PING, 1, later(seconds)) for seconds in (0.05, 600)]
            error, reply = await asyncio.gather(*calls, return_exceptions=True)
        assert type(error) is RedisTimeoutError
        assert reply == [b"PONG"]

    async def test_call_keeps_its_attempts_when_calls_with_less_time_fail(
        self, redis_server: RedisServer
    ) -> None:
        with listening() as one, listening() as two:
            multiplexer = multiplexer_to(one, two, redis_server.port)
            # The first two calls start an attempt each, which ends with their time limit.
            calls = [multiplexer.exchange(PING, 1, later(seconds)) for seconds in (0.05, 0.2, 600)]
            *errors, reply = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in errors] == [RedisTimeoutError] * 2
        assert reply == [b"PONG"]

    async def test_call_does_not_connect_when_its_time_is_up(self) -> None:
        """The attempt would fail at once, and count as another incident."""
        with listening() as port:
            multiplexer = multiplexer_to(port)
            calls = [multiplexer.exchange(PING, 1, later(seconds)) for seconds in (0.2, 0.05)]
            # The loop is blocked until the time limit of the first call has passed.
            asyncio.get_running_loop().call_later(0.1, time.sleep, 0.2)
            errors = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(error) for error in errors} == {RedisTimeoutError}
        assert len({incident_of(error) for error in errors}) == 1

    async def test_calls_connect_again_once_when_connecting_fails(
        self, redis_server: RedisServer, redis: Redis
    ) -> None:
        multiplexer = multiplexer_to(free_port(), redis_server.port)
        calls = [multiplexer.exchange(PING, 1, later(5)) for _ in range(10)]
        assert await asyncio.gather(*calls) == [[b"PONG"]] * 10
        multiplexer = multiplexer_to(free_port(), free_port(), redis_server.port)
        calls = [multiplexer.exchange(PING, 1, later(5)) for _ in range(10)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(error) for error in errors} == {RedisConnectionError}
        assert len({incident_of(error) for error in errors}) == 1

    async def test_write_that_the_system_refuses_is_sent_on_a_new_connection(
        self, redis_server: RedisServer, redis: Redis
    ) -> None:
        multiplexer = multiplexer_to(redis_server.port)
        (number,) = await multiplexer.exchange(pack(b"CLIENT", b"ID"), 1, later(5))
        before = redis.info("stats")["total_connections_received"]
        redis.client_kill_filter(_id=number)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            # Simulate a connection that ends after the last check of the socket.
            multiplexer._watch = watch(ours)
            calls = [multiplexer.exchange(pack(b"INCR", b"sent"), 1, later(5)) for _ in range(10)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
        lost = [answer for answer in answers if isinstance(answer, Exception)]
        # The system accepted the first payload before it knew that the connection had ended.
        assert {type(error) for error in lost} == {RedisConnectionError}
        assert len(lost) < len(answers)
        assert redis.get("sent") == str(len(answers) - len(lost))
        assert redis.info("stats")["total_connections_received"] == before + 1

    async def test_connection_is_not_used_when_the_loop_has_read_its_end(
        self, redis_server: RedisServer, redis: Redis
    ) -> None:
        multiplexer = multiplexer_to(redis_server.port)
        await multiplexer.exchange(PING, 1, later(5))
        blocked = asyncio.ensure_future(
            multiplexer.exchange(pack(b"BLPOP", b"nobody", b"5"), 1, later(5))
        )
        await asyncio.sleep(0.05)
        # The connection has ended, and the reading task has not run yet.
        multiplexer._connection._reader.feed_eof()
        assert await multiplexer.exchange(PING, 1, later(5)) == [b"PONG"]
        with pytest.raises(RedisConnectionError):
            await blocked

    async def test_connection_that_the_loop_is_closing_is_not_used(
        self, redis_server: RedisServer
    ) -> None:
        multiplexer = multiplexer_to(redis_server.port)
        await multiplexer.exchange(PING, 1, later(5))
        # The reading task has not run yet. uvloop raises an error on a write to such a transport.
        multiplexer._connection._writer.transport.abort()
        assert await multiplexer.exchange(PING, 1, later(5)) == [b"PONG"]

    async def test_call_fails_when_every_new_connection_ends_at_once(
        self, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        multiplexer = multiplexer_to(redis_server.port)

        def refused(*arguments: Any) -> bool:
            multiplexer._drop(RedisConnectionError("closed"))
            return False

        monkeypatch.setattr(multiplexer, "_write", refused)
        with pytest.raises(RedisConnectionError, match="closed"):
            await multiplexer.exchange(PING, 1, later(5))

    async def test_lost_connection_is_one_incident_for_all_its_calls(
        self, redis_server: RedisServer, redis: Redis
    ) -> None:
        multiplexer = multiplexer_to(redis_server.port)
        incidents = []
        for _ in range(2):
            (number,) = await multiplexer.exchange(pack(b"CLIENT", b"ID"), 1, later(5))
            calls = [
                asyncio.ensure_future(
                    multiplexer.exchange(pack(b"BLPOP", b"nobody", b"5"), 1, later(5))
                )
                for _ in range(5)
            ]
            await asyncio.sleep(0.05)
            redis.client_kill_filter(_id=number)
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(error) for error in errors} == {RedisConnectionError}
            incidents.append({incident_of(error) for error in errors})
        assert [len(found) for found in incidents] == [1, 1]
        assert incidents[0] != incidents[1]

    async def test_replies_that_come_too_late_are_an_incident_each(
        self, redis_server: RedisServer
    ) -> None:
        multiplexer = multiplexer_to(redis_server.port, limit=5)
        await multiplexer.exchange(PING, 1, later(5))
        connection, incidents = multiplexer._connection, set()
        slow = pack(b"BLPOP", b"nobody", b"0.2")
        for _ in range(3):
            calls = [multiplexer.exchange(slow, 1, later(0.05)) for _ in range(2)]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(error) for error in errors} == {RedisTimeoutError}
            (incident,) = {incident_of(error) for error in errors}
            incidents.add(incident)
            assert await multiplexer.exchange(PING, 1, later(5)) == [b"PONG"]
        assert len(incidents) == 3
        assert multiplexer._connection is connection, "it is not closed, only slow"

    async def test_calls_that_wait_for_the_same_connection_fail_as_one_incident(self) -> None:
        with listening() as port:
            multiplexer = multiplexer_to(port)
            # Long enough for a busy machine to start all calls before the first one ends.
            first = multiplexer.exchange(PING, 1, later(1.5))
            calls = [multiplexer.exchange(PING, 1, later(0.2 * i)) for i in range(1, 6)]
            errors = await asyncio.gather(first, *calls, return_exceptions=True)
        assert {type(error) for error in errors} == {RedisTimeoutError}
        assert len({incident_of(error) for error in errors}) == 1

    async def test_cancelled_calls_on_a_stalled_connection_do_not_close_it(
        self, fresh_server: RedisServer
    ) -> None:
        multiplexer = multiplexer_to(fresh_server.port)
        await multiplexer.exchange(PING, 1, later(5))
        before = connections_made(fresh_server)
        fresh_server.freeze()
        # More bytes than the system's buffers hold.
        large = pack(b"ECHO", bytes(1_000_000))
        calls = [
            asyncio.ensure_future(multiplexer.exchange(large, 1, later(600))) for _ in range(40)
        ]
        await asyncio.sleep(0.2)
        for call in calls[::2]:
            call.cancel()
            await asyncio.sleep(0)
        fresh_server.thaw()
        kept = await asyncio.gather(*calls[1::2])
        assert {len(reply) for (reply,) in kept} == {1_000_000}
        # The additional connection is that of `connections_made` itself.
        assert connections_made(fresh_server) == before + 1

    async def test_stalled_connection_is_closed_when_all_its_calls_are_cancelled(
        self, fresh_server: RedisServer
    ) -> None:
        multiplexer = multiplexer_to(fresh_server.port)
        await multiplexer.exchange(PING, 1, later(5))
        fresh_server.freeze()
        call = asyncio.ensure_future(multiplexer.exchange(PING, 1, later(0.1)))
        await asyncio.sleep(0)
        call.cancel()
        deadline = later(SOON)
        while multiplexer._connection is not None:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        fresh_server.thaw()
        assert await multiplexer.exchange(PING, 1, later(5)) == [b"PONG"]

    def test_loop_closes_its_connection(self, redis_server: RedisServer, redis: Redis) -> None:
        async def use() -> int:
            multiplexer = multiplexer_to(redis_server.port)
            (number,) = await multiplexer.exchange(pack(b"CLIENT", b"ID"), 1, later(5))
            return int(number)

        number = asyncio.run(use())
        wait_until(
            lambda: str(number) not in {each["id"] for each in redis.client_list()},
            "the connection is closed",
        )

    def test_loop_that_ends_while_connecting_leaves_nothing_open(self) -> None:
        async def use() -> None:
            multiplexer = multiplexer_to(port)
            asyncio.ensure_future(multiplexer.exchange(PING, 1, math.inf))  # noqa: RUF006
            await asyncio.sleep(0.05)

        with listening() as port:
            asyncio.run(use())

    async def test_ask_once_uses_a_new_connection(self, redis_server: RedisServer) -> None:
        connection_settings = settings_for(redis_server.port)
        assert await aask_once(connection_settings, PING, later(5)) == b"PONG"
        assert isinstance(
            await aask_once(connection_settings, pack(b"NONSENSE"), math.inf), ResponseError
        )
        with listening() as port, pytest.raises(RedisTimeoutError):
            await aask_once(settings_for(port), PING, later(0.05))


class TestStore:
    def test_error_of_a_scan_is_a_store_error(self, redis: Redis) -> None:
        with pytest.raises(StoreError, match="invalid cursor"):
            RedisStore("default").scan("nonsense", "*", 10)

    def test_store_that_was_never_used_can_be_closed(self, redis_server: RedisServer) -> None:
        store = RedisStore("default")
        store.close()
        assert store.run(Reset(("k",))) == [0]
        store.close()


class TestServer:
    def test_each_event_loop_has_its_connection(self, redis_server: RedisServer) -> None:
        server = Server(settings_for(redis_server.port))

        async def use() -> int:
            (number,) = await server.aexchange(pack(b"CLIENT", b"ID"), 1, later(5))
            assert await server.aexchange(pack(b"CLIENT", b"ID"), 1, later(5)) == [number]
            return int(number)

        assert len({asyncio.run(use()) for _ in range(3)}) == 3
        assert not server._multiplexers

    def test_loop_is_forgotten_when_it_was_closed_without_shutdown(
        self, redis_server: RedisServer
    ) -> None:
        server = Server(settings_for(redis_server.port))
        loop = asyncio.new_event_loop()
        multiplexer = None

        async def use() -> None:
            nonlocal multiplexer
            multiplexer = server._multiplexer()

        loop.run_until_complete(use())
        loop.close()
        assert loop in server._multiplexers
        asyncio.run(use())
        assert loop not in server._multiplexers

    async def test_loop_may_end_in_another_thread_while_this_one_connects(
        self, redis_server: RedisServer
    ) -> None:
        server = Server(settings_for(redis_server.port))

        class Ending:
            """A loop that ends while another thread asks whether it has ended."""

            def is_closed(self) -> bool:
                loops.pop(self, None)
                return True

        loops: dict[Any, Any] = server._multiplexers  # type: ignore[assignment]
        loops |= {Ending(): None, Ending(): None}
        assert await server.aexchange(PING, 1, later(5)) == [b"PONG"]
        assert list(loops) == [asyncio.get_running_loop()]

    def test_forked_child_starts_afresh(
        self, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Call the hook of a fork in this process. test_fork makes a real fork."""
        server = Server(settings_for(redis_server.port))
        monkeypatch.setattr(servers, "_servers", {server})
        server.exchange(PING, 1, later(5))

        async def use() -> None:
            await server.aexchange(PING, 1, later(5))
            parents = server._multiplexers
            servers._start_afresh()
            assert not server._multiplexers
            assert await server.aexchange(PING, 1, later(5)) == [b"PONG"]
            for multiplexer in parents.values():
                multiplexer._drop(RedisConnectionError("the parent's own"))
            await asyncio.sleep(0)

        asyncio.run(use())
        assert made(server._connections) == 0
        assert server.exchange(PING, 1, later(5)) == [b"PONG"]


class TestErrors:
    @pytest.mark.parametrize(
        "error",
        [
            RedisConnectionError("gone"),
            RedisTimeoutError("slow"),
            OSError("gone"),
            NoPermissionError("no"),
            ResponseError("BUSY Redis is busy running a script."),
            ResponseError("MISCONF Redis is configured to save RDB snapshots"),
            ResponseError("Error running script: @user_script: -OOM command not allowed"),
            ResponseError("NOREPLICAS Not enough good replicas to write."),
        ],
        ids=str,
    )
    def test_errors_that_affect_every_call_are_an_outage(self, error: Exception) -> None:
        assert store_error(error).outage

    @pytest.mark.parametrize(
        "error",
        [
            ResponseError("WRONGTYPE Operation against a key"),
            ResponseError("BUSYKEY Target key name already exists."),
            ResponseError("unknown command"),
        ],
        ids=str,
    )
    def test_errors_of_one_call_are_not_an_outage(self, error: Exception) -> None:
        assert not store_error(error).outage


def test_data_is_seen_when_the_system_has_no_poll() -> None:
    here, there = socket.socketpair()
    with here, there:
        watched = Select()
        watched.register(here, 1)
        assert not watched.poll(0)
        there.send(b"x")
        assert watched.poll(0)


def test_gevent_is_not_asked_for_poll_when_the_system_lacks_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gevent.monkey", object())  # type: ignore[arg-type]
    monkeypatch.delattr(select, "poll")
    here, there = socket.socketpair()
    with here, there:
        assert isinstance(watch(here), Select)


def test_poll_does_not_wait_when_gevent_has_replaced_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system's own poll is used: gevent's would switch to other greenlets."""

    class Monkey:
        @staticmethod
        def get_original(module: str, name: str) -> Any:
            assert (module, name) == ("select", "poll")
            return Select

    monkeypatch.setitem(sys.modules, "gevent.monkey", Monkey)  # type: ignore[arg-type]
    here, there = socket.socketpair()
    with here, there:
        watched = watch(here)
        assert isinstance(watched, Select)
        assert not watched.poll(0)
        there.send(b"x")
        assert watched.poll(0)
