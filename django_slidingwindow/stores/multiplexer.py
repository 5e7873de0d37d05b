"""The connection of an event loop, which concurrent checks share."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .errors import is_outage
from .links import Link
from .watching import has_data, watch

# Seconds by which a timer may be late, before it is taken that the loop was held up
# and not the server; then as long again for the replies that have come in meanwhile.
_LAG = 0.02
# Those with a connection. A loop alone does not keep them alive, but they have to end
# with it; and in a forked child they must not end at all: parent and child share what
# watches the parent's sockets.
_connected: set[Multiplexer] = set()


class _Call:
    """One that waits for so many replies."""

    __slots__ = ("answer", "replies", "wanted")

    def __init__(self, answer: asyncio.Future[list[Any]], wanted: int) -> None:
        self.answer = answer
        self.wanted = wanted
        self.replies: list[Any] = []

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Multiplexer:
    """One connection, on which calls are answered in their order.

    Concurrent checks share round trips instead of waiting for a free connection.
    """

    def __init__(
        self,
        find: Callable[[float | None], Awaitable[Link]],
        *,
        closed: Callable[[], object],
    ) -> None:
        """`find` says, by a deadline, which server to connect to."""
        self._find = find
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._connection: Any = None
        self._connecting: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: deque[_Call] = deque()
        self._watch: Any = None
        self._closing: dict[Any, asyncio.Task[None]] = {}
        self._closer: AsyncGenerator[None, None] | None = None

    async def exchange(self, payload: bytes, replies: int, deadline: float | None) -> list[Any]:
        """Sends once and waits for the replies; a server's error is returned, not raised."""
        answer = self._loop.create_future()
        call = _Call(answer, replies)
        timer = None
        if deadline is not None:
            at = self._loop.time() + deadline - time.monotonic()
            timer = self._loop.call_at(at, self._expire, call, at)
        try:
            if self._watch is not None and not self._waiting and has_data(self._watch):
                # Nothing was asked: it can only be the end, of which the loop has not heard.
                self._drop(RedisConnectionError("the connection was closed"))
            while (connection := self._connection) is None:
                await self._connect(answer, deadline)
            self._waiting.append(call)
            await connection.send_packed_command(payload, check_health=False)
            found: list[Any] = await answer
        except BaseException:
            if not answer.cancel() and not answer.cancelled():
                # Marks it as seen, where another error was first.
                answer.exception()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if any(isinstance(reply, Exception) and is_outage(reply) for reply in found):
            # Another server may have taken its place.
            self._drop(RedisConnectionError("the server cannot answer"))
        return found

    async def _connect(self, answer: asyncio.Future[Any], deadline: float | None) -> None:
        """Returns when there is a connection; raises what the answer is meanwhile."""
        if self._connecting is None:
            left = None if deadline is None else deadline - time.monotonic()
            opening = asyncio.wait_for(self._open(deadline), left)
            self._connecting = asyncio.ensure_future(opening)
            self._connecting.add_done_callback(self._settled)
        connecting = self._connecting
        await asyncio.wait({connecting, answer}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            answer.result()
        try:
            connecting.result()
        except asyncio.TimeoutError:
            raise RedisTimeoutError("not connected within the time limit") from None

    def _settled(self, connecting: asyncio.Task[None]) -> None:
        self._connecting = None
        if not connecting.cancelled():
            connecting.exception()

    async def _open(self, deadline: float | None) -> None:
        connection = (await self._find(deadline)).asynchronous()
        try:
            await connection.connect()
        except BaseException:
            await _disconnect(connection)
            raise
        self._connection = connection
        self._watch = watch(connection._writer.get_extra_info("socket"))
        self._reader = asyncio.ensure_future(self._read(connection))
        if self._closer is None:
            _connected.difference_update(
                [one for one in tuple(_connected) if one._loop.is_closed()]
            )
            _connected.add(self)
            # A loop that shuts down closes its async generators, and so this.
            self._closer = self._close_with_loop()
            await self._closer.__anext__()

    async def _read(self, connection: Any) -> None:
        while True:
            try:
                reply = await connection.read_response(disconnect_on_error=False)
            except ResponseError as error:
                reply = error
            except (RedisError, OSError) as error:
                self._drop(error)
                return
            if not self._waiting:
                self._drop(RedisConnectionError("the server said what nobody has asked"))
                return
            call = self._waiting[0]
            call.replies.append(reply)
            if len(call.replies) == call.wanted:
                self._waiting.popleft()
                if not call.answer.done():
                    call.answer.set_result(call.replies)

    def _expire(self, call: _Call, at: float) -> None:
        now = self._loop.time()
        if call.answer.done():
            return
        if now - at > _LAG:
            self._loop.call_later(_LAG, self._expire, call, now + _LAG)
            return
        error = RedisTimeoutError("no reply within the time limit")
        call.fail(error)
        # Later replies on this connection are as late.
        self._drop(error)

    def _drop(self, error: Exception) -> None:
        connection, self._connection = self._connection, None
        self._watch = None
        reader, self._reader = self._reader, None
        while self._waiting:
            self._waiting.popleft().fail(error)
        if reader is not None and reader is not asyncio.current_task(self._loop):
            reader.cancel()
        if connection is not None:
            closing = asyncio.ensure_future(_disconnect(connection))
            self._closing[connection] = closing
            closing.add_done_callback(lambda _: self._closing.pop(connection, None))

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._drop(RedisConnectionError("the event loop is shutting down"))
            await asyncio.gather(*self._closing.values())
            _connected.discard(self)
            self._closed()


async def _disconnect(connection: Any) -> None:
    """Closes at once: TLS would first say goodbye, and outlive a loop that shuts down."""
    if connection._writer is not None:
        connection._writer.transport.abort()
    await connection.disconnect(nowait=True)


async def aask_once(link: Link, payload: bytes, deadline: float | None) -> Any:
    """The reply to one command, on a connection of its own."""
    left = None if deadline is None else deadline - time.monotonic()
    try:
        return await asyncio.wait_for(_ask_once(link, payload), left)
    except asyncio.TimeoutError:
        raise RedisTimeoutError("no reply within the time limit") from None


async def _ask_once(link: Link, payload: bytes) -> Any:
    connection = link.asynchronous()
    try:
        await connection.connect()
        await connection.send_packed_command(payload, check_health=False)
        return await connection.read_response()
    except ResponseError as error:
        return error
    finally:
        await _disconnect(connection)
