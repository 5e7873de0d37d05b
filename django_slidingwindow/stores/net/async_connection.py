"""The connection of an event loop, which concurrent checks share."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ..errors import is_outage, of_incident
from .async_settings import asynchronous, only_sync
from .pool import ask_once
from .settings import ConnectionSettings, seconds_left
from .threads import in_thread
from .watching import has_data, watch

# Seconds by which a timer may be late, before it is taken that the loop was held up
# and not the server; then as long again for the replies that have come in meanwhile.
_LAG = 0.02
# A call that has fewer seconds left begins no attempt to connect.
_LEAST = 0.001
# Those with a connection. A loop alone does not keep them alive, but they have to end
# with it; and in a forked child they must not end at all: parent and child share what
# watches the parent's sockets.
_connected: set[Multiplexer] = set()
# Each connection, and each attempt to make one, has a number: all calls that it fails have the
# same cause.
_incidents = itertools.count(1)


class _Call:
    """A call that waits for a number of replies."""

    __slots__ = ("answer", "replies", "timer", "wanted")

    def __init__(self, answer: asyncio.Future[list[Any]], wanted: int) -> None:
        self.answer = answer
        self.wanted = wanted
        self.replies: list[Any] = []
        self.timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Stop the timer: no reply is outstanding."""
        if self.timer is not None:
            self.timer.cancel()

    def answered(self) -> None:
        self.stop()
        if not self.answer.done():
            self.answer.set_result(self.replies)

    def fail(self, error: Exception) -> None:
        self.stop()
        if not self.answer.done():
            self.answer.set_exception(error)

    def withdraw(self) -> None:
        """End a call before anything of it was sent."""
        self.stop()
        if not self.answer.cancel() and not self.answer.cancelled():
            # Marks it as seen, where another error was first.
            self.answer.exception()


class Multiplexer:
    """One connection, on which calls are answered in their order.

    Concurrent checks share round trips instead of waiting for a free connection.
    """

    def __init__(
        self,
        find: Callable[[float], Awaitable[ConnectionSettings]],
        *,
        closed: Callable[[], object],
    ) -> None:
        """`find` says, by a deadline, which server to connect to."""
        self._find = find
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._incident = 0
        self._connection: Any = None
        self._connecting: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: deque[_Call] = deque()
        self._watch: Any = None
        self._closing: dict[Any, asyncio.Task[None]] = {}
        self._closer: AsyncGenerator[None, None] | None = None

    async def exchange(self, payload: bytes, replies: int, deadline: float) -> list[Any]:
        """Send once and return the replies; a server's error is returned, not raised."""
        call = _Call(self._loop.create_future(), replies)
        if deadline < math.inf:
            at = self._loop.time() + deadline - time.monotonic()
            call.timer = self._loop.call_at(at, self._expire, call, at)
        try:
            if not self._write(payload, call):
                await self._send_anew(payload, call, deadline)
        except BaseException:
            call.withdraw()
            raise
        # Cancelled here, the call keeps its place and its timer: the reply still comes, and if it
        # does not, the connection is stalled.
        found: list[Any] = await call.answer
        for reply in found:
            if isinstance(reply, Exception) and is_outage(reply):
                # Another server may have taken its place.
                self._drop(RedisConnectionError("the server cannot answer"))
        return found

    def _write(self, payload: bytes, call: _Call) -> bool:
        """Write the payload; False if nothing of it was sent, and nothing will be.

        It does not wait for the buffer to drain: the call waits for its reply anyway.
        """
        connection = self._connection
        if connection is None:
            return False
        transport = connection._writer.transport
        # While nothing is asked, what there is to read can only be the end.
        ended = connection._reader.at_eof() if self._waiting else has_data(self._watch)
        if not ended and not transport.is_closing():
            transport.write(payload)
            # If it is closing now, the system has taken nothing of it.
            if not transport.is_closing():
                self._waiting.append(call)
                return True
        self._drop(RedisConnectionError("the connection was closed"))
        return False

    async def _send_anew(self, payload: bytes, call: _Call, deadline: float) -> None:
        """Connect and write the payload. Two attempts: nothing was sent before.

        An attempt that another call has begun does not count if it ended because the time of that
        call was up.
        """
        attempts = 2
        while attempts:
            begins = self._connecting is None
            try:
                await self._connect(call.answer, deadline)
            except (RedisError, OSError) as error:
                if begins or not isinstance(error, RedisTimeoutError):
                    attempts -= 1
                time_is_up = call.answer.done() or deadline - time.monotonic() < _LEAST
                if time_is_up or not attempts:
                    raise
            else:
                if self._write(payload, call):
                    return
                attempts -= 1
        raise of_incident(RedisConnectionError("the connection was closed"), self._incident)

    async def _connect(self, answer: asyncio.Future[Any], deadline: float) -> None:
        """Return when there is a connection; raise what the answer is meanwhile."""
        if self._connecting is None:
            self._incident = next(_incidents)
            self._connecting = asyncio.ensure_future(self._open_by(deadline, self._incident))
            self._connecting.add_done_callback(self._settled)
        connecting = self._connecting
        await asyncio.wait({connecting, answer}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            answer.result()
        connecting.result()

    def _settled(self, connecting: asyncio.Task[None]) -> None:
        self._connecting = None
        if not connecting.cancelled():
            connecting.exception()

    async def _open_by(self, deadline: float, incident: int) -> None:
        left = seconds_left(deadline)
        try:
            await asyncio.wait_for(self._open(deadline), left)
        except asyncio.TimeoutError:
            error = RedisTimeoutError("not connected within the time limit")
            raise of_incident(error, incident) from None
        except (RedisError, OSError) as error:
            of_incident(error, incident)
            raise

    async def _open(self, deadline: float) -> None:
        connection = asynchronous(await self._find(deadline))
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
                self._drop(RedisConnectionError("unexpected reply from the server"))
                return
            call = self._waiting[0]
            call.replies.append(reply)
            if len(call.replies) == call.wanted:
                self._waiting.popleft().answered()

    def _expire(self, call: _Call, at: float) -> None:
        now = self._loop.time()
        if now - at > _LAG:
            call.timer = self._loop.call_later(_LAG, self._expire, call, now + _LAG)
            return
        error = of_incident(RedisTimeoutError("no reply within the time limit"), self._incident)
        if call in self._waiting:
            # Later replies on this connection are as late.
            self._drop(error)
        else:
            call.fail(error)

    def _drop(self, error: Exception) -> None:
        """Close the connection; all calls that wait on it fail as one."""
        of_incident(error, self._incident)
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
    """Close at once: TLS would first say goodbye, and outlive a loop that shuts down."""
    if connection._writer is not None:
        connection._writer.transport.abort()
    await connection.disconnect(nowait=True)


async def aask_once(settings: ConnectionSettings, payload: bytes, deadline: float) -> Any:
    """Return the reply to one command, on a connection of its own."""
    if only_sync(settings) is not None:
        return await in_thread(ask_once, settings, payload, deadline=deadline)
    left = None if deadline is None else deadline - time.monotonic()
    try:
        return await asyncio.wait_for(_ask_once(settings, payload), left)
    except asyncio.TimeoutError:
        raise RedisTimeoutError("no reply within the time limit") from None


async def _ask_once(settings: ConnectionSettings, payload: bytes) -> Any:
    connection = asynchronous(settings)
    try:
        await connection.connect()
        await connection.send_packed_command(payload, check_health=False)
        return await connection.read_response()
    except ResponseError as error:
        return error
    finally:
        await _disconnect(connection)
