"""How connections to a server are made: as the alias says, within a time limit, without retries.

redis-py makes, authenticates and parses each connection, so all that an alias can
say (TLS, ACL, unix socket, Sentinel) holds.
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
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
from redis.exceptions import TimeoutError as RedisTimeoutError
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
# When time is up, this process may have been held up (by other threads), and not the
# server: so many more steps get so many seconds each.
_GRACE, _LATE_STEPS = 0.02, 20
# The kernel's own time-outs are portable, but what they are set by is not.
_KERNEL_KEEPS_TIME = sys.platform == "linux" and sys.maxsize > 2**32
# By how much a socket's time-out exceeds what is left of a call's time when it is set, so
# that it need not be set for the next call, and by how much at most.
_SLACK, CLOSE_ENOUGH = 1.02, 1.05
# What is read at once: the replies of most checks are shorter.
CHUNK = 4_096
_INCOMPLETE = object()


@dataclass(frozen=True, slots=True)
class Link:
    """A server, and what its connections are made of."""

    connection_class: type
    options: Mapping[str, Any]
    limit: float | None
    """Seconds that a call may take; None for no limit."""
    most: int
    """Connections at once."""

    @classmethod
    def of(cls, pool: ConnectionPool, budget: float | None) -> Link:
        """Such connections as the pool makes, within the budget if its own time-out is longer."""
        options = pool.connection_kwargs
        limits = [options.get("socket_timeout"), budget]
        return cls(
            pool.connection_class,
            options,
            min((limit for limit in limits if limit is not None), default=None),
            pool.max_connections,
        )

    def at(self, host: str, port: int) -> Link:
        """The same for another server."""
        return replace(self, options={**self.options, "host": host, "port": port})

    def deadline(self, within: float | None = None) -> float | None:
        """When a call that starts now has to end; `within` seconds if that is sooner."""
        limit = self.limit
        if within is not None and (limit is None or within < limit):
            limit = within
        return None if limit is None else time.monotonic() + limit

    def sync(self) -> Any:
        """A connection that is yet to be connected, and has a `deadline` to be set.

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


@cache
def _own_options(connection_class: type) -> frozenset[str]:
    """The options of a project's own class that redis-py's do not have."""
    own = [base for base in connection_class.__mro__ if not base.__module__.startswith("redis.")]
    names = {name for base in own for name in signature(base.__init__).parameters}  # type: ignore[misc]
    return frozenset(names - set(signature(AbstractConnection.__init__).parameters))


class Deadline:
    """What is left of a call's time: a mixin for redis-py's connections.

    redis-py's time-outs hold for each step of connecting and for each read; this
    one holds for all of them together, however the bytes drip.
    """

    deadline: float | None = None
    """By the monotonic clock; set for each call."""
    watch: Any
    """Says whether there is something to read."""
    socket: _Socket
    reader: Any
    """Of hiredis; None where redis-py reads by itself."""

    def _left(self) -> float | None:
        if self.deadline is None:
            return None
        return max(self.deadline - time.monotonic(), _GRACE)

    def _ignore(self, value: float | None) -> None:
        """redis-py sets its time-outs; the deadline takes their place."""

    socket_timeout = property(_left, _ignore)
    socket_connect_timeout = property(_left, _ignore)

    def _connect(self) -> Any:
        raw = super()._connect()  # type: ignore[misc]
        self.watch = watch(raw)
        self.reader = _reader_like(self._parser)  # type: ignore[attr-defined]
        self.socket = _Socket(raw, self)
        return self.socket

    def exchange(self, payload: bytes, replies: int) -> list[Any]:
        """Sends once and reads the replies; a server's error is returned, not raised.

        Without what redis-py does around it: health checks, and three calls for each read.
        """
        self.socket.sendall(payload)
        return self.receive(replies)

    def receive(self, replies: int) -> list[Any]:
        reader = self.reader
        if reader is None:
            read = self._parser.read_response  # type: ignore[attr-defined]
            return [read() for _ in range(replies)]
        try:
            return [self.settle(reader.gets()) for _ in range(replies)]
        except (BlockingIOError, TimeoutError):
            raise RedisTimeoutError("timed out") from None

    def settle(self, answer: Any) -> Any:
        """A reply, of which the reader said `answer`: it may not have come whole yet."""
        while answer is _INCOMPLETE:
            self.socket.hurry()
            data = self.socket.raw.recv(CHUNK)
            if not data:
                raise RedisConnectionError("the server closed the connection")
            self.reader.feed(data)
            answer = self.reader.gets()
        if isinstance(answer, RedisConnectionError):
            # As redis-py has it: a server that takes no commands is no connection.
            raise answer
        return answer


class _Socket:
    """A connected socket that is read until its connection's deadline.

    Where it can, the kernel keeps the time: Python would ask it before each call
    whether the socket is ready, which are two more calls a check.
    """

    def __init__(self, raw: socket.socket, connection: Deadline) -> None:
        self.raw = raw
        self._connection = connection
        self._by_kernel = _KERNEL_KEEPS_TIME and not isinstance(raw, ssl.SSLSocket)
        if self._by_kernel:
            raw.settimeout(None)
        self.set_to = 0.0
        self._late_for, self._late_steps = 0.0, 0

    def sendall(self, payload: bytes) -> None:
        self.hurry()
        try:
            self.raw.sendall(payload)
        except BlockingIOError:
            raise TimeoutError("timed out") from None

    def recv(self, *arguments: Any) -> bytes:
        self.hurry()
        try:
            return self.raw.recv(*arguments)
        except BlockingIOError:
            raise TimeoutError("timed out") from None

    def recv_into(self, *arguments: Any) -> int:
        self.hurry()
        try:
            return self.raw.recv_into(*arguments)
        except BlockingIOError:
            raise TimeoutError("timed out") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def hurry(self) -> None:
        """Lets the next calls take no longer than is left of the time."""
        deadline = self._connection.deadline
        if deadline is None:
            if self.set_to:
                self._limit(0.0)
            return
        left = deadline - time.monotonic()
        if left < _GRACE:
            self._late_steps = self._late_steps + 1 if self._late_for == deadline else 1
            self._late_for = deadline
            if self._late_steps > _LATE_STEPS:
                raise TimeoutError("time is up")
            left = _GRACE
        # Setting it is a call of the system: what is set may be a little more than is left.
        if not left <= self.set_to <= left * CLOSE_ENOUGH:
            self._limit(left * _SLACK)

    def _limit(self, seconds: float) -> None:
        """Sets the time-out of the next calls; 0.0 for none."""
        self.set_to = seconds
        if self._by_kernel:
            whole, part = divmod(seconds, 1)
            value = struct.pack("ll", int(whole), int(part * 1_000_000))
            self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
        else:
            self.raw.settimeout(seconds or None)


def _reader_like(parser: Any) -> Any:
    """What reads replies as redis-py's parser does; None if that is not the one by hiredis."""
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
