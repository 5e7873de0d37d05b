"""Returns units to the store when their leases end, in a background thread.

A process that exits returns all its units. A forked child starts without any.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

from .background import Background
from .leases import Leases, Return

logger = logging.getLogger("django_slidingwindow")


class Returner:
    """Returns the units of one limiter's leases."""

    def __init__(self, leases: Leases, give: Callable[[Sequence[Return]], None]) -> None:
        """`give` returns units to the store."""
        self._leases = leases
        self._give = give
        self._background = Background(
            self._give_ended, name="django_slidingwindow.leases", forked=leases.begin
        )

    def watch(self) -> None:
        """Make sure that the thread wakes up when the next lease ends."""
        seconds = self._seconds()
        if seconds is not None:
            self._background.wake(seconds)

    def end(self) -> None:
        """Return all units."""
        self._give_all(self._leases.over(everything=True))

    def _give_ended(self) -> float | None:
        if self._background.stopping:
            self.end()
            return None
        self._give_all(self._leases.over())
        return self._seconds()

    def _seconds(self) -> float | None:
        """Return the seconds until the next lease ends; None if there is none."""
        due = self._leases.due
        return None if due == math.inf else max(0.0, due - self._leases.clock())

    def _give_all(self, returns: Sequence[Return]) -> None:
        try:
            self._give(returns)
        except Exception:
            # The units stay charged until they leave the window, so the limit holds.
            logger.exception("could not give back units of a lease")
