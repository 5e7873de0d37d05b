"""Whether anybody listens to what a limiter reports."""

from __future__ import annotations

from typing import Any, Protocol


class Listeners(Protocol):
    """An object with receivers, such as a Django signal."""

    receivers: list[Any]


class _Fixed:
    def __init__(self, *receivers: Any) -> None:
        self.receivers: list[Any] = [*receivers]


ALWAYS = _Fixed(None)
NOBODY = _Fixed()
