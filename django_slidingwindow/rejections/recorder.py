"""Count requests in memory, and write the counts to the logs from a background thread.

Refusals go to the rejection log. Admitted requests of profiles with `"log": "all"` go to the usage
log. Each log has its own buffer with its own bounds, so that one cannot displace the other.

A request only adds to a count in memory. The thread starts with the first request, and writes the
counts every `INTERVAL` seconds. Requests are not affected if the database is down: the number of
waiting rows is bounded, and requests that do not fit are counted as dropped.

In a TestCase, nothing is written before `flush()` is called, which uses the connection and the
transaction of the test. Other tests can wait for the thread, or call `flush()`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import connections

from ..core.background import Background
from ..decisions import Decision
from ..models import Rejection, Usage
from .buffer import LogBuffer, LogGroup, LogTally
from .rows import refusals
from .testcase import testing
from .text import printable
from .usage_rows import admissions
from .writer import LogWriter, error_text, log_alias

if TYPE_CHECKING:
    from ..core.windows import WindowSet

logger = logging.getLogger("django_slidingwindow.log")

MAX_ROWS = 10_000
"""The most rows of a log that wait in a process: about 10 MB."""
INTERVAL = 2.0
"""Seconds between two batches."""
LONGEST_PAUSE = 60.0
"""The longest pause in seconds between attempts while the database is down. Pauses double."""
EXIT_SECONDS = 10.0
"""Seconds that an exiting process waits for a batch: twice what SQLite waits for a lock."""
EXIT_LONGEST = 25.0
"""Seconds that an exiting process waits for all batches. Servers kill workers after 30 seconds."""
EXIT_PAUSE = 0.2
"""Seconds between attempts while the process exits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counters of both logs in this process."""

    recorded: int
    """Requests that were counted: the sum of written, dropped and unwritten ones."""
    written: int
    """Requests that are in a table."""
    dropped: int
    """Requests that will never be written."""
    unwritten: int
    """Requests that wait or are being written."""
    waiting: int
    """Rows that wait to be written."""
    batches: int
    """Statements that succeeded."""
    failed: int
    """Statements that failed."""
    down: bool
    """Whether the last attempt found the database down."""
    running: bool
    """Whether the writing thread is alive. It starts with the first request."""
    deaths: int
    """How often the writing thread died and was replaced."""
    error: str
    """Why the last attempt to write failed; empty if it succeeded."""


class Recorder:
    """The logs of one process."""

    def __init__(
        self,
        *,
        max_rows: int = MAX_ROWS,
        interval: float = INTERVAL,
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        self._max_rows = max_rows
        self._interval = interval
        self._longest_pause = longest_pause
        self._background = Background(
            self._write_or_retry,
            name="django_slidingwindow.log",
            forked=self._begin,
            at_exit=self.stop,
            ends_idle=False,
        )
        self._begin()

    def _begin(self) -> None:
        """Start with empty buffers, also in a forked child: waiting rows belong to its parent."""
        self._refusals = LogWriter(Rejection, LogBuffer(self._max_rows))
        self._usage = LogWriter(Usage, LogBuffer(self._max_rows))
        self._writers = (self._refusals, self._usage)
        self._pause = self._interval
        self._error = ""

    def record(self, request: Any, decision: Decision) -> None:
        """Count a refusal in memory, without a query."""
        self._add(self._refusals, refusals(request, decision, time.time()))

    def count(self, request: Any, windows: WindowSet, counted: Mapping[str, Any]) -> None:
        """Count an admitted request in memory, without a query."""
        self._add(self._usage, admissions(request, windows, counted, time.time()))

    def _add(self, writer: LogWriter, counts: Iterable[tuple[LogGroup, LogTally]]) -> None:
        buffer = writer.buffer
        held = testing() and writer.sandbox.holds(log_alias(writer.model), buffer.take)
        half_full = False
        for group, tally in counts:
            half_full |= buffer.add(group, tally)
        if not held:
            self._background.wake(0.0 if half_full else self._pause)

    def flush(self) -> bool:
        """Write now, on this thread's connection. Return False if a database is down."""
        written = [writer.write() for writer in self._writers]
        return all(written)

    def stop(self, seconds: float = EXIT_SECONDS, longest: float = EXIT_LONGEST) -> None:
        """Let the thread write the waiting rows and end. Log the rows that are lost.

        Wait up to `seconds` for each batch, and up to `longest` for all batches.
        """
        until = time.monotonic() + longest
        batches, left = -1, longest
        # Wait again if a batch was written meanwhile: the database is slow, but not down.
        while batches != self._batches and left >= 0:
            batches = self._batches
            if self._background.stop(min(seconds, left)):
                break
            left = until - time.monotonic()
        if self._background.woken:
            for writer in self._writers:
                writer.give_up()

    @property
    def _batches(self) -> int:
        return sum(writer.batches for writer in self._writers)

    def stats(self) -> Stats:
        writers, background = self._writers, self._background
        # Read `recorded` last, so that it is never smaller than `written`.
        written = sum(writer.written for writer in writers)
        dropped = sum(writer.buffer.dropped for writer in writers)
        recorded = sum(writer.buffer.recorded for writer in writers)
        errors = [printable(background.error), self._error, *(one.error for one in writers)]
        return Stats(
            recorded=recorded,
            written=written,
            dropped=dropped,
            unwritten=recorded - written - dropped,
            waiting=sum(len(writer.buffer) for writer in writers),
            batches=self._batches,
            failed=sum(writer.failed for writer in writers),
            down=any(writer.down for writer in writers),
            running=background.running,
            deaths=background.deaths,
            error=next(filter(None, errors), ""),
        )

    def _write_or_retry(self) -> float | None:
        """Write the waiting rows. Return the seconds until a retry; None if none is needed."""
        if self._write():
            self._pause = self._interval
            return None
        longer = min(2 * self._pause, self._longest_pause)
        self._pause = EXIT_PAUSE if self._background.stopping else longer
        return self._pause

    def _write(self) -> bool:
        """Write the waiting rows. Log errors, and return False if some rows may still wait."""
        done = False
        try:
            try:
                done = self.flush()
            finally:
                # Do not keep connections: a fork or a failover would leave them in a bad state.
                connections.close_all()
        except Exception as error:  # from a router, a driver or a receiver
            # Log the same error only once, until a write succeeds.
            text = error_text(error)
            if text != self._error:
                self._error = text
                logger.exception("could not write the rejection log and the usage log")
        else:
            self._error = ""
        return done


_recorder = Recorder()
record = _recorder.record
count = _recorder.count
flush = _recorder.flush
stats = _recorder.stats
