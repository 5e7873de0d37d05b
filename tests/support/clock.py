"""A clock for stores and limiters that stands still until a test moves it."""

from __future__ import annotations

SECOND = 1_000_000
DAY = 86_400 * SECOND
# A time in November 2025 at which a window of 400 days begins on the wall clock. Windows whose
# length divides 400 days, which are most of those in the tests, begin then too.
START = 51 * 400 * DAY


class Clock:
    """A clock in microseconds that moves only when a test sets `now`."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now
