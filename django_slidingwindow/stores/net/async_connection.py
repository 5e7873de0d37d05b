"""The connection of an event loop. Concurrent checks share it."""

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

from ..errors import connecting, is_outage, of_incident
from .async_settings import asynchronous
from .pending_call import PendingCall
from .readiness import watch
from .settings import ConnectionSettings, seconds_left

# If a call's timer is later than this many seconds, the event loop was blocked, not the server.
# The call then gets this many seconds more, once, to read replies that have arrived meanwhile.
_LAG = 0.02
# Seconds until a connection that is still in use is looked at again, to close it.
_LOOK_AGAIN = 0.1
# A call with fewer seconds left does not try to connect.
_LEAST = 0.001
# The multiplexers that have connected. The set keeps them alive until their loop closes them. In a
# forked child it keeps them alive forever: closing them would disturb the parent, because both
# processes share the epoll object that watches the parent's sockets.
_connected: set[Multiplexer] = set()
# Numbers for incidents. All calls that fail with one connection, or with one attempt to connect,
# have the same cause and so the same number.
_incidents = itertools.count(1)


class Multiplexer:
    """One connection that concurrent calls share. The server replies in the order of the calls.

    So calls do not wait for a free connection, and several calls may share a round trip.
    """

    def __init__(
        self,
        find: Callable[[float], Awaitable[ConnectionSettings]],
        *,
        limit: float,
        closed: Callable[[], object],
    ) -> None:
        """`find` takes a deadline and returns the settings for a new connection.

        `limit`: the seconds that the server may take for a reply; then the connection is stalled.
        `closed` is called when the event loop shuts down.
        """
        self._find = find
        self._limit = limit
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._incident = 0
        self._connection: Any = None
        self._connecting: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        # The calls that wait for replies of the connection. Each connection has its own line, so
        # that its replies reach no other calls, even if a signal handler has interrupted `_drop`.
        self._waiting: deque[PendingCall] = deque()
        self._watch: Any = None
        self._closing: dict[Any, asyncio.Task[None]] = {}
        self._closer: AsyncGenerator[None, None] | None = None

    async def exchange(self, payload: bytes, replies: int, deadline: float) -> list[Any]:
        """Send a payload once and return the replies. A server's error is returned, not raised."""
        call = PendingCall(self._loop.create_future(), replies)
        if deadline < math.inf:
            left = deadline - time.monotonic()
            call.spare = self._limit - left
            at = self._loop.time() + left
            call.timer = self._loop.call_at(at, self._expire, call, at)
        try:
            if not self._write(payload, call):
                await self._send_anew(payload, call, deadline)
        except BaseException:
            call.withdraw()
            raise
        # A call that is cancelled here stays in line with its timer, because its reply still comes.
        # If the reply does not come, the timer closes the connection.
        found: list[Any] = await call.answer
        for reply in found:
            if isinstance(reply, Exception) and is_outage(reply):
                # A new connection may lead to another server that can serve.
                self._drop(RedisConnectionError("the server cannot answer"))
        return found

    def retire(self) -> None:
        """Close the connection as soon as no call uses it."""
        if self._waiting or self._is_connecting:
            self._loop.call_later(_LOOK_AGAIN, self.retire)
        else:
            self._drop(RedisConnectionError("the server is not used any more"))

    def _write(self, payload: bytes, call: PendingCall) -> bool:
        """Write the payload. Return False if nothing was sent and nothing will be.

        It does not wait until the buffer is empty, because the call waits for its reply anyway.
        """
        connection = self._connection
        if connection is None:
            return False
        transport = connection._writer.transport
        # If no call waits for a reply, data can only mean that the server closed the connection.
        ended = connection._reader.at_eof() if self._waiting else self._watch.poll(0)
        if not ended and not transport.is_closing():
            try:
                transport.write(payload)
                # If the transport is closing now, nothing was sent.
                if not transport.is_closing():
                    self._waiting.append(call)
                    return True
            except BaseException:
                # A signal handler has raised. The next call must not get the reply to this one.
                self._drop(RedisConnectionError("another call was interrupted"))
                raise
        self._drop(RedisConnectionError("the connection was closed"))
        return False

    async def _send_anew(self, payload: bytes, call: PendingCall, deadline: float) -> None:
        """Connect and write the payload, with two attempts, because nothing was sent before.

        If another call started the attempt and ran out of time, the attempt does not count.
        """
        attempts = 2
        while attempts:
            begins = not self._is_connecting
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
        """Wait until there is a connection. Raise the call's error if the call fails first."""
        if not self._is_connecting:
            self._incident = next(_incidents)
            self._connecting = asyncio.ensure_future(self._open_by(deadline, self._incident))
            self._connecting.add_done_callback(self._connecting_done)
        connecting = self._connecting
        assert connecting is not None
        await asyncio.wait({connecting, answer}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            answer.result()
        connecting.result()

    @property
    def _is_connecting(self) -> bool:
        return self._connecting is not None and not self._connecting.done()

    def _connecting_done(self, connecting: asyncio.Task[None]) -> None:
        if not connecting.cancelled():
            # Retrieve the exception, or asyncio logs that nobody did.
            connecting.exception()

    async def _open_by(self, deadline: float, incident: int) -> None:
        try:
            await asyncio.wait_for(self._open(deadline), seconds_left(deadline))
        except asyncio.TimeoutError:
            error = RedisTimeoutError("not connected within the time limit")
            raise of_incident(error, incident) from None
        except (RedisError, OSError) as error:
            of_incident(error, incident)
            raise

    async def _open(self, deadline: float) -> None:
        connection = asynchronous(await self._find(deadline))
        try:
            with connecting():
                await connection.connect()
            self._watch = watch(connection._writer.get_extra_info("socket"))
        except BaseException:
            await disconnect(connection)
            raise
        self._waiting = deque()
        self._connection = connection
        self._reader = asyncio.ensure_future(self._read(connection, self._waiting))
        if self._closer is None:
            _connected.difference_update(
                [one for one in tuple(_connected) if one._loop.is_closed()]
            )
            _connected.add(self)
            # A loop that shuts down closes its async generators, which closes the connection.
            self._closer = self._close_with_loop()
            await self._closer.__anext__()

    async def _read(self, connection: Any, waiting: deque[PendingCall]) -> None:
        try:
            while True:
                try:
                    reply = await connection.read_response(disconnect_on_error=False)
                except ResponseError as error:
                    reply = error
                if not waiting:
                    raise RedisConnectionError("unexpected reply from the server")
                call = waiting[0]
                call.replies.append(reply)
                if len(call.replies) == call.wanted:
                    waiting.popleft()
                    if not call.answered():
                        # The server is slow, not away. A call that fails later is another incident.
                        self._incident = next(_incidents)
        except (RedisError, OSError) as error:
            if connection is self._connection:
                self._drop(error)
            else:
                # `_drop` was interrupted before it could close this connection.
                await disconnect(connection)

    def _expire(self, call: PendingCall, at: float) -> None:
        """End a call whose time limit ended at `at`."""
        if self._loop.time() - at > _LAG:
            # Only once: the loop may be late in every round.
            call.timer = self._loop.call_later(_LAG, self._give_up, call)
        else:
            self._give_up(call)

    def _give_up(self, call: PendingCall) -> None:
        error = of_incident(RedisTimeoutError("no reply within the time limit"), self._incident)
        call.fail(error)
        if call in self._waiting:
            if call.spare > _LAG:
                # The server may still answer in the time of the other calls.
                call.timer = self._loop.call_later(call.spare, self._give_up, call)
                call.spare = 0.0
            else:
                # The replies to the other calls come after this one: the connection is stalled.
                self._drop(error)

    def _drop(self, error: Exception) -> None:
        """Close the connection. All calls that wait for replies fail with the same error."""
        of_incident(error, self._incident)
        connection, self._connection = self._connection, None
        waiting, self._waiting = self._waiting, deque()
        self._watch = None
        reader, self._reader = self._reader, None
        for call in waiting:
            call.fail(error)
        if reader is not None and reader is not asyncio.current_task(self._loop):
            reader.cancel()
        if connection is not None:
            closing = asyncio.ensure_future(disconnect(connection))
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


async def disconnect(connection: Any) -> None:
    """Close at once. TLS would wait for the server's reply, after the loop has shut down."""
    if connection._writer is not None:
        connection._writer.transport.abort()
    await connection.disconnect(nowait=True)
