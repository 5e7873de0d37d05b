"""What a fixed window would have done, for comparison."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TypeAlias

from ..policies import Policy

Stamps: TypeAlias = "dict[str, array[int]]"
_NONE: array[int] = array("q")


class FixedWindows:
    """Counts that start at zero with each window of the clock, as in many limiters."""

    def __init__(self, policies: tuple[Policy, ...]) -> None:
        self.refused = 0
        self.beyond = 0
        """Requests admitted although the limit was reached within the last window."""
        self._clocks = [_ClockWindow(policy) for policy in policies]

    @property
    def most(self) -> list[int]:
        """The most requests of one identifier admitted within one window, for each policy."""
        return [clock.most for clock in self._clocks]

    def hit(self, stamp: int, identifier: str) -> None:
        for clock in self._clocks:
            if not clock.admits(stamp, identifier):
                self.refused += 1
                return
        # Not any(): all of them are charged.
        self.beyond += max([clock.charge(stamp, identifier) for clock in self._clocks])


class _ClockWindow:
    """Admitted requests of the current window of the clock and of the one before.

    All identifiers share these windows, so nothing else has to be kept.
    """

    def __init__(self, policy: Policy) -> None:
        self.most = 0
        self._limit, self._span = policy.limit, policy.window_us
        self._number = -1
        self._now: Stamps = {}
        self._before: Stamps = {}

    def admits(self, stamp: int, identifier: str) -> bool:
        number = stamp // self._span
        if number != self._number:
            self._before = self._now if number == self._number + 1 else {}
            self._now = {}
            self._number = number
        return len(self._now.get(identifier, _NONE)) < self._limit

    def charge(self, stamp: int, identifier: str) -> bool:
        """Count a request; return whether it is beyond the limit of a sliding window."""
        now = self._now.get(identifier)
        if now is None:
            now = self._now[identifier] = array("q")
        now.append(stamp)
        before = self._before.get(identifier, _NONE)
        recent = len(now) + len(before)
        if recent > min(self.most, self._limit):
            # Only then does it matter how many of the earlier ones are still within the window.
            recent -= bisect_right(before, stamp - self._span)
            self.most = max(self.most, recent)
        return recent > self._limit
