"""What a scenario gets: a Redis, a contender, and processes that run the contender."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any

from ..server import Server
from .hosts import Host
from .model import Contender, Rate, Setup
from .worker import load


class Lab:
    """One contender and a server."""

    def __init__(self, server: Server, path: str, *, quick: bool = False) -> None:
        self.server = server
        self.path = path
        """Where the contender is, as `module:name`."""
        self.contender: Contender = load(path)
        self.quick = quick
        """Whether to measure less, so that a scenario takes seconds."""
        self._clients = _addresses()
        self._lock = Lock()

    def host(self, *rates: Rate, server: Server | None = None, **options: Any) -> Host:
        """Return a process with the contender, to use in a `with` statement."""
        redis = (server or self.server).url
        return Host(self.path, Setup(redis=redis, rates=rates, **options))

    def client(self) -> str:
        """Return an address that was not used before."""
        with self._lock:
            return next(self._clients)


def _addresses() -> Iterator[str]:
    for number in range(1, 250 * 250 * 250):
        third, fourth = divmod(number, 250)
        yield f"10.{third // 250 + 1}.{third % 250}.{fourth + 1}"
