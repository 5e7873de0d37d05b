"""Has refusals written to the log, by a thread and in batches.

The request path adds to a count in memory, and no more. The thread, which starts with
the first refusal, writes what has gathered every `INTERVAL` seconds. While the database
is away requests go on, and what waits is bounded: what finds no room is counted.

In a TestCase nothing is written before `flush()`, which goes through the test's own
connection and transaction; other tests wait for the thread, or call it as well.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import threading
import time
from dataclasses import dataclass
from multiprocessing.util import Finalize
from typing import Any

from django.db import connections

from ..decisions import Decision
from .buffer import Tallies
from .rows import refusals
from .testcase import Sandbox, testing
from .writer import LogWriter, error_text, log_alias

logger = logging.getLogger("django_slidingwindow.log")

MAX_ROWS = 10_000
"""Rows that may wait in a process: some 10 MB."""
INTERVAL = 2.0
"""Seconds in which refusals gather."""
LONGEST_PAUSE = 60.0
"""Seconds between attempts while the database is away: twice as long each time, up to this."""
EXIT_SECONDS = 10.0
"""How long a process that ends waits for one more batch: twice what SQLite waits for a lock."""
EXIT_LONGEST = 25.0
"""How long for all of them: servers kill a worker that takes half a minute."""
EXIT_PAUSE = 0.2
"""Seconds between attempts then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What became of this process's refusals."""

    recorded: int
    """Refusals. Each is written, dropped or unwritten."""
    written: int
    """Refusals that the table counts."""
    dropped: int
    """Refusals that it never will."""
    unwritten: int
    """Refusals that wait, or are being written now."""
    waiting: int
    """Rows that wait to be written."""
    batches: int
    """Statements that wrote."""
    failed: int
    """Statements that did not."""
    down: bool
    """Whether the database was away when it was last asked."""
    running: bool
    """Whether the thread that writes is alive; it starts with the first refusal."""
    deaths: int
    """How often that thread died and another took its place."""
    error: str
    """Why the last attempt to write failed; empty if it did not."""


class Recorder:
    """One process's part of the log."""

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
        """Starts from nothing, as a forked child must: what waits there is its parent's."""
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
        self._exit_is_told = False
        self._ended = False

    def record(self, request: Any, decision: Decision) -> None:
        """Counts a refusal. Asks no database and waits for none."""
        held = testing() and self._sandbox.holds(log_alias(), self._tallies.take)
        crowded = False
        for group, tally in refusals(request, decision, time.time()):
            crowded |= self._tallies.add(group, tally)
        if held:
            return
        # To set what is set takes a lock; the thread clears it before it takes what waits.
        if not self._due.is_set():
            self._due.set()
        if crowded:
            self._urgent.set()
        if self._thread is None:
            self._start()

    def flush(self) -> bool:
        """Writes at once, through this thread's connection; False if the database is away."""
        return self._writer.write()

    def stop(self, seconds: float = EXIT_SECONDS, longest: float = EXIT_LONGEST) -> None:
        """Lets the thread write what waits, and end; says what it could not write in time."""
        self._stopping = True
        thread, writer = self._thread, self._writer
        if thread is None:
            if self._exit_is_told:
                # No thread could be started, at first or after one died.
                self._write()
                writer.give_up()
            return
        self._due.set()
        self._urgent.set()
        until = time.monotonic() + longest
        batches = None
        # A database that is busy with others still gets on, one that is away does not.
        while batches != writer.batches and (left := until - time.monotonic()) > 0:
            batches = writer.batches
            thread.join(min(seconds, left))
            if not thread.is_alive():
                break
        writer.give_up()

    def at_exit(self) -> None:
        """Stops once, though a child of a fork has its parent's exit to go through as well."""
        if not self._ended:
            self._ended = True
            self.stop()

    def stats(self) -> Stats:
        tallies, writer, thread = self._tallies, self._writer, self._thread
        # The newest number first: a refusal must not be written before it was recorded.
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
        """Start the thread, unless one runs or the process ends."""
        with self._starting:
            if self._thread is not None or self._stopping:
                return
            thread = threading.Thread(
                target=self._run, name="django_slidingwindow.log", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                # No memory or no more threads: the next refusal tries again.
                self._note("the thread of the rejection log could not be started", error)
            else:
                self._thread = thread
            if self._exit_is_told:
                return
            self._exit_is_told = True
        atexit.register(self.at_exit)
        if multiprocessing.parent_process() is not None:
            # A child that multiprocessing has forked ends without atexit.
            Finalize(None, self.at_exit, exitpriority=0)

    def _run(self) -> None:
        """Write until the process ends. If this thread dies, start another one."""
        try:
            self._loop()
        except BaseException as error:  # noqa: BLE001 -- SystemExit and GreenletExit as well
            with self._starting:
                self._thread = None
                self._deaths += 1
            self._note("the thread of the rejection log died; another one is started", error)
            self._due.set()
            self._start()

    def _loop(self) -> None:
        pause = self._interval
        while True:
            self._due.wait()
            self._urgent.wait(pause)
            # Read before it writes: what comes in meanwhile needs another round.
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
        """Write what waits; False if some of it may wait on. Raises no Exception."""
        done = False
        try:
            try:
                done = self._writer.write()
            finally:
                # None is kept: a fork or a failover would leave it in a bad state.
                connections.close_all()
        except Exception as error:  # noqa: BLE001 -- of a router, a driver, a receiver
            self._note("the rejection log could not be written", error)
        else:
            self._error = ""
        return done

    def _note(self, what: str, error: BaseException) -> None:
        """Log an unexpected error, once until a write succeeds."""
        text = error_text(error)
        if text != self._error:
            self._error = text
            logger.error(what, exc_info=error)


_recorder = Recorder()
record = _recorder.record
flush = _recorder.flush
stats = _recorder.stats
os.register_at_fork(after_in_child=_recorder.begin)
