"""Whether a connected socket has something to read, without reading it."""

from __future__ import annotations

import select
import sys
from typing import Any


class Select:
    """As much of `select.poll` as is needed, for systems that have none."""

    def register(self, sock: Any, events: int) -> None:
        self._sock = sock

    def poll(self, timeout: float) -> list[Any]:
        return select.select([self._sock], [], [], timeout)[0]


def watch(sock: Any) -> Any:
    """Return what `has_data` asks about a connected socket."""
    poll = _poll_class()()
    # By its number: gevent's sockets are none that the system's own poll knows.
    poll.register(sock.fileno(), _READABLE)
    return poll


def has_data(poll: Any) -> bool:
    """Whether there is something to read, or the end."""
    return bool(poll.poll(0))


def _poll_class() -> Any:
    """Return the system's own poll, also where gevent has replaced it.

    What never waits needs no switch to other greenlets, which is most of a check's time.
    """
    poll = getattr(select, "poll", Select)
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and poll is not Select:
        return gevent.get_original("select", "poll")
    return poll


_READABLE: int = getattr(select, "POLLIN", 1)
