"""Requests and refusals over time, with bounded memory."""

from __future__ import annotations

from dataclasses import dataclass

from .times import SECOND

MINUTE = 60 * SECOND
COLUMNS = 120
"""The most columns of a timeline."""
# The lengths of a column, in minutes. From a day on, the length doubles.
_COLUMN_MINUTES = (1, 5, 15, 60, 180, 720, 1_440)


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """The requests and refusals of one minute of the clock."""

    stamp: int
    requests: int
    refused: tuple[int, ...]
    """The refusals by each candidate."""


class Timeline:
    """Columns of equal length on the clock. They are joined when there are too many of them."""

    def __init__(self, candidates: int) -> None:
        self.minutes = _COLUMN_MINUTES[0]
        """The length of a column in minutes."""
        self.busiest: Minute | None = None
        """The first minute with the most requests."""
        self._first_column = 0
        # The counts by column: of requests, and of the refusals by each candidate.
        self._series: list[list[int]] = [[] for _ in range(1 + candidates)]

    @property
    def requests(self) -> list[int]:
        return self._series[0]

    @property
    def refused(self) -> list[list[int]]:
        return self._series[1:]

    def add(self, minute: Minute) -> None:
        """Add a minute. It must come after all minutes that were added before."""
        if self.busiest is None:
            self._first_column = self._column(minute.stamp)
        if self.busiest is None or minute.requests > self.busiest.requests:
            self.busiest = minute
        while self._column(minute.stamp) - self._first_column >= COLUMNS:
            self._join()
        column = self._column(minute.stamp) - self._first_column
        for series, count in zip(self._series, (minute.requests, *minute.refused), strict=True):
            _count(series, column, count)

    def stamps(self) -> list[int]:
        """Return when each column begins."""
        return [(self._first_column + i) * self.minutes * MINUTE for i in range(len(self.requests))]

    def _column(self, stamp: int) -> int:
        return stamp // (self.minutes * MINUTE)

    def _join(self) -> None:
        """Join columns, so that each has the next greater length."""
        before = self.minutes
        longer = [length for length in _COLUMN_MINUTES if length > before]
        self.minutes = longer[0] if longer else 2 * before
        first, self._first_column = self._first_column, self._first_column * before // self.minutes
        for series in self._series:
            counts, series[:] = series[:], []
            for i, count in enumerate(counts, first):
                _count(series, i * before // self.minutes - self._first_column, count)


def _count(series: list[int], column: int, count: int) -> None:
    """Add a count to a column, and make the columns before it if they are missing."""
    series += [0] * (column + 1 - len(series))
    series[column] += count
