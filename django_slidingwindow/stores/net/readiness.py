"""Find out whether a connected socket has something to read, without reading it."""

from __future__ import annotations

import select
import sys
from typing import Any


class Select:
    """The needed part of `select.poll`, for systems that lack it."""

    def register(self, sock: Any, events: int) -> None:
        self._sock = sock

    def poll(self, timeout: float) -> list[Any]:
        return select.select([self._sock], [], [], timeout)[0]


def watch(sock: Any) -> Any:
    """Return a poll object for a connected socket.

    `poll(0)` is true if there is something to read, or the other side has closed the connection.
    """
    poll = _poll_class()()
    # The file number, because the system's poll does not accept gevent's socket objects.
    poll.register(sock.fileno(), _READABLE)
    return poll


def _poll_class() -> Any:
    """Return the system's own poll, even if gevent has replaced it.

    gevent's poll switches to other greenlets, which would take most of a check's time. A poll that
    never waits does not need that.
    """
    poll = getattr(select, "poll", Select)
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and poll is not Select:
        return gevent.get_original("select", "poll")
    return poll


_READABLE: int = getattr(select, "POLLIN", 1)
