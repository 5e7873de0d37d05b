"""Gives units back to the store when their leases end, from a thread of its own.

The thread lives while there are leases with units. It is a daemon, so it does not keep a process
alive; a process that ends gives back all that it holds. A forked child starts with nothing.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from weakref import WeakSet

from .exits import at_exit
from .leases import Leases, Return

logger = logging.getLogger("django_slidingwindow")

_NAME = "django_slidingwindow.leases"


class Returner:
    """Watches over the leases of one limiter."""

    def __init__(self, leases: Leases, give: Callable[[Sequence[Return]], None]) -> None:
        """`give` gives units back to the store."""
        self._leases = leases
        self._give = give
        self._begin()
        _watched.add(self)

    def begin(self) -> None:
        """Start from nothing, as a forked child does."""
        self._leases.begin()
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wakes = math.inf
        self._sooner = threading.Event()

    def watch(self) -> None:
        """Make sure that the thread runs, and wakes when the next lease ends."""
        with self._lock:
            if self._leases.due >= self._wakes:
                return
            if self._thread is not None:
                self._sooner.set()
                return
            thread = threading.Thread(target=self._run, name=_NAME, daemon=True)
            with suppress(RuntimeError):  # no more threads: the next lease tries again
                thread.start()
                self._thread, self._wakes = thread, -math.inf
        _end_with_process()

    def end(self) -> None:
        """Give back all units."""
        self._give_all(self._leases.over(everything=True))

    def _run(self) -> None:
        try:
            while True:
                self._give_all(self._leases.over())
                with self._lock:
                    self._wakes = due = self._leases.due
                    if due == math.inf:
                        # Within the lock, so that the next caller starts another thread.
                        self._thread = None
                        return
                    self._sooner.clear()
                self._sooner.wait(max(0.0, due - self._leases.clock()))
        except BaseException:
            # SystemExit and GreenletExit as well: the next lease starts another one.
            logger.exception("the thread %s died", _NAME)
            with self._lock:
                self._thread, self._wakes = None, math.inf

    def _give_all(self, returns: Sequence[Return]) -> None:
        try:
            self._give(returns)
        except Exception:
            # They count until they leave their window: too many are counted, never too few.
            logger.exception("could not give back units of a lease")


_watched: WeakSet[Returner] = WeakSet()
_at_exit_of: int | None = None


def _end_with_process() -> None:
    global _at_exit_of
    if _at_exit_of != os.getpid():
        _at_exit_of = os.getpid()
        at_exit(_end_all)


def _end_all() -> None:
    for returner in list(_watched):
        returner.end()


def _begin_all() -> None:
    for returner in list(_watched):
        returner.begin()


# Not every system forks.
getattr(os, "register_at_fork", dict)(after_in_child=_begin_all)
