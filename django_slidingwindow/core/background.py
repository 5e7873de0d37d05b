"""A thread that does what requests leave for it, so that no request waits for it."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial

from .exits import at_exit

logger = logging.getLogger("django_slidingwindow")

# Seconds without work after which the thread ends; the next work starts another one.
_IDLE = 10.0


class Background:
    """Calls `work` soon after `wake`, again and again until the process ends.

    The thread starts with the first `wake`, and ends when there was nothing to do for a while. It
    does not keep the process alive; at the exit, what is left is done once more. A forked child
    starts without it: `forked` forgets there what the parent has left to do.
    """

    def __init__(
        self,
        work: Callable[[], None],
        *,
        name: str,
        interval: float,
        forked: Callable[[], None],
        exit_seconds: float = 2.0,
    ) -> None:
        """`interval`: seconds in which calls of `wake` are gathered; one call of `work` follows."""
        self._work = work
        self._name = name
        self._interval = interval
        self._forked = forked
        self._exit_seconds = exit_seconds
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._due = threading.Event()
        self._urgent = threading.Event()
        self._stopping = False
        self._registered = False

    def wake(self, *, urgent: bool = False) -> None:
        """Let the thread work within the interval; at once if it is urgent."""
        # `Event.set` takes a lock even if it is set. The thread clears it before it works.
        if not self._due.is_set():
            self._due.set()
        if urgent:
            self._urgent.set()
        if self._thread is None:
            self._start()

    def stop(self) -> None:
        """Do what is left, and end."""
        self._stopping = True
        thread = self._thread
        if thread is not None:
            self._due.set()
            self._urgent.set()
            thread.join(self._exit_seconds)

    def start_afresh(self) -> None:
        """In a forked child: no thread and no lock of the parent's."""
        self._begin()
        self._forked()

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None or self._stopping:
                return
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            # Before it starts: it may have ended when `start` returns.
            self._thread = thread
            try:
                thread.start()
            except RuntimeError:
                # Out of memory or of threads: the next one who wakes it tries again.
                self._thread = None
                logger.exception("could not start the thread %s", self._name)
                return
            if self._registered:
                return
            self._registered = True
        at_exit(partial(_call, weakref.WeakMethod(self.stop)))

    def _run(self) -> None:
        try:
            while self._due.wait(_IDLE):
                self._urgent.wait(self._interval)
                # Read before the work: what arrives during it needs another round.
                stopping = self._stopping
                self._due.clear()
                self._urgent.clear()
                self._work()
                if stopping:
                    break
        except BaseException:
            # SystemExit and GreenletExit as well. The next call that wakes it starts another.
            logger.exception(
                "the thread %s died; the next one starts when there is work", self._name
            )
        self._thread = None
        if self._due.is_set():
            # It was woken when it was about to end.
            self._start()


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    found = method()
    if found is not None:
        found()


_all: weakref.WeakSet[Background] = weakref.WeakSet()


def _start_afresh() -> None:
    for background in list(_all):
        background.start_afresh()


# Not every system forks.
getattr(os, "register_at_fork", dict)(after_in_child=_start_afresh)
