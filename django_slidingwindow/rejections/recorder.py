"""Record refusals, and write them to the log in batches from a background thread.

A request only adds to a count in memory. The thread starts with the first refusal and writes
the counts every `INTERVAL` seconds. If the database is down, requests are not affected; the
number of waiting rows is bounded, and refusals that do not fit are counted as dropped.

In a TestCase nothing is written before `flush()` is called, which uses the connection and the
transaction of the test. Other tests can wait for the thread or call `flush()`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass
from typing import Any

from django.db import connections

from ..core.exits import at_exit
from ..decisions import Decision
from .buffer import Tallies
from .rows import refusals
from .testcase import Sandbox, testing
from .writer import LogWriter, error_text, log_alias

logger = logging.getLogger("django_slidingwindow.log")

MAX_ROWS = 10_000
"""The most rows that wait in a process: about 10 MB."""
INTERVAL = 2.0
"""Seconds between two batches."""
LONGEST_PAUSE = 60.0
"""The longest pause in seconds between attempts while the database is down. Pauses double."""
EXIT_SECONDS = 10.0
"""Seconds that an exiting process waits for a batch: twice what SQLite waits for a lock."""
EXIT_LONGEST = 25.0
"""Seconds that an exiting process waits for all batches. Servers kill workers after 30."""
EXIT_PAUSE = 0.2
"""Seconds between attempts while the process exits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counters of the rejection log in this process."""

    recorded: int
    """All refusals. Each is written, dropped or unwritten."""
    written: int
    """Refusals that are in the table."""
    dropped: int
    """Refusals that will never be written."""
    unwritten: int
    """Refusals that wait, or are being written now."""
    waiting: int
    """Rows that wait to be written."""
    batches: int
    """Statements that succeeded."""
    failed: int
    """Statements that failed."""
    down: bool
    """Whether the last attempt found the database down."""
    running: bool
    """Whether the writing thread is alive. It starts with the first refusal."""
    deaths: int
    """How often the writing thread died and was replaced."""
    error: str
    """Why the last attempt to write failed; empty if it succeeded."""


class Recorder:
    """The rejection log of one process."""

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
        self.begin()

    def begin(self) -> None:
        """Reset all state. A forked child calls this: the waiting rows belong to its parent."""
        self._tallies = Tallies(self._max_rows)
        self._sandbox = Sandbox()
        self._writer = LogWriter(self._tallies, self._sandbox)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._deaths = 0
        self._error = ""
        self._due = threading.Event()
        self._urgent = threading.Event()
        self._stopping = False
        self._exit_registered = False
        self._ended = False

    def record(self, request: Any, decision: Decision) -> None:
        """Count a refusal in memory, without a query."""
        held = testing() and self._sandbox.holds(log_alias(), self._tallies.take)
        half_full = False
        for group, tally in refusals(request, decision, time.time()):
            half_full |= self._tallies.add(group, tally)
        if held:
            return
        # `Event.set` takes a lock even if it is set. The thread clears it before it takes rows.
        if not self._due.is_set():
            self._due.set()
        if half_full:
            self._urgent.set()
        if self._thread is None:
            self._start()

    def flush(self) -> bool:
        """Write now, on this thread's connection. Return False if the database is down."""
        return self._writer.write()

    def stop(self, seconds: float = EXIT_SECONDS, longest: float = EXIT_LONGEST) -> None:
        """Let the thread write the waiting rows and end; log what it could not write in time.

        Wait up to `seconds` for each batch, and up to `longest` for all of them.
        """
        self._stopping = True
        thread, writer = self._thread, self._writer
        if thread is None:
            if self._exit_registered:
                # The thread, or its replacement after a death, could not be started.
                self._write()
                writer.give_up()
            return
        self._due.set()
        self._urgent.set()
        until = time.monotonic() + longest
        batches = None
        # Go on while batches are written: the database is slow, but it is not down.
        while batches != writer.batches and (left := until - time.monotonic()) > 0:
            batches = writer.batches
            thread.join(min(seconds, left))
            if not thread.is_alive():
                break
        writer.give_up()

    def at_exit(self) -> None:
        """Stop, but only once: a forked child also runs the exit handlers of its parent."""
        if not self._ended:
            self._ended = True
            self.stop()

    def stats(self) -> Stats:
        tallies, writer, thread = self._tallies, self._writer, self._thread
        # Read `recorded` last, so that it is never smaller than `written`.
        written, dropped = writer.written, tallies.dropped
        recorded = tallies.recorded
        return Stats(
            recorded=recorded,
            written=written,
            dropped=dropped,
            unwritten=recorded - written - dropped,
            waiting=len(tallies),
            batches=writer.batches,
            failed=writer.failed,
            down=writer.down,
            running=thread is not None and thread.is_alive(),
            deaths=self._deaths,
            error=self._error or writer.error,
        )

    def _start(self) -> None:
        """Start the thread, unless it runs or the process is exiting."""
        with self._starting:
            if self._thread is not None or self._stopping:
                return
            thread = threading.Thread(
                target=self._run, name="django_slidingwindow.log", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                # Out of memory or of threads: the next refusal tries again.
                self._log_error("could not start the thread of the rejection log", error)
            else:
                self._thread = thread
            if self._exit_registered:
                return
            self._exit_registered = True
        at_exit(self.at_exit)

    def _run(self) -> None:
        """Write until the process ends. If this thread dies, start another one."""
        try:
            self._loop()
        except BaseException as error:  # noqa: BLE001 -- SystemExit and GreenletExit as well
            with self._starting:
                self._thread = None
                self._deaths += 1
            self._log_error("the thread of the rejection log died; starting another one", error)
            self._due.set()
            self._start()

    def _loop(self) -> None:
        pause = self._interval
        while True:
            self._due.wait()
            self._urgent.wait(pause)
            # Read before the write: refusals that arrive during it need another round.
            stopping = self._stopping
            self._due.clear()
            self._urgent.clear()
            if self._write():
                if stopping:
                    return
                pause = self._interval
            else:
                pause = EXIT_PAUSE if stopping else min(2 * pause, self._longest_pause)
                self._due.set()

    def _write(self) -> bool:
        """Write the waiting rows. Return False if some may still wait. Never raise Exception."""
        done = False
        try:
            try:
                done = self._writer.write()
            finally:
                # Keep no connection: a fork or a failover would leave it in a bad state.
                connections.close_all()
        except Exception as error:  # noqa: BLE001 -- from a router, a driver or a receiver
            self._log_error("could not write the rejection log", error)
        else:
            self._error = ""
        return done

    def _log_error(self, message: str, error: BaseException) -> None:
        """Log an unexpected error, but not the same one again until a write has succeeded."""
        text = error_text(error)
        if text != self._error:
            self._error = text
            logger.error(message, exc_info=error)


_recorder = Recorder()
record = _recorder.record
flush = _recorder.flush
stats = _recorder.stats
# Not every system forks.
getattr(os, "register_at_fork", dict)(after_in_child=_recorder.begin)
