"""The Redis server that `./scripts/demo` has started, which the page can stop; None for others."""

from __future__ import annotations

from typing import Protocol


class Server(Protocol):
    @property
    def running(self) -> bool: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


server: Server | None = None
