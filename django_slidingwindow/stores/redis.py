"""Windows in Redis, on the server that a django-redis alias names."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from django_redis import get_redis_connection
from redis.asyncio import connection as aio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ClusterError, MasterDownError, NoPermissionError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from ..decisions import REDIS
from ..exceptions import StoreError
from ..flows import adrive, drive
from .base import Call
from .connections import Connections, Multiplexer
from .wire import Command, encode, known_script

# What an alias may say of a connection, sync and async alike. The rest of what a
# pool hands to its connections is the pool's own business.
_COMMON = frozenset(
    "host port db path username password credential_provider client_name"
    " socket_keepalive socket_keepalive_options socket_type".split()
)

# Errors of a server that cannot write now, whatever the call. redis-py has classes
# for some; within a script, older servers only say it in the text.
_OUTAGES = (
    OSError,
    RedisConnectionError,
    RedisTimeoutError,
    ReadOnlyError,
    OutOfMemoryError,
    NoPermissionError,
    ClusterError,
    MasterDownError,
)
_CANNOT_WRITE = re.compile(
    r"\b(READONLY|OOM|LOADING|CLUSTERDOWN|MASTERDOWN|BUSY|NOPERM|MISCONF|NOREPLICAS)\b"
)


class RedisStore:
    """The windows of one alias. Connects on first use, so a process can start without Redis."""

    source = REDIS

    def __init__(
        self,
        alias: str,
        *,
        clock: Callable[[], int] | None = None,
        budget: float | None = None,
    ) -> None:
        """`clock` in microseconds, for tests; `budget` in seconds bounds every call."""
        self.alias = alias
        self._clock = clock
        self._budget = budget
        self._lock = threading.Lock()
        self._connections: Connections | None = None
        self._multiplexers: dict[asyncio.AbstractEventLoop, Multiplexer] = {}

    def run(self, call: Call) -> list[int]:
        command = self._encode(call)
        try:
            reply = self._exchange(command.payload)
            if isinstance(reply, Exception):
                reply = drive(known_script(command, reply), self._exchange)
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        return checked(reply)

    def run_many(self, calls: Sequence[Call]) -> list[list[int]]:
        """All the calls in one round trip, for whoever looks at many keys."""
        commands = [self._encode(call) for call in calls]
        try:
            replies = self._pool().exchange(
                b"".join(command.payload for command in commands), len(commands)
            )
            replies = [
                drive(known_script(command, reply), self._exchange)
                for command, reply in zip(commands, replies, strict=True)
            ]
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        return [checked(reply) for reply in replies]

    async def arun(self, call: Call) -> list[int]:
        command = self._encode(call)
        try:
            reply = await self._aexchange(command.payload)
            if isinstance(reply, Exception):
                reply = await adrive(known_script(command, reply), self._aexchange)
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        return checked(reply)

    def groups(self, keys: tuple[str, ...]) -> list[list[int]] | None:
        return None

    def close(self) -> None:
        """Closes idle connections; event loops close their own."""
        if self._connections is not None:
            self._connections.close()

    def _encode(self, call: Call) -> Command:
        return encode(call, None if self._clock is None else self._clock())

    def _exchange(self, payload: bytes) -> Any:
        return self._pool().exchange(payload)[0]

    async def _aexchange(self, payload: bytes) -> Any:
        return await self._multiplexer().exchange(payload)

    def _pool(self) -> Connections:
        if self._connections is None:
            pool = get_redis_connection(self.alias, write=True).connection_pool
            with self._lock:
                if self._connections is None:
                    self._connections = Connections(
                        lambda: sync_connection(pool, self._budget),
                        most=pool.max_connections,
                        patience=self._budget,
                    )
        return self._connections

    def _multiplexer(self) -> Multiplexer:
        loop = asyncio.get_running_loop()
        try:
            return self._multiplexers[loop]
        except KeyError:
            pass
        pool = get_redis_connection(self.alias, write=True).connection_pool
        with self._lock:
            # Loops that were closed without shutting down their generators.
            for closed in [other for other in self._multiplexers if other.is_closed()]:
                del self._multiplexers[closed]
            self._multiplexers[loop] = Multiplexer(
                lambda: async_connection(pool),
                budget=time_limit(pool, self._budget),
                closed=lambda: self._multiplexers.pop(loop, None),
            )
        return self._multiplexers[loop]


def time_limit(pool: ConnectionPool, budget: float | None) -> float | None:
    """Seconds that a call may take: the alias's own time-out, or the budget if that is less."""
    limits = [pool.connection_kwargs.get("socket_timeout"), budget]
    return min((limit for limit in limits if limit is not None), default=None)


def sync_connection(pool: ConnectionPool, budget: float | None) -> Any:
    """A connection such as the pool makes, within the budget and without retries.

    A retried script may have run before: a charge is sent at most once.
    """
    kwargs = _common_kwargs(pool)
    limit = time_limit(pool, budget)
    if limit is not None:
        kwargs |= {"socket_timeout": limit, "socket_connect_timeout": limit}
    for name in ("parser_class", "connection_pool", "redis_connect_func"):
        if name in pool.connection_kwargs:
            kwargs[name] = pool.connection_kwargs[name]
    return pool.connection_class(**kwargs, protocol=2, retry=Retry(NoBackoff(), 0))


def async_connection(pool: ConnectionPool) -> Any:
    """The asynchronous twin. Its time-outs are the caller's."""
    if issubclass(pool.connection_class, UnixDomainSocketConnection):
        connection_class: Any = aio.UnixDomainSocketConnection
    elif issubclass(pool.connection_class, SSLConnection):
        connection_class = aio.SSLConnection
    else:
        connection_class = aio.Connection
    return connection_class(
        **_common_kwargs(pool),
        protocol=2,
        socket_timeout=None,
        socket_connect_timeout=None,
        retry=AsyncRetry(NoBackoff(), 0),
    )


def _common_kwargs(pool: ConnectionPool) -> dict[str, Any]:
    return {
        name: value
        for name, value in pool.connection_kwargs.items()
        if name in _COMMON or name.startswith("ssl_")
    }


def checked(reply: Any) -> list[int]:
    """The integers of a reply; a server's error as StoreError."""
    if isinstance(reply, Exception):
        raise store_error(reply) from reply
    return reply if isinstance(reply, list) else [reply]


def store_error(error: Exception) -> StoreError:
    """The one error that leaves a store."""
    outage = isinstance(error, _OUTAGES) or _CANNOT_WRITE.search(str(error)) is not None
    return StoreError(f"{type(error).__name__}: {error}", outage=outage)
