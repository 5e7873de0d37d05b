"""Connection settings: the options of an alias, with a time limit and without retries.

redis-py makes and authenticates each connection, so every option of an alias works: TLS, ACL,
unix sockets, Sentinel.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
from typing import Any, NamedTuple

from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection
from redis.retry import Retry
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from ..errors import connecting
from .channel import BoundedSocket, Channel

# Options that sync and async connections share. A pool has more options, but they do not belong to
# its connections.
_COMMON = frozenset(
    "host port db path username password credential_provider client_name"
    " socket_keepalive socket_keepalive_options socket_type".split()
)
_SYNC_ONLY = ("parser_class", "redis_connect_func")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """A server, and the class and options of its connections."""

    connection_class: type
    options: Mapping[str, Any]
    limit: float
    """Seconds that a call may take; infinite for no limit."""
    most: int
    """The largest number of connections at the same time."""

    @classmethod
    def of(cls, pool: ConnectionPool, budget: float | None) -> ConnectionSettings:
        """Return the settings of a pool. The limit is its time-out or the budget, if shorter."""
        options = pool.connection_kwargs
        limits = [options.get("socket_timeout"), budget]
        return cls(
            pool.connection_class,
            options,
            min((limit for limit in limits if limit is not None), default=math.inf),
            pool.max_connections,
        )

    def at(self, host: str, port: int) -> ConnectionSettings:
        """Return the same settings for a server at another address."""
        return replace(self, options={**self.options, "host": host, "port": port})

    def deadline(self, within: float | None = None) -> float:
        """Return when a call that starts now must end: after `limit` or `within`, if shorter."""
        return time.monotonic() + (self.limit if within is None else min(within, self.limit))

    def sync(self, deadline: float) -> Any:
        """Return a connection of redis-py, not connected yet, with a `channel`.

        It makes no retries, because a script that is sent again may have run before.
        """
        names = {*_SYNC_ONLY, *_own_options(self.connection_class)}
        options = {name: self.options[name] for name in names if name in self.options}
        bounded = _bounded(self.connection_class)
        if issubclass(bounded, SentinelManagedConnection):
            address = self.options["host"], self.options["port"]
            options["connection_pool"] = _PrimaryPool(address)
        options = {**self.common(), **options}
        if options.get("redis_connect_func"):
            options["redis_connect_func"] = _outage_if_it_fails(options["redis_connect_func"])
        connection = bounded(**options, protocol=2, retry=Retry(NoBackoff(), 0))
        connection.channel = Channel(deadline)
        return connection

    def common(self) -> dict[str, Any]:
        """Return the options of the alias that sync and async connections share."""
        found = {
            name: value
            for name, value in self.options.items()
            if name in _COMMON or name.startswith("ssl_")
        }
        if found.get("credential_provider"):
            found["credential_provider"] = _Credentials(found["credential_provider"])
        return found


def seconds_left(deadline: float) -> float | None:
    """Return the seconds until a deadline; None for no limit, as asyncio and sockets expect."""
    return None if deadline == math.inf else deadline - time.monotonic()


class _Credentials:
    """A credential provider of the project. It may raise any exception, which is an outage."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def get_credentials(self) -> Any:
        with connecting(Exception):
            return self._provider.get_credentials()

    async def get_credentials_async(self) -> Any:
        with connecting(Exception):
            return await self._provider.get_credentials_async()


def _outage_if_it_fails(connect: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a `redis_connect_func` of the project whose exceptions are outages."""

    def call(connection: Any) -> None:
        with connecting(Exception):
            connect(connection)

    return call


@cache
def _own_options(connection_class: type) -> frozenset[str]:
    """Return the options of a project's own connection class that redis-py's classes lack."""
    own = [base for base in connection_class.__mro__ if not base.__module__.startswith("redis.")]
    names = {name for base in own for name in signature(base.__init__).parameters}  # type: ignore[misc]
    return frozenset(names - set(signature(AbstractConnection.__init__).parameters))


class _Bounded:
    """A mixin for redis-py's connections: every step ends by the channel's deadline."""

    channel: Channel

    def _left(self) -> float | None:
        return self.channel.left()

    def _ignore(self, value: float | None) -> None:
        """Ignore the time-outs that redis-py sets: the deadline replaces them."""

    socket_timeout = property(_left, _ignore)
    socket_connect_timeout = property(_left, _ignore)

    def _connect(self) -> Any:
        self.channel.open(super()._connect(), self._parser)  # type: ignore[misc,attr-defined]
        return BoundedSocket(self.channel)


class _PrimaryPool(NamedTuple):
    """Stands in for a Sentinel pool, for a project's own class of Sentinel connections.

    Such a connection asks its pool for the primary. `Sentinels` has found the primary already,
    within the time limit of the call.
    """

    address: tuple[str, int]
    service_name: str = "primary"
    is_master: bool = True
    check_connection: bool = False

    def get_master_address(self) -> tuple[str, int]:
        return self.address


@cache
def _bounded(connection_class: type) -> Any:
    # redis-py's Sentinel connections would ask the sentinels again.
    plain: dict[type, type] = {
        SentinelManagedConnection: Connection,
        SentinelManagedSSLConnection: SSLConnection,
    }
    connection_class = plain.get(connection_class, connection_class)
    return type(f"Bounded{connection_class.__name__}", (_Bounded, connection_class), {})
