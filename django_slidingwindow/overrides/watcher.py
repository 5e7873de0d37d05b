"""Keep the overrides of this process up to date.

A thread reads the version of the overrides from the database, often enough to notice a change
within OVERRIDES_SECONDS. It reads the table when the version has changed. The thread starts with
the first check of a limit. While the database is down, the overrides that were read last apply;
before the first read, only the settings apply.

In tests there is no thread. An override applies as soon as it is saved, and in a TestCase until the
transaction of the test ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from django.db import connections, transaction

from ..conf import conf
from ..core.background import Background
from ..guard import override_snapshot
from ..rejections.testcase import testing
from ..rejections.writer import error_text
from .table import database, read_snapshot, read_version

logger = logging.getLogger("django_slidingwindow.overrides")

# Seconds for which an exiting process waits for the thread.
_EXIT_SECONDS = 1.0
# The share of OVERRIDES_SECONDS that passes between two looks. The rest is for reading the table.
_INTERVAL_SHARE = 0.75
_UNREAD = object()
# The engine that Django uses for a project without a database.
_NO_DATABASE = "django.db.backends.dummy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What this process knows about overrides."""

    count: int
    """The number of overrides that it has read. Some may have ended since then."""
    age: float | None
    """Seconds since the database was last read; None if it never was."""
    running: bool
    """Whether the thread is alive. It starts with the first check."""
    error: str
    """Why the last attempt to read failed; empty if it succeeded."""


class Watcher:
    """Reads the overrides for one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._background = Background(
            self._look,
            name="django_slidingwindow.overrides",
            forked=self.begin,
            exit_seconds=_EXIT_SECONDS,
        )
        self.begin()

    def begin(self) -> None:
        """Reset everything except for the overrides themselves. A forked child calls this."""
        self._reading = threading.Lock()
        self._first_read = threading.Event()
        self._version: object = _UNREAD
        self._read_at: float | None = None
        self._error = ""

    def start(self) -> None:
        """Start the thread, and wait for its first read, but no longer than a check may take."""
        if self._background.running or not conf.overrides_seconds or testing():
            return
        if connections.settings[database()]["ENGINE"] == _NO_DATABASE:
            return
        self._background.wake()
        if self._background.running:
            self._first_read.wait(conf.latency_budget)

    def saved(self, using: str) -> None:
        """Read the overrides again after the commit, if this process uses them."""
        if not conf.overrides_seconds or not (self._background.running or testing()):
            return
        connection: Any = connections[using]
        blocks = [block for block in connection.atomic_blocks if block._from_testcase]
        if blocks:
            # The transaction of a test is never committed.
            self.refresh(lambda: blocks[-1] in connection.atomic_blocks)
        else:
            transaction.on_commit(self.refresh, using=using)

    def refresh(self, lasts: Callable[[], bool] | None = None) -> bool:
        """Read the overrides if they have changed. Return False if that failed.

        `lasts` returns whether these overrides still apply; without it, they apply until the next
        change.
        """
        with self._reading:
            try:
                self._read(lasts)
            except Exception as error:  # noqa: BLE001 -- also from a router or a driver
                self._failed(error)
                return False
            self._read_at, self._error = self._clock(), ""
            return True

    def invalidate(self) -> None:
        """Read the table at the next look, even if its version is the same.

        Until then, the overrides that were read last apply. In tests there are no looks, so the
        overrides are dropped.
        """
        # Wait for a read that has begun: it may have begun before the table has changed.
        with self._reading:
            self._version = _UNREAD
            if testing():
                override_snapshot.publish(None)

    def status(self) -> Status:
        snapshot, read_at = override_snapshot.current, self._read_at
        return Status(
            count=0 if snapshot is None else snapshot.size,
            age=None if read_at is None else self._clock() - read_at,
            running=self._background.running,
            error=self._error,
        )

    def _read(self, lasts: Callable[[], bool] | None) -> None:
        using = database()
        # Read before the rows: if they change in between, the next look finds another version.
        version = read_version(using)
        if version == self._version:
            return
        snapshot = read_snapshot(using)
        snapshot.lasts, snapshot.before = lasts, override_snapshot.current if lasts else None
        override_snapshot.publish(snapshot)
        self._version = version

    def _failed(self, error: Exception) -> None:
        """Log an error, but not the same one again until a read has succeeded."""
        text = error_text(error)
        if text != self._error:
            self._error = text
            holds = "the settings hold" if self._read_at is None else "the last ones hold"
            logger.error("could not read the overrides, so %s: %s", holds, text)

    def _look(self) -> float | None:
        """Read the overrides if they have changed. Return the seconds until the next look."""
        with ExitStack() as cleanup:
            # Unless the thread looks again, it leaves no connection open.
            cleanup.callback(connections.close_all)
            if self._background.stopping or not conf.overrides_seconds:
                return None
            self.refresh()
            self._first_read.set()
            for connection in connections.all(initialized_only=True):
                # As after a request, a connection is kept for CONN_MAX_AGE.
                connection.close_if_unusable_or_obsolete()
            cleanup.pop_all()
        return _INTERVAL_SHARE * conf.overrides_seconds


watcher = Watcher()
