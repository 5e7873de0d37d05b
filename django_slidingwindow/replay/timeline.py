"""Requests and refusals over time, with bounded memory."""

from __future__ import annotations

from dataclasses import dataclass

from .times import SECOND

MINUTE = 60 * SECOND
COLUMNS = 120
"""The most columns of a timeline."""
# Minutes of a column. After a day, twice as many again and again.
_LENGTHS = (1, 5, 15, 60, 180, 720, 1_440)


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """A minute of the clock."""

    stamp: int
    requests: int
    refused: tuple[int, ...]
    """By each candidate."""


class Timeline:
    """Columns of equal length on the clock, which are joined when there are too many of them."""

    def __init__(self, candidates: int) -> None:
        self.minutes = _LENGTHS[0]
        """The length of a column."""
        self.busiest: Minute | None = None
        """The first minute with the most requests."""
        self._first = 0
        # Requests, and the refusals of each candidate.
        self._series: list[list[int]] = [[] for _ in range(1 + candidates)]

    @property
    def requests(self) -> list[int]:
        return self._series[0]

    @property
    def refused(self) -> list[list[int]]:
        return self._series[1:]

    def add(self, minute: Minute) -> None:
        """Add a minute, which comes after those before it."""
        if self.busiest is None:
            self._first = self._number(minute.stamp)
        if self.busiest is None or minute.requests > self.busiest.requests:
            self.busiest = minute
        while self._number(minute.stamp) - self._first >= COLUMNS:
            self._join()
        at = self._number(minute.stamp) - self._first
        for series, count in zip(self._series, (minute.requests, *minute.refused), strict=True):
            series += [0] * (at + 1 - len(series))
            series[at] += count

    def stamps(self) -> list[int]:
        """Return when each column begins."""
        return [(self._first + i) * self.minutes * MINUTE for i in range(len(self.requests))]

    def _number(self, stamp: int) -> int:
        return stamp // (self.minutes * MINUTE)

    def _join(self) -> None:
        """Join columns, so that each covers the next longer time."""
        before = self.minutes
        longer = [length for length in _LENGTHS if length > before]
        self.minutes = longer[0] if longer else 2 * before
        first, self._first = self._first, self._first * before // self.minutes
        for series in self._series:
            counts, series[:] = series[:], []
            for i, count in enumerate(counts, first):
                at = i * before // self.minutes - self._first
                series += [0] * (at + 1 - len(series))
                series[at] += count
