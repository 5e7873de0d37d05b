"""The errors that leave this package."""

from __future__ import annotations


class SlidingWindowError(Exception):
    """Base of every error of this package."""


class PolicyError(SlidingWindowError, ValueError):
    """A rate, window, limit or algorithm that cannot be used; says what is allowed."""


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
