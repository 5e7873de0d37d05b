"""How connections to a server are made: as the alias says, within a time limit, without retries.

redis-py makes, authenticates and parses each connection, so all that an alias can
say (TLS, ACL, unix socket, Sentinel) holds.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
from time import monotonic
from typing import Any, NamedTuple

from redis.backoff import NoBackoff
from redis.connection import (
    AbstractConnection,
    Connection,
    ConnectionPool,
    DefaultParser,
    SSLConnection,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse
from redis.retry import Retry
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection
from redis.utils import HIREDIS_AVAILABLE

from .watching import watch

# What an alias may say of a connection, sync and async alike. The rest of what a
# pool hands to its connections is the pool's own business.
_COMMON = frozenset(
    "host port db path username password credential_provider client_name"
    " socket_keepalive socket_keepalive_options socket_type".split()
)
_SYNC = ("parser_class", "redis_connect_func")
# Seconds that a call gets once more when its time is up: this process may have been held up
# (by other threads, or by other greenlets), and not the server.
_GRACE = 0.02
# Seconds by which a read may end too late, so that the time-out need not be set again each time.
_SLACK = 0.001
# Bytes that are read at once: the reply to a check is shorter.
_CHUNK = 512
# Bytes that always find room in the buffers of a connection on which nothing is under way.
SHORT = 4_096
_INCOMPLETE = object()


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """A server, and what its connections are made of."""

    connection_class: type
    options: Mapping[str, Any]
    limit: float
    """Seconds that a call may take; infinite for no limit."""
    most: int
    """Connections at once."""

    @classmethod
    def of(cls, pool: ConnectionPool, budget: float | None) -> ConnectionSettings:
        """Return the settings of a pool, with the budget if its own time-out is longer."""
        options = pool.connection_kwargs
        limits = [options.get("socket_timeout"), budget]
        return cls(
            pool.connection_class,
            options,
            min((limit for limit in limits if limit is not None), default=math.inf),
            pool.max_connections,
        )

    def at(self, host: str, port: int) -> ConnectionSettings:
        """Return the same settings for another server."""
        return replace(self, options={**self.options, "host": host, "port": port})

    def deadline(self, within: float | None = None) -> float:
        """Return when a call that starts now has to end; `within` seconds if that is sooner."""
        return time.monotonic() + (self.limit if within is None else min(within, self.limit))

    def sync(self) -> Any:
        """Return a connection that is yet to be connected, and has a `deadline` to be set.

        A script that is sent again may have run before: there are no retries.
        """
        names = {*_SYNC, *_own_options(self.connection_class)}
        options = {name: self.options[name] for name in names if name in self.options}
        bounded = _bounded(self.connection_class)
        if issubclass(bounded, SentinelManagedConnection):
            options["connection_pool"] = _Primary((self.options["host"], self.options["port"]))
        return bounded(**{**self.common(), **options}, protocol=2, retry=Retry(NoBackoff(), 0))

    def common(self) -> dict[str, Any]:
        """Return the options that sync and async connections share."""
        return {
            name: value
            for name, value in self.options.items()
            if name in _COMMON or name.startswith("ssl_")
        }


def seconds_left(deadline: float) -> float | None:
    """Return the seconds until a deadline; None for no limit, as asyncio and sockets write it."""
    return None if deadline == math.inf else deadline - time.monotonic()


@cache
def _own_options(connection_class: type) -> frozenset[str]:
    """Return the options of a project's own class that redis-py's do not have."""
    own = [base for base in connection_class.__mro__ if not base.__module__.startswith("redis.")]
    names = {name for base in own for name in signature(base.__init__).parameters}  # type: ignore[misc]
    return frozenset(names - set(signature(AbstractConnection.__init__).parameters))


class Deadline:
    """What is left of a call's time: a mixin for redis-py's connections.

    redis-py's time-outs hold for each step of connecting and for each read; this
    one holds for all of them together, however the bytes drip and whatever signals come.
    """

    deadline = -math.inf
    """By the monotonic clock; set for each call. Infinite for no limit."""
    watch: Any
    """Says whether there is something to read."""
    raw: socket.socket
    descriptor: int | None
    """The socket as the system knows it, if that can be written to: not with TLS.

    Python's own `send` asks for room first, by another call of the system.
    """
    reader: Any
    """Of hiredis; None where redis-py reads by itself."""
    _timeout = math.nan
    """The socket's own time-out, if `bound` has set one."""
    _extended: float | None = None
    """The deadline of a call that was late once."""

    def left(self) -> float | None:
        """Return the seconds that the next step may take; raise TimeoutError if time is up.

        A call whose time is up gets `_GRACE` seconds once, for a reply that has come
        while this process was held up.
        """
        deadline = self.deadline
        if deadline == math.inf:
            return None
        now = time.monotonic()
        if now < deadline:
            return deadline - now
        if deadline == self._extended:
            raise TimeoutError("time is up")
        self.deadline = self._extended = now + _GRACE
        return _GRACE

    def bound(self) -> None:
        """Let the socket's next call end by the deadline, or `_SLACK` seconds later."""
        left = self.left()
        if left is None or not -_SLACK < self._timeout - left < _SLACK:
            self.raw.settimeout(left)
            self._timeout = math.nan if left is None else left

    def _ignore(self, value: float | None) -> None:
        """Ignore the time-outs that redis-py sets: the deadline takes their place."""

    socket_timeout = property(left, _ignore)
    socket_connect_timeout = property(left, _ignore)

    def _connect(self) -> Any:
        self.raw = super()._connect()  # type: ignore[misc]
        self._timeout = math.nan
        self.watch = watch(self.raw)
        is_plain = os.name == "posix" and type(self.raw) is socket.socket
        self.descriptor = self.raw.fileno() if is_plain else None
        self.reader = _reader_like(self._parser)  # type: ignore[attr-defined]
        return _Socket(self)

    def send(self, payload: bytes) -> None:
        """Send a payload by the deadline, without redis-py's health checks."""
        sent = 0
        while sent < len(payload):
            self.bound()
            sent += self.raw.send(payload[sent:])

    def receive(self, replies: int) -> list[Any]:
        """Read this number of replies by the deadline. A server's error is returned, not raised."""
        reader, deadline = self.reader, self.deadline
        if reader is None:
            read = self._parser.read_response  # type: ignore[attr-defined]
            return [read() for _ in range(replies)]
        # In place what `bound` finds out, and what `_receive` does with most replies.
        if not -_SLACK < self._timeout - deadline + monotonic() < _SLACK:
            self.bound()
        data = self.raw.recv(_CHUNK)
        reader.feed(data)
        answer = reader.gets()
        if replies == 1 and type(answer) is bytes:
            return [answer]
        return self._receive(replies, data, answer)

    def _receive(self, replies: int, data: bytes, answer: Any) -> list[Any]:
        """Go on after the first bytes, and the answer that they contain."""
        answers = []
        while True:
            while answer is _INCOMPLETE:
                if not data:
                    raise RedisConnectionError("the server closed the connection")
                self.bound()
                data = self.raw.recv(_CHUNK)
                self.reader.feed(data)
                answer = self.reader.gets()
            if isinstance(answer, RedisConnectionError):
                # As redis-py has it: a server that takes no commands is no connection.
                raise answer
            answers.append(answer)
            if len(answers) == replies:
                return answers
            answer = self.reader.gets()


class _Socket:
    """The socket as redis-py uses it: each call ends by the connection's deadline."""

    def __init__(self, connection: Deadline) -> None:
        self._connection = connection

    def sendall(self, payload: bytes) -> None:
        self._connection.send(payload)

    def recv(self, *arguments: Any) -> bytes:
        raw = self._connection.raw
        self._connection.bound()
        return raw.recv(*arguments)

    def recv_into(self, *arguments: Any) -> int:
        raw = self._connection.raw
        self._connection.bound()
        return raw.recv_into(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection.raw, name)


def _reader_like(parser: Any) -> Any:
    """Return a reader like that of redis-py's parser; None if that is not the one by hiredis."""
    if not (HIREDIS_AVAILABLE and isinstance(parser, DefaultParser)):
        return None
    import hiredis

    return hiredis.Reader(
        protocolError=InvalidResponse, replyError=parser.parse_error, notEnoughData=_INCOMPLETE
    )


class _Primary(NamedTuple):
    """A pool of Sentinel that knows the primary, for a project's own class of its connections.

    Sentinels are asked before a connection is made, within the same limit.
    """

    address: tuple[str, int]
    service_name: str = "primary"
    is_master: bool = True
    check_connection: bool = False

    def get_master_address(self) -> tuple[str, int]:
        return self.address


@cache
def _bounded(connection_class: type) -> Any:
    # Without what asks sentinels, as above.
    plain: dict[type, type] = {
        SentinelManagedConnection: Connection,
        SentinelManagedSSLConnection: SSLConnection,
    }
    connection_class = plain.get(connection_class, connection_class)
    return type(f"Bounded{connection_class.__name__}", (Deadline, connection_class), {})
