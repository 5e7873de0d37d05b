"""Fixed windows, to compare with: what they would have admitted and refused."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TypeAlias

from ..policies import Policy

Stamps: TypeAlias = "dict[str, array[int]]"
_EMPTY: array[int] = array("q")


class FixedWindows:
    """Counts that start again from zero with each window of the clock, as in many limiters."""

    def __init__(self, policies: tuple[Policy, ...]) -> None:
        self.refused = 0
        self.beyond = 0
        """Requests admitted although the limit was reached within the last window."""
        self._windows = [_FixedWindow(policy) for policy in policies]

    @property
    def most(self) -> list[int]:
        """The most requests of one identifier admitted within one window, for each policy."""
        return [window.most for window in self._windows]

    def hit(self, stamp: int, identifier: str) -> None:
        for window in self._windows:
            if not window.admits(stamp, identifier):
                self.refused += 1
                return
        # A list instead of any(), which would stop early: every window must be charged.
        self.beyond += max([window.charge(stamp, identifier) for window in self._windows])


class _FixedWindow:
    """The requests that a policy admits in the current and the previous window of the clock.

    The windows begin at the same time for all identifiers, so older requests can be forgotten.
    """

    def __init__(self, policy: Policy) -> None:
        self.most = 0
        self._limit, self._window_us = policy.limit, policy.window_us
        self._number = -1
        self._current: Stamps = {}
        self._previous: Stamps = {}

    def admits(self, stamp: int, identifier: str) -> bool:
        number = stamp // self._window_us
        if number != self._number:
            self._previous = self._current if number == self._number + 1 else {}
            self._current = {}
            self._number = number
        return len(self._current.get(identifier, _EMPTY)) < self._limit

    def charge(self, stamp: int, identifier: str) -> bool:
        """Count a request; return whether it is beyond the limit of a sliding window."""
        current = self._current.get(identifier)
        if current is None:
            current = self._current[identifier] = array("q")
        current.append(stamp)
        previous = self._previous.get(identifier, _EMPTY)
        recent = len(current) + len(previous)
        if recent > min(self.most, self._limit):
            # A smaller count changes no result, so the exact one is computed only here.
            recent -= bisect_right(previous, stamp - self._window_us)
            self.most = max(self.most, recent)
        return recent > self._limit
