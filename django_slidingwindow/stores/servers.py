"""One server, for threads and for event loops."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from .connections import Connections
from .links import Link
from .multiplexer import Multiplexer

# What a process has inherited by a fork is neither used nor closed: an event loop of
# the parent would miss its sockets, for both share what watches them.
_inherited: list[object] = []


class Server:
    """A stack of connections for threads, and one connection for each event loop."""

    def __init__(
        self,
        link: Link,
        find: Callable[[float | None], Link] | None = None,
        afind: Callable[[float | None], Awaitable[Link]] | None = None,
    ) -> None:
        """`find` and `afind` say, by a deadline, where the server is now."""
        self._link = link
        self._afind = afind or self._known
        self._connections = Connections(find or (lambda _: link), most=link.most)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._multiplexers: dict[asyncio.AbstractEventLoop, Multiplexer] = {}

    def deadline(self, within: float | None = None) -> float | None:
        """When a call that starts now has to end; `within` seconds if that is sooner."""
        limits = [limit for limit in (self._link.limit, within) if limit is not None]
        return time.monotonic() + min(limits) if limits else None

    def exchange(self, payload: bytes, replies: int, deadline: float | None) -> list[Any]:
        """Sends once and reads the replies; a server's error is returned, not raised."""
        return self._connections.exchange(payload, replies, deadline)

    async def aexchange(self, payload: bytes, replies: int, deadline: float | None) -> list[Any]:
        return await self._multiplexer().exchange(payload, replies, deadline)

    def close(self) -> None:
        """Closes idle connections; event loops close their own."""
        self._connections.close()

    async def _known(self, deadline: float | None) -> Link:
        return self._link

    def _multiplexer(self) -> Multiplexer:
        loop = asyncio.get_running_loop()
        found = self._multiplexers.get(loop)
        if found is not None and self._pid == os.getpid():
            return found
        with self._lock:
            if self._pid != os.getpid():
                _inherited.append(self._multiplexers)
                self._pid, self._multiplexers = os.getpid(), {}
            # Loops that were closed without shutting down their generators.
            for closed in [other for other in self._multiplexers if other.is_closed()]:
                del self._multiplexers[closed]
            found = self._multiplexers[loop] = Multiplexer(
                self._afind, closed=lambda: self._multiplexers.pop(loop, None)
            )
        return found
