"""Who listens to a limiter."""

from __future__ import annotations

from typing import Any, Protocol


class Listeners(Protocol):
    """Something with receivers, such as a signal."""

    receivers: list[Any]


class _Fixed:
    def __init__(self, *receivers: Any) -> None:
        self.receivers: list[Any] = [*receivers]


ALWAYS = _Fixed(None)
NOBODY = _Fixed()
