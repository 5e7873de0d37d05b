"""The buffer of a log: a bounded number of rows that wait in memory to be written.

There are two bounds: at most `max_rows` rows wait at a time, and at most LOG_ROWS_PER_MINUTE
new rows are started in a minute.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ..conf import conf

if TYPE_CHECKING:
    from .upsert import LogRow


class LogGroup(Hashable, Protocol):
    """The values shared by all requests that are counted in one row."""

    @property
    def minute(self) -> int:
        """Minutes since the epoch."""

    def overflow(self) -> LogGroup:
        """Return the group that collects requests beyond LOG_ROWS_PER_MINUTE."""

    def row(self, tally: Any) -> LogRow:
        """Return the unsaved row."""


class LogTally(Protocol):
    """The counts of a group."""

    hits: int

    def add(self, other: Any) -> None:
        """Add another tally of the same group."""


class LogBuffer:
    """A thread-safe tally for each group. Requests that do not fit are counted as dropped."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.recorded = 0
        """Requests that were added, including those that did not fit."""
        self.dropped = 0
        """Requests that will never be written."""
        self._lock = threading.Lock()
        self._rows: dict[LogGroup, LogTally] = {}
        self._minute = 0
        self._started: set[LogGroup] = set()
        """The groups that have a row in that minute, both waiting and written."""

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, group: LogGroup, tally: LogTally) -> bool:
        """Add a tally. Return True if the buffer is half full and should be written at once."""
        with self._lock:
            self.recorded += tally.hits
            existing = self._rows.get(group)
            if existing is not None:
                existing.add(tally)
                return False
            group = self._within_bound(group)
            return self._merge(group, tally) and len(self._rows) == self.max_rows // 2

    def take(self) -> dict[LogGroup, LogTally]:
        """Return all waiting rows and empty the buffer."""
        with self._lock:
            rows, self._rows = self._rows, {}
        return rows

    def put_back(self, rows: Mapping[LogGroup, LogTally]) -> None:
        """Add rows that could not be written. Rows that do not fit are counted as dropped."""
        with self._lock:
            for group, tally in rows.items():
                self._merge(group, tally)

    def drop(self, hits: int) -> None:
        """Count requests that will never be written."""
        with self._lock:
            self.dropped += hits

    def _within_bound(self, group: LogGroup) -> LogGroup:
        """Return the group, or its overflow group if LOG_ROWS_PER_MINUTE is reached."""
        minute, started = group.minute, self._started
        # A thread may be up to a minute late. A larger step back means that the clock was set.
        if not minute <= self._minute <= minute + 1:
            self._minute = minute
            started.clear()
        if group not in started:
            if len(started) >= conf.log_rows_per_minute:
                return group.overflow()
            started.add(group)
        return group

    def _merge(self, group: LogGroup, tally: LogTally) -> bool:
        """Add a tally to its row. Return True if the row is new."""
        existing = self._rows.get(group)
        if existing is not None:
            existing.add(tally)
        elif len(self._rows) < self.max_rows:
            self._rows[group] = tally
            return True
        else:
            self.dropped += tally.hits
        return False
