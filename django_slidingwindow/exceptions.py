"""The errors that leave this package."""

from __future__ import annotations


class SlidingWindowError(Exception):
    """Base of every error of this package."""


class PolicyError(SlidingWindowError, ValueError):
    """A rate, window, limit or algorithm that cannot be used; says what is allowed."""


class StoreError(SlidingWindowError):
    """The store could not answer. Always raised from the cause."""
