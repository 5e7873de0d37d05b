"""A channel ends every step by the deadline, and reads replies as redis-py does."""

from __future__ import annotations

import math
import socket
import time
from typing import Any

import pytest
from redis._parsers import _HiredisParser, _RESP2Parser
from redis.connection import ConnectionPool
from redis.exceptions import AuthenticationError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from django_slidingwindow.stores.commands import pack
from django_slidingwindow.stores.net.channel import BoundedSocket
from django_slidingwindow.stores.net.settings import ConnectionSettings
from tests.support.redis_failures import listening
from tests.support.servers.redis import HOST, RedisServer, wait_until

PING = pack(b"PING")
RESET = pack(b"RESET")
# Much longer than a call takes.
SOON = 5.0


def later(seconds: float) -> float:
    return time.monotonic() + seconds


def connection_to(port: int, **options: Any) -> Any:
    pool = ConnectionPool.from_url(f"redis://{HOST}:{port}/0", **options)
    return ConnectionSettings.of(pool, None).sync(later(SOON))


class TestDeadline:
    def test_call_gets_a_grace_once_when_its_time_is_up(self) -> None:
        channel = connection_to(1).channel
        for _ in range(2):
            # A new deadline means a new call.
            channel.deadline = later(-1)
            left = channel.left()
            assert left is not None
            assert 0 < left < 0.1
            wait_until(lambda: channel.deadline < time.monotonic(), "the grace has ended")
            with pytest.raises(TimeoutError, match="time is up"):
                channel.left()

    @pytest.mark.parametrize("pause", [0.0005, 0.015])
    def test_reply_that_drips_ends_with_the_budget_and_one_grace(self, pause: float) -> None:
        """Regression test: twenty waits of 0.02 s after the deadline would take 0.9 s."""
        with listening(drip=b"$1000000\r\n" + b"x" * 100_000, pause=pause) as port:
            connection = connection_to(port)
            channel = connection.channel
            # Without the commands that redis-py sends first, so that only the reply is slow.
            connection._sock = connection._connect()
            seconds = []
            for _ in range(3):
                start = time.monotonic()
                channel.deadline = later(0.4)
                with pytest.raises(TimeoutError):
                    channel.receive(1)
                seconds.append(time.monotonic() - start)
            connection.disconnect()
        assert 0.4 <= min(seconds) < 0.8

    def test_reply_that_has_come_is_read_though_time_is_up(self, redis_server: RedisServer) -> None:
        connection = connection_to(redis_server.port)
        channel = connection.channel
        connection.connect()
        connection.send_command("PING")
        wait_until(lambda: bool(channel.watch.poll(0)), "the reply has come")
        channel.deadline = later(-1)
        assert connection.read_response() == b"PONG"
        with pytest.raises(RedisTimeoutError):
            connection.read_response()

    def test_socket_is_used_in_all_ways_that_redis_py_does(self) -> None:
        ours, theirs = socket.socketpair()
        channel = connection_to(1).channel
        channel.raw = ours
        with ours, theirs:
            wrapped = BoundedSocket(channel)
            for deadline in (math.inf, later(1000), math.inf):
                channel.deadline = deadline
                theirs.sendall(b"onetwo")
                assert wrapped.recv(3) == b"one"
                buffer = bytearray(3)
                assert wrapped.recv_into(buffer) == 3
                assert buffer == b"two"
                wrapped.sendall(b"three")
                assert theirs.recv(5) == b"three"
            for call, argument in (
                (wrapped.recv, 1),
                (wrapped.recv_into, bytearray(1)),
                (wrapped.sendall, bytes(10_000_000)),
            ):
                channel.deadline = later(0.01)
                with pytest.raises(TimeoutError):
                    call(argument)
            assert wrapped.fileno() == ours.fileno()


class TestReceive:
    @pytest.mark.parametrize("parser", [_HiredisParser, _RESP2Parser])
    def test_replies_are_read_by_the_parser_that_the_alias_names(
        self, redis_server: RedisServer, parser: type
    ) -> None:
        connection = connection_to(redis_server.port, parser_class=parser)
        channel = connection.channel
        connection.connect()
        assert (channel.reader is None) == (parser is _RESP2Parser)
        # A reply that is longer than one read, several replies together, and an error.
        long = bytes(range(256)) * 100
        channel.send(pack(b"ECHO", long) + pack(b"NONSENSE") + PING)
        echo, error, pong = channel.receive(3)
        assert (echo, pong) == (long, b"PONG")
        assert isinstance(error, ResponseError)
        connection.disconnect()

    @pytest.mark.parametrize("parser", [_HiredisParser, _RESP2Parser])
    def test_server_that_takes_no_commands_is_an_error_of_the_connection(
        self, parser: type
    ) -> None:
        with RedisServer(password="right") as server:
            connection = connection_to(server.port, parser_class=parser, password="right")
            channel = connection.channel
            connection.connect()
            channel.send(RESET)
            assert channel.receive(1) == [b"RESET"]  # logs out
            channel.send(PING)
            with pytest.raises(AuthenticationError):
                channel.receive(1)
            connection.disconnect()

    def test_server_that_hangs_up_is_an_error_of_the_connection(
        self, redis_server: RedisServer
    ) -> None:
        connection = connection_to(redis_server.port)
        channel = connection.channel
        connection.connect()
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.sendall(b"+PO")
            theirs.shutdown(socket.SHUT_WR)
            channel.raw.close()
            channel.raw = ours
            with pytest.raises(RedisConnectionError, match="closed"):
                channel.receive(1)
        connection.disconnect()
