"""Async connections with the options of an alias, if redis-py has an async class for them."""

from __future__ import annotations

from functools import cache
from inspect import signature
from typing import Any

from redis.asyncio import connection as aio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from .settings import ConnectionSettings

# redis-py's connection classes and their async counterparts. A project's own class has none.
_ASYNC_CLASSES: dict[type, Any] = {
    Connection: aio.Connection,
    SSLConnection: aio.SSLConnection,
    UnixDomainSocketConnection: aio.UnixDomainSocketConnection,
    SentinelManagedConnection: aio.Connection,
    SentinelManagedSSLConnection: aio.SSLConnection,
}


def only_sync(settings: ConnectionSettings) -> str | None:
    """Return an option of the alias that async connections lack; None if there is none."""
    if settings.connection_class not in _ASYNC_CLASSES:
        return "connection_class"
    if settings.options.get("redis_connect_func"):
        return "redis_connect_func"
    known = _parameters(_ASYNC_CLASSES[settings.connection_class])
    for name, value in settings.options.items():
        if name.startswith("ssl_") and value and name not in known:
            return name
    return None


def asynchronous(settings: ConnectionSettings) -> Any:
    """Return an async connection, not connected yet. The caller sets the time limit."""
    connection_class = _ASYNC_CLASSES[settings.connection_class]
    known = _parameters(connection_class)
    options = {
        name: value
        for name, value in settings.common().items()
        if name in known or not name.startswith("ssl_")
    }
    return connection_class(
        **options,
        protocol=2,
        socket_timeout=None,
        socket_connect_timeout=None,
        retry=Retry(NoBackoff(), 0),
    )


@cache
def _parameters(connection_class: Any) -> frozenset[str]:
    return frozenset(signature(connection_class.__init__).parameters)
