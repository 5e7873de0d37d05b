"""Writes what waits to the log's database, and accounts for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import TypeAlias

from django.db import DataError, Error, IntegrityError, OperationalError, router, transaction

from .. import signals
from ..models import Rejection
from . import upsert
from .buffer import Tallies
from .rows import Group, Tally, row_of
from .testcase import Sandbox
from .text import printable

logger = logging.getLogger("django_slidingwindow.log")


Batch: TypeAlias = "Sequence[tuple[Rejection, Group]]"

# MySQL's drivers know some errors of data only as operational ones: out of range,
# truncated, a wrong value, text that the column's character set lacks, too long.
_MYSQL_DATA = {1264, 1265, 1292, 1366, 1406}


def log_alias() -> str:
    """The database of the log, as the project's routers say."""
    return router.db_for_write(Rejection)


def try_to_write(alias: str) -> None:
    """Write a row of the log and take it back; raises what the database says against it."""
    now = int(time.time())
    group = Group(now // 60, "doctor", None, "", "", "", "", "")
    with transaction.atomic(using=alias):
        upsert.write([row_of(group, Tally(1, now, now, None))], alias)
        transaction.set_rollback(True, using=alias)


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
        self.error = ""
        """What it said then; empty if it was not away."""
        self._tallies = tallies
        self._sandbox = sandbox
        self._lock = threading.Lock()
        self._taken: dict[Group, Tally] = {}
        self._dropped_told = 0

    def write(self) -> bool:
        """Writes all that waits; False if the database is away, and then it waits on."""
        with self._lock:
            alias = log_alias()
            self._taken = self._tallies.take()
            try:
                return self._write(self._taken, alias)
            finally:
                self._taken = {}

    def give_up(self) -> None:
        """Count and log what a process that ends takes along, though a write may hang."""
        rows = [*self._taken.values(), *self._tallies.take().values()]
        if not rows:
            return
        lost = sum(tally.hits for tally in rows)
        self._tallies.drop(lost)
        logger.error(
            "this process ends before the rejection log is written: %d refusals are lost",
            lost,
            extra={"hits": lost},
        )
        self._tell(len(rows), lost, 0.0, OperationalError("the process ends"))

    def _write(self, waiting: dict[Group, Tally], alias: str) -> bool:
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
        lost = sum(
            self._write_batch(batch, waiting, alias) for batch in upsert.batches(rows, alias)
        )
        if lost:
            logger.error(
                "the database refused rows of the rejection log: %d refusals are lost",
                lost,
                extra={"alias": alias, "hits": lost},
            )

    def _write_batch(self, batch: Batch, waiting: dict[Group, Tally], alias: str) -> int:
        """The refusals that are lost, since the database will never take their rows."""
        lost = 0
        if not self._execute([row for row, _ in batch], alias):
            if len(batch) > 1:
                # Only the row that is wrong shall be lost, and hold up nobody.
                return sum(self._write_batch([pair], waiting, alias) for pair in batch)
            lost = batch[0][0].hits
            self._tallies.drop(lost)
        for _, group in batch:
            del waiting[group]
        return lost

    def _execute(self, rows: list[Rejection], alias: str) -> bool:
        """False if the database refuses such rows; raises if it may take them later."""
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
            if not _is_refusal(failure):
                raise
        finally:
            self._tell(len(rows), hits, time.monotonic() - start, error)
        return error is None

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
        self.error = error_text(error)
        if not self.down:
            self.down = True
            logger.warning(
                "the rejection log cannot be written (%s); it is kept in memory",
                self.error,
                extra={"alias": alias, "waiting": len(self._tallies)},
            )

    def _came_back(self, alias: str) -> None:
        self.down = False
        self.error = ""
        logger.warning(
            "the rejection log is written again; %d refusals were lost since the start",
            self._tallies.dropped,
            extra={"alias": alias, "dropped": self._tallies.dropped},
        )


def error_text(error: BaseException) -> str:
    """Return an error as one line that a terminal can show."""
    return f"{type(error).__name__}: {printable(str(error).strip())}"


def _is_refusal(error: Error) -> bool:
    """Whether the rows are wrong, rather than the database away."""
    refused = isinstance(error, (DataError, IntegrityError))
    return refused or bool(_MYSQL_DATA.intersection(error.args[:1]))
