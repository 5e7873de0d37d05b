"""One server, for threads and for event loops."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any

from redis.exceptions import MaxConnectionsError, RedisError

from .async_connection import Multiplexer
from .async_settings import only_sync
from .pool import Connections
from .settings import ConnectionSettings
from .threads import in_thread


class Server:
    """A stack of connections for threads, and one connection for each event loop.

    Where connections have no asynchronous form, event loops use those of threads.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        find: Callable[[float], ConnectionSettings] | None = None,
        afind: Callable[[float], Awaitable[ConnectionSettings]] | None = None,
    ) -> None:
        """`find` and `afind` say, by a deadline, where the server is now."""
        self.settings = settings
        self._only_sync = only_sync(settings) is not None
        self._afind = afind or self._known
        self._connections = Connections(find or (lambda _: settings), most=settings.most)
        # Sends once and reads the replies; a server's error is returned, not raised.
        self.exchange = self._connections.exchange
        self.in_halves = self._connections.in_halves
        self._lock = threading.Lock()
        self._multiplexers: dict[asyncio.AbstractEventLoop, Multiplexer] = {}
        _servers.add(self)

    async def aexchange(self, payload: bytes, replies: int, deadline: float) -> list[Any]:
        if self._only_sync:
            return await in_thread(self.exchange, payload, replies, deadline=deadline)
        return await self._multiplexer().exchange(payload, replies, deadline)

    def close(self) -> None:
        """Close idle connections; event loops close their own."""
        self._connections.close()

    def start_afresh(self) -> None:
        """In a forked child: no socket and no lock of the parent's."""
        self._connections.start_afresh()
        self._lock = threading.Lock()
        self._multiplexers = {}

    async def _known(self, deadline: float) -> ConnectionSettings:
        return self.settings

    def _multiplexer(self) -> Multiplexer:
        loop = asyncio.get_running_loop()
        found = self._multiplexers.get(loop)
        if found is not None:
            return found
        with self._lock:
            # Loops that were closed without shutting down their generators.
            for closed in [other for other in self._multiplexers if other.is_closed()]:
                del self._multiplexers[closed]
            found = self._multiplexers[loop] = Multiplexer(
                self._afind, closed=lambda: self._multiplexers.pop(loop, None)
            )
        return found


def exchange_all(
    asked: Sequence[tuple[Server, bytes, int]], deadline: float
) -> list[list[Any] | Exception]:
    """Return what several servers reply, or their errors: all is sent before anything is read."""
    found: list[Any] = [None] * len(asked)
    begun: dict[int, Generator[None, None, list[Any]]] = {}
    busy = []
    try:
        for number, (server, payload, replies) in enumerate(asked):
            halves = server.in_halves(payload, replies, deadline)
            try:
                next(halves)
            except MaxConnectionsError:
                busy.append(number)
            except (RedisError, OSError) as error:
                found[number] = error
            else:
                begun[number] = halves
        for number, halves in begun.items():
            try:
                next(halves)
            except StopIteration as stop:
                found[number] = stop.value
            except (RedisError, OSError) as error:
                found[number] = error
    finally:
        for halves in begun.values():
            halves.close()
    for number in busy:
        server, payload, replies = asked[number]
        try:
            found[number] = server.exchange(payload, replies, deadline)
        except (RedisError, OSError) as error:
            found[number] = error
    return found


_servers: weakref.WeakSet[Server] = weakref.WeakSet()


def _start_afresh() -> None:
    for server in list(_servers):
        server.start_afresh()


# Not every system forks.
getattr(os, "register_at_fork", dict)(after_in_child=_start_afresh)
