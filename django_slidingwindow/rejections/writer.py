"""Write the buffer of a log to its database, and count successes and failures."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import TypeAlias

from django.db import DataError, Error, IntegrityError, OperationalError, router, transaction

from .. import signals
from ..models import Rejection, Usage
from . import upsert
from .buffer import LogBuffer, LogGroup, LogTally
from .rows import Group as RefusalGroup
from .rows import Tally as RefusalTally
from .testcase import Sandbox
from .text import printable
from .usage_rows import UsageGroup, UsageTally

logger = logging.getLogger("django_slidingwindow.log")


Batch: TypeAlias = "Sequence[tuple[upsert.LogRow, LogGroup]]"
MODELS: dict[type[upsert.LogRow], tuple[str, str]] = {
    Rejection: ("rejection log", "refusals"),
    Usage: ("usage log", "requests"),
}
"""The logs, each with its name and the noun for its requests in messages."""

# Data errors that MySQL's drivers raise as OperationalError: out of range, truncated, wrong value,
# text that the character set of the column cannot store, too long.
_MYSQL_DATA_ERRORS = {1264, 1265, 1292, 1366, 1406}


def log_alias(model: type[upsert.LogRow] = Rejection) -> str:
    """Return the alias of a log's database, as chosen by the project's routers."""
    return router.db_for_write(model)


def try_to_write(alias: str, model: type[upsert.LogRow] = Rejection) -> None:
    """Write a row to a log and roll it back. Raise the error of the database, if any."""
    now = int(time.time())
    row: upsert.LogRow
    if model is Usage:
        row = UsageGroup(now // 60, "doctor", "", "").row(UsageTally(1, 1))
    else:
        refusals = RefusalGroup(now // 60, "doctor", None, "", "", "", "", "")
        row = refusals.row(RefusalTally(1, now, now, None))
    with transaction.atomic(using=alias):
        upsert.write([row], alias)
        transaction.set_rollback(True, using=alias)


class LogWriter:
    """Write the buffer, one thread at a time. Database errors are handled, not raised."""

    def __init__(self, model: type[upsert.LogRow], buffer: LogBuffer) -> None:
        self.model = model
        self.buffer = buffer
        self.sandbox = Sandbox()
        self.written = 0
        """Requests that are in the table."""
        self.batches = 0
        """Statements that succeeded."""
        self.failed = 0
        """Statements that failed."""
        self.down = False
        """Whether the last attempt found the database down."""
        self.error = ""
        """The error of the last attempt; empty if the database was not down."""
        self._name, self._noun = MODELS[model]
        self._lock = threading.Lock()
        self._taken: dict[LogGroup, LogTally] = {}
        """The rows that are being written."""
        self._dropped_reported = 0
        """The dropped requests that receivers of `log_written` know about."""

    def write(self) -> bool:
        """Write all waiting rows. Return False, and keep them, if the database is down."""
        with self._lock:
            alias = log_alias(self.model)
            self._taken = self.buffer.take()
            try:
                return self._write(self._taken, alias)
            finally:
                self._taken = {}

    def give_up(self) -> None:
        """Count and log the requests that are lost because the process exits.

        Takes no lock, because a write may hang.
        """
        rows = [*self._taken.values(), *self.buffer.take().values()]
        if not rows:
            return
        lost = sum(tally.hits for tally in rows)
        self.buffer.drop(lost)
        logger.error(
            "the process exits before the %s is written: %d %s are lost",
            self._name,
            lost,
            self._noun,
            extra={"hits": lost},
        )
        self._send_signal(len(rows), lost, 0.0, OperationalError("the process exits"))

    def _write(self, waiting: dict[LogGroup, LogTally], alias: str) -> bool:
        if not self.sandbox.permits(alias):
            self._drop(waiting)
            return True
        try:
            self._write_all(waiting, alias)
        except Error as error:
            # If the rows were written and only the reply was lost, they will count twice.
            self.buffer.put_back(waiting)
            self._note_outage(alias, error)
            return False
        except BaseException:
            self._drop(waiting)
            raise
        if self.down:
            self._note_recovery(alias)
        return True

    def _write_all(self, waiting: dict[LogGroup, LogTally], alias: str) -> None:
        """Write the rows. Remove those that are written or lost from `waiting`."""
        rows = [(group.row(tally), group) for group, tally in waiting.items()]
        rows.sort(key=lambda pair: upsert.lock_order(pair[0]))
        lost = sum(
            self._write_batch(batch, waiting, alias)
            for batch in upsert.batches(rows, self.model, alias)
        )
        if lost:
            logger.error(
                "the database rejected rows of the %s: %d %s are lost",
                self._name,
                lost,
                self._noun,
                extra={"alias": alias, "hits": lost},
            )

    def _write_batch(self, batch: Batch, waiting: dict[LogGroup, LogTally], alias: str) -> int:
        """Write a batch. Return the number of requests in rows that the database rejected."""
        lost = 0
        if not self._execute([row for row, _ in batch], alias):
            if len(batch) > 1:
                # Write row by row, so that only invalid rows are lost.
                return sum(self._write_batch([pair], waiting, alias) for pair in batch)
            lost = batch[0][0].hits
            self.buffer.drop(lost)
        for _, group in batch:
            del waiting[group]
        return lost

    def _execute(self, rows: list[upsert.LogRow], alias: str) -> bool:
        """Write the rows. Return False if they are invalid; raise if a retry may succeed."""
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
            if not _is_data_error(failure):
                raise
        finally:
            self._send_signal(len(rows), hits, time.monotonic() - start, error)
        return error is None

    def _drop(self, waiting: dict[LogGroup, LogTally]) -> None:
        self.buffer.drop(sum(tally.hits for tally in waiting.values()))

    def _send_signal(self, rows: int, hits: int, seconds: float, error: Error | None) -> None:
        dropped = self.buffer.dropped
        new, self._dropped_reported = dropped - self._dropped_reported, dropped
        signals.send(
            signals.log_written,
            type(self),
            rows=rows,
            hits=hits,
            seconds=seconds,
            error=error,
            dropped=new,
        )

    def _note_outage(self, alias: str, error: Error) -> None:
        self.error = error_text(error)
        if not self.down:
            self.down = True
            logger.warning(
                "cannot write the %s (%s); %s are kept in memory until it works",
                self._name,
                self.error,
                self._noun,
                extra={"alias": alias, "waiting": len(self.buffer)},
            )

    def _note_recovery(self, alias: str) -> None:
        self.down = False
        self.error = ""
        logger.warning(
            "the %s is being written again; %d %s were lost since the start",
            self._name,
            self.buffer.dropped,
            self._noun,
            extra={"alias": alias, "dropped": self.buffer.dropped},
        )


def error_text(error: BaseException) -> str:
    """Return an error as one line that a terminal can show."""
    return f"{type(error).__name__}: {printable(str(error).strip())}"


def _is_data_error(error: Error) -> bool:
    """Return whether the rows are invalid, as opposed to a database that is down."""
    is_data_error = isinstance(error, (DataError, IntegrityError))
    return is_data_error or bool(_MYSQL_DATA_ERRORS.intersection(error.args[:1]))
