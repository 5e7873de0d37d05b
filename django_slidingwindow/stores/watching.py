"""Whether a connected socket has something to read, without reading it."""

from __future__ import annotations

import select
from typing import Any


class Select:
    """As much of `select.poll` as is needed, for systems that have none."""

    def register(self, sock: Any, events: int) -> None:
        self._sock = sock

    def poll(self, timeout: float) -> list[Any]:
        return select.select([self._sock], [], [], timeout)[0]


def watch(sock: Any) -> Any:
    """What `has_data` asks about a connected socket."""
    poll = _Poll()
    poll.register(sock, _READABLE)
    return poll


def has_data(poll: Any) -> bool:
    """Whether there is something to read, or the end."""
    return bool(poll.poll(0))


_Poll: Any = getattr(select, "poll", Select)
_READABLE: int = getattr(select, "POLLIN", 1)
