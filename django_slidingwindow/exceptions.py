"""The errors that this package raises."""

from __future__ import annotations

from typing import Any

from .texts import Text


class SlidingWindowError(Exception):
    """Base of every error of this package."""


class PolicyError(SlidingWindowError, ValueError):
    """A rate, window, limit or algorithm that cannot be used; says what is allowed."""

    def __init__(self, template: str, /, **values: Any) -> None:
        super().__init__(Text(template, **values))


class StoreError(SlidingWindowError):
    """The store could not answer. Always raised from the cause."""

    outage: bool
    """The store as a whole cannot answer now, rather than this one call."""

    incident: int | None
    """Equal for all the calls that failed with one lost connection; None for this call alone."""

    def __init__(self, message: str, *, outage: bool = True, incident: int | None = None) -> None:
        super().__init__(message)
        self.outage = outage
        self.incident = incident
