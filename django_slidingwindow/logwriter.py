"""Writes what waits to the log's database, and accounts for it."""

from __future__ import annotations

import logging
import threading
import time

from django.db import DataError, Error, IntegrityError, router

from . import signals, upsert
from .models import Rejection
from .printable import printable
from .rejections import Group, Tally, row_of
from .sandbox import Sandbox
from .tallies import Tallies

logger = logging.getLogger("django_slidingwindow.log")


def log_alias() -> str:
    """The database of the log, as the project's routers say."""
    return router.db_for_write(Rejection)


class LogWriter:
    """One writer at a time; nothing that the database does is raised."""

    def __init__(self, tallies: Tallies, sandbox: Sandbox) -> None:
        self.written = 0
        """Refusals that the table counts."""
        self.batches = 0
        """Statements that wrote."""
        self.failed = 0
        """Statements that did not."""
        self.down = False
        """Whether the database was away when it was last asked."""
        self._tallies = tallies
        self._sandbox = sandbox
        self._lock = threading.Lock()
        self._dropped_told = 0

    def write(self) -> bool:
        """Writes all that waits; False if the database is away, and then it waits on."""
        with self._lock:
            alias = log_alias()
            waiting = self._tallies.take()
            if not self._sandbox.permits(alias):
                self._drop(waiting)
                return True
            try:
                self._write_all(waiting, alias)
            except Error as error:
                # If only the answer was lost, these rows will count twice.
                self._tallies.put_back(waiting)
                self._went_away(alias, error)
                return False
            except BaseException:
                self._drop(waiting)
                raise
            if self.down:
                self._came_back(alias)
            return True

    def _write_all(self, waiting: dict[Group, Tally], alias: str) -> None:
        """Removes from `waiting` what is done with."""
        rows = [(row_of(group, tally), group) for group, tally in waiting.items()]
        rows.sort(key=lambda pair: upsert.lock_order(pair[0]))
        for batch in upsert.batches(rows, alias):
            self._write_batch([row for row, _ in batch], alias)
            for _, group in batch:
                del waiting[group]

    def _write_batch(self, rows: list[Rejection], alias: str) -> None:
        start = time.monotonic()
        hits = sum(row.hits for row in rows)
        error: Error | None = None
        try:
            upsert.write(rows, alias)
            self.batches += 1
            self.written += hits
        except Error as failure:
            self.failed += 1
            error = failure
            if not isinstance(failure, (DataError, IntegrityError)):
                raise
            # It would be refused for ever, and what is behind it would wait for ever.
            self._tallies.drop(hits)
            logger.error(
                "the rejection log has lost %d refusals: the database refused %d rows (%s)",
                hits,
                len(rows),
                type(failure).__name__,
                extra={"alias": alias, "rows": len(rows), "hits": hits},
            )
        finally:
            self._tell(len(rows), hits, time.monotonic() - start, error)

    def _drop(self, waiting: dict[Group, Tally]) -> None:
        self._tallies.drop(sum(tally.hits for tally in waiting.values()))

    def _tell(self, rows: int, hits: int, seconds: float, error: Error | None) -> None:
        dropped = self._tallies.dropped
        new, self._dropped_told = dropped - self._dropped_told, dropped
        signals.tell(
            signals.log_written,
            type(self),
            rows=rows,
            hits=hits,
            seconds=seconds,
            error=error,
            dropped=new,
        )

    def _went_away(self, alias: str, error: Error) -> None:
        if not self.down:
            self.down = True
            logger.warning(
                "the rejection log cannot be written (%s: %s); it is kept in memory",
                type(error).__name__,
                printable(str(error).strip()),
                extra={"alias": alias, "waiting": len(self._tallies)},
            )

    def _came_back(self, alias: str) -> None:
        self.down = False
        logger.warning(
            "the rejection log is written again; %d refusals were lost since the start",
            self._tallies.dropped,
            extra={"alias": alias, "dropped": self._tallies.dropped},
        )
