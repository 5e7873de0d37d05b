"""The connections of this process to one server."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import MaxConnectionsError, RedisError

from .async_connection import Multiplexer
from .async_settings import only_sync
from .pool import Connections
from .settings import ConnectionSettings
from .threads import in_thread


class Server:
    """A stack of connections for threads, and one connection for each event loop.

    If the connections have no async counterpart, event loops use the stack as well, in threads.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        find: Callable[[float], ConnectionSettings] | None = None,
        afind: Callable[[float], Awaitable[ConnectionSettings]] | None = None,
    ) -> None:
        """`find` and `afind` take a deadline and return the settings for the server's address.

        Without them, the address is the one in `settings`.
        """
        self.settings = settings
        self._only_sync = only_sync(settings) is not None
        self._afind = afind or self._fixed_settings
        self._connections = Connections(find or (lambda _: settings), most=settings.most)
        # Bound methods, which save a call for each exchange.
        self.exchange = self._connections.exchange
        self.in_halves = self._connections.in_halves
        self._lock = threading.Lock()
        self._multiplexers: dict[asyncio.AbstractEventLoop, Multiplexer] = {}
        _servers.add(self)

    def aexchange(self, payload: bytes, replies: int, deadline: float) -> Awaitable[list[Any]]:
        """Do what `exchange` does, without blocking the event loop."""
        if self._only_sync:
            return in_thread(self.exchange, payload, replies, deadline=deadline)
        return self._multiplexer().exchange(payload, replies, deadline)

    def close(self) -> None:
        """Close idle connections; event loops close their own."""
        self._connections.close()

    def retire(self) -> None:
        """Close the idle connections, and those of event loops as soon as no call uses them."""
        self.close()
        for loop, multiplexer in list(self._multiplexers.items()):
            # RuntimeError: the loop was closed.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(multiplexer.retire)

    def start_afresh(self) -> None:
        """Start in a forked child without the sockets and locks of the parent."""
        self._connections.start_afresh()
        self._lock = threading.Lock()
        self._multiplexers = {}

    async def _fixed_settings(self, deadline: float) -> ConnectionSettings:
        return self.settings

    def _multiplexer(self) -> Multiplexer:
        """Return the connection of the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._multiplexers.get(loop)
        if found is not None:
            return found
        with self._lock:
            # A loop that was closed without shutting down its generators is still in the dict.
            # Other loops may leave it meanwhile, in their threads and without the lock.
            for other in tuple(self._multiplexers):
                if other.is_closed():
                    self._multiplexers.pop(other, None)
            found = self._multiplexers[loop] = Multiplexer(
                self._afind,
                limit=self.settings.limit,
                closed=lambda: self._multiplexers.pop(loop, None),
            )
        return found


def exchange_all(
    exchanges: Sequence[tuple[Server, bytes, int]], deadline: float
) -> list[list[Any] | Exception]:
    """Send payloads to several servers, then read all replies. Return the replies or errors.

    Each exchange is a server, a payload and the number of replies.
    """
    found: list[Any] = [None] * len(exchanges)
    begun: dict[int, Generator[None, None, list[Any]]] = {}
    busy = []
    try:
        for number, (server, payload, replies) in enumerate(exchanges):
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
        # No other connection is held now, so this exchange may wait for one.
        server, payload, replies = exchanges[number]
        try:
            found[number] = server.exchange(payload, replies, deadline)
        except (RedisError, OSError) as error:
            found[number] = error
    return found


_servers: weakref.WeakSet[Server] = weakref.WeakSet()


def _start_afresh() -> None:
    for server in list(_servers):
        server.start_afresh()


# Windows has no fork.
getattr(os, "register_at_fork", dict)(after_in_child=_start_afresh)
