"""The plug of the Redis that `./scripts/demo` has started; a real one has none here."""

from __future__ import annotations

from typing import Protocol


class Server(Protocol):
    @property
    def running(self) -> bool: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


server: Server | None = None
