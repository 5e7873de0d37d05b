"""How connections to a server are made: as the alias says, within a time limit, without retries.

redis-py makes, authenticates and parses each connection, so all that an alias can
say (TLS, ACL, unix socket, Sentinel) holds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
from typing import Any, NamedTuple

from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection
from redis.retry import Retry
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from .channel import BoundedSocket, Channel

# What an alias may say of a connection, sync and async alike. The rest of what a
# pool hands to its connections is the pool's own business.
_COMMON = frozenset(
    "host port db path username password credential_provider client_name"
    " socket_keepalive socket_keepalive_options socket_type".split()
)
_SYNC = ("parser_class", "redis_connect_func")


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

    def sync(self, deadline: float) -> Any:
        """Return a connection of redis-py's that is yet to be connected, with its `channel`.

        A script that is sent again may have run before: there are no retries.
        """
        names = {*_SYNC, *_own_options(self.connection_class)}
        options = {name: self.options[name] for name in names if name in self.options}
        bounded = _bounded(self.connection_class)
        if issubclass(bounded, SentinelManagedConnection):
            options["connection_pool"] = _Primary((self.options["host"], self.options["port"]))
        options = {**self.common(), **options}
        connection = bounded(**options, protocol=2, retry=Retry(NoBackoff(), 0))
        connection.channel = Channel(deadline)
        return connection

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


class _Bounded:
    """A mixin for redis-py's connections: each of their steps ends by the channel's deadline."""

    channel: Channel

    def _left(self) -> float | None:
        return self.channel.left()

    def _ignore(self, value: float | None) -> None:
        """Ignore the time-outs that redis-py sets: the deadline takes their place."""

    socket_timeout = property(_left, _ignore)
    socket_connect_timeout = property(_left, _ignore)

    def _connect(self) -> Any:
        self.channel.open(super()._connect(), self._parser)  # type: ignore[misc,attr-defined]
        return BoundedSocket(self.channel)


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
    return type(f"Bounded{connection_class.__name__}", (_Bounded, connection_class), {})
