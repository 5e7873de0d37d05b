"""Connections to one server: a stack of them for threads, a shared one for an event loop.

redis-py makes, authenticates and parses each connection, so all that an alias can
say (TLS, ACL, unix socket, Sentinel) holds. What is left out is its pool and its
command path, which are most of a check's time.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MaxConnectionsError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

# Seconds after which a connection is looked at before it is used again: a server
# that went away has closed it, and that is better known before a charge is sent.
_IDLE = 0.5


class Connections:
    """Idle connections in a stack: as many as are in use at once, never one a thread."""

    def __init__(self, make: Callable[[], Any], *, most: int, patience: float | None) -> None:
        self._make = make
        self._most = most
        self._patience = patience
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._idle: deque[tuple[Any, float]] = deque()
        self._made = 0
        self._freed = threading.Condition()

    def exchange(self, payload: bytes, replies: int = 1) -> list[Any]:
        """Sends once and reads the replies; a server's error is returned, not raised."""
        connection = self._take()
        try:
            connection.send_packed_command((payload,), check_health=False)
            answers = [_read(connection) for _ in range(replies)]
        except BaseException:
            # Unread replies would answer the next command.
            connection.disconnect()
            self._give(connection)
            raise
        self._give(connection)
        return answers

    def close(self) -> None:
        """Closes what is idle; what is in use goes on."""
        while self._idle:
            self._idle.pop()[0].disconnect()
            self._made -= 1

    def _take(self) -> Any:
        if self._pid != os.getpid():
            # After a fork the sockets are the parent's.
            self._reset()
        try:
            connection, used = self._idle.pop()
        except IndexError:
            connection, used = self._make_or_wait()
        if time.monotonic() - used > _IDLE and _is_stale(connection):
            connection.disconnect()
        return connection

    def _make_or_wait(self) -> tuple[Any, float]:
        with self._freed:
            if self._made >= self._most and not self._freed.wait_for(
                lambda: bool(self._idle) or self._made < self._most, self._patience
            ):
                raise MaxConnectionsError("all connections are in use")
            if self._idle:
                return self._idle.pop()
            self._made += 1
        return self._make(), time.monotonic()

    def _give(self, connection: Any) -> None:
        self._idle.append((connection, time.monotonic()))
        if self._made >= self._most:
            with self._freed:
                self._freed.notify()


def _read(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


def _is_stale(connection: Any) -> bool:
    try:
        return bool(connection.can_read(0))
    except (RedisError, OSError):
        return True


class Multiplexer:
    """One connection of an event loop, on which calls are answered in their order.

    Concurrent checks share round trips instead of waiting for a free connection.
    """

    def __init__(
        self, make: Callable[[], Any], *, budget: float | None, closed: Callable[[], None]
    ) -> None:
        self._make = make
        self._budget = budget
        self._closed = closed
        self._connection: Any = None
        self._connecting = asyncio.Lock()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._reader: asyncio.Task[None] | None = None
        self._closer: AsyncGenerator[None, None] | None = None

    async def exchange(self, payload: bytes) -> Any:
        """Sends once and waits for the reply; a server's error is returned, not raised."""
        try:
            return await asyncio.wait_for(self._exchange(payload), self._budget)
        except asyncio.TimeoutError:
            # Later replies on this connection are as late.
            await self._drop(RedisTimeoutError("no reply within the latency budget"))
            raise RedisTimeoutError("no reply within the latency budget") from None

    async def _exchange(self, payload: bytes) -> Any:
        connection = self._connection
        if connection is None or not connection.is_connected:
            connection = await self._connect()
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(reply)
        await connection.send_packed_command(payload, check_health=False)
        return await reply

    async def _connect(self) -> Any:
        async with self._connecting:
            if self._connection is None or not self._connection.is_connected:
                await self._drop(RedisConnectionError("the connection was lost"))
                connection = self._make()
                try:
                    await connection.connect()
                except BaseException:
                    await connection.disconnect(nowait=True)
                    raise
                self._connection = connection
                self._reader = asyncio.ensure_future(self._read(connection))
                if self._closer is None:
                    # A loop that shuts down closes its async generators, and so this.
                    self._closer = self._close_with_loop()
                    await self._closer.__anext__()
            return self._connection

    async def _read(self, connection: Any) -> None:
        while True:
            try:
                reply = await connection.read_response(disconnect_on_error=False)
            except ResponseError as error:
                reply = error
            except (RedisError, OSError) as error:
                self._fail(error)
                await connection.disconnect(nowait=True)
                return
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(reply)

    def _fail(self, error: Exception) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(error)

    async def _drop(self, error: Exception) -> None:
        connection, self._connection = self._connection, None
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
        self._fail(error)
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._drop(RedisConnectionError("the event loop is shutting down"))
            self._closed()
