"""The refusals that wait to be written: added up, in a bounded number of rows.

Two bounds: `max_rows` wait at a time, and LOG_ROWS_PER_MINUTE are begun in a minute.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from ..conf import conf
from .rows import Group, Tally, overflow


class Tallies:
    """Counts by group, safe among threads. What finds no room is counted as dropped."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.recorded = 0
        """Refusals taken in, or dropped for lack of room."""
        self.dropped = 0
        """Refusals that will never be written."""
        self._lock = threading.Lock()
        self._rows: dict[Group, Tally] = {}
        self._minute = 0
        self._begun: set[Group] = set()
        """The rows of that minute, whether they wait or are written."""

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, group: Group, tally: Tally) -> bool:
        """True if so many rows wait that they should be written at once."""
        with self._lock:
            self.recorded += tally.hits
            known = self._rows.get(group)
            if known is not None:
                known.add(tally)
                return False
            group = self._within_bound(group)
            return self._merge(group, tally) and len(self._rows) == self.max_rows // 2

    def take(self) -> dict[Group, Tally]:
        """All that waits; nothing waits after that."""
        with self._lock:
            rows, self._rows = self._rows, {}
        return rows

    def put_back(self, rows: Mapping[Group, Tally]) -> None:
        """What could not be written waits again, as far as there is room."""
        with self._lock:
            for group, tally in rows.items():
                self._merge(group, tally)

    def drop(self, hits: int) -> None:
        """Counts refusals that are given up."""
        with self._lock:
            self.dropped += hits

    def _within_bound(self, group: Group) -> Group:
        """Return the group, or the one that collects what is beyond LOG_ROWS_PER_MINUTE."""
        minute, begun = group.minute, self._begun
        # A thread may be late by a minute; a clock that was set back is not.
        if not minute <= self._minute <= minute + 1:
            self._minute = minute
            begun.clear()
        if group not in begun:
            if len(begun) >= conf.log_rows_per_minute:
                return overflow(group)
            begun.add(group)
        return group

    def _merge(self, group: Group, tally: Tally) -> bool:
        """True if it made a new row."""
        known = self._rows.get(group)
        if known is not None:
            known.add(tally)
        elif len(self._rows) < self.max_rows:
            self._rows[group] = tally
            return True
        else:
            self.dropped += tally.hits
        return False
