"""A background thread for work that no request should wait for."""

from __future__ import annotations

import atexit
import logging
import math
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from multiprocessing.util import Finalize
from weakref import WeakSet

# Seconds without work after which a thread ends; the next work starts another one.
_IDLE = 10.0
# Seconds after which work that has raised an error is tried again.
_AGAIN = 1.0
# Seconds for which a fork waits for work that is being done.
_FORK_SECONDS = 1.0
# What a lock understands as no time-out.
_FOR_EVER = -1.0


class Background:
    """Calls `work` in a thread: after `wake`, and again when `work` asks for it.

    The first `wake` starts the thread. It ends when there is nothing to do for a while. If it dies,
    another thread replaces it. It does not keep the process alive; when the process exits, `work`
    is called once more. A forked child starts without a thread, and calls `forked` to drop the work
    that belongs to its parent. A fork waits until `work` has returned: otherwise the locks of a
    database driver could stay locked in the child forever.
    """

    def __init__(
        self,
        work: Callable[[], float | None],
        *,
        name: str,
        forked: Callable[[], None],
        at_exit: Callable[[], object] | None = None,
        exit_seconds: float = 2.0,
        ends_idle: bool = True,
    ) -> None:
        """`work` returns the seconds until it wants to be called again, or None.

        `name` names the thread and its logger. `at_exit` replaces `stop` when the process exits; it
        is only called if the thread was ever needed.
        """
        self._work = work
        self._name = name
        self._forked = forked
        self._at_exit = at_exit or self.stop
        self._exit_seconds = exit_seconds
        self._ends_idle = ends_idle
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._thread: threading.Thread | None = None
        # Reentrant, because `__del__` may call `wake` at any time. The deque and the bell are safe
        # to use there as well.
        self._starting = threading.RLock()
        # Held during work. Reentrant, because the work itself may fork.
        self._working = threading.RLock()
        # The times at which work is wanted, and the earliest of them since the last round began.
        self._wanted: deque[float] = deque()
        self._soonest = math.inf
        # A lock that `wake` releases. Not a SimpleQueue: in Python 3.10 its `get` may block forever
        # in spite of a time-out.
        self._bell = threading.Lock()
        self._bell.acquire()
        self.woken = False
        """Whether the thread was ever needed."""
        self.stopping = False
        """Whether this round is one of the last."""
        self.deaths = 0
        """How often the thread died and was replaced."""
        self.error = ""
        """Why the thread died or could not start; empty after a round that succeeded."""

    @property
    def running(self) -> bool:
        thread = self._thread
        return thread is not None and thread.is_alive()

    def wake(self, within: float = 0.0) -> None:
        """Call `work` in `within` seconds, or earlier if another caller wants that."""
        now = time.monotonic()
        # If the earliest time has passed, ask again: the call that set it may have been interrupted
        # before it could wake the thread.
        if not now <= self._soonest <= now + within:
            # Set first, because the thread resets it after it has taken the times.
            self._soonest = now + within
            self._want(now + within)
        if self._thread is None:
            self.start()

    def _want(self, when: float) -> None:
        self._wanted.append(when)
        with suppress(RuntimeError):  # it has been rung already
            self._bell.release()

    def start(self) -> None:
        """Start the thread, unless it runs or the process is exiting."""
        if self._thread is not None or self.stopping:
            return
        # Before the lock is taken: making a thread may run a `__del__` that calls `wake`.
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        with self._starting:
            if self._thread is not None or self.stopping:
                return
            # Before it starts: it may have ended by the time that `start` returns.
            self._thread = thread
            if not self.woken:
                self.woken = True
                _stop_at_exit()
            try:
                thread.start()
            except RuntimeError as error:
                # Out of memory or threads: the next `wake` tries again.
                self._thread = None
                self._log("could not start the thread %s", error)

    def stop(self, seconds: float | None = None) -> bool:
        """Call `work` once more and end the thread; return False if that takes too long."""
        with self._starting:
            self.stopping = True
            thread = self._thread
        if thread is not None:
            self._want(0.0)
            thread.join(self._exit_seconds if seconds is None else seconds)
            if thread.is_alive():
                return False
        if self._wanted:
            # The thread could not be started, or it ended just before it was woken.
            self._wanted.clear()
            with self._working:
                self._work()
        return True

    def pause(self, seconds: float) -> bool:
        """Let no work begin until `resume`; return False if work takes longer than `seconds`."""
        return self._working.acquire(timeout=seconds)

    def resume(self) -> None:
        self._working.release()

    def start_afresh(self) -> None:
        """In a forked child: start without the threads and locks of the parent."""
        self._begin()
        self._forked()

    def _run(self) -> None:
        due = math.inf
        try:
            while (due := self._wait(due)) < math.inf:
                # Read before the work: what arrives during the work needs another round.
                stopping = self.stopping
                self._soonest = math.inf
                with self._working:
                    seconds = self._work()
                self.error = ""
                if seconds is None and stopping:
                    break
                due = math.inf if seconds is None else time.monotonic() + seconds
        except BaseException as error:  # noqa: BLE001 -- SystemExit and GreenletExit as well
            self.deaths += 1
            self._log("the thread %s died; starting another one", error)
            self._want(time.monotonic() + _AGAIN)
        self._thread = None
        if self._wanted:
            # The thread died, or it was woken when it was about to end.
            self.start()

    def _wait(self, due: float) -> float:
        """Wait until work is due and return that time; infinite if nothing came up."""
        while True:
            with suppress(IndexError):
                while True:
                    due = min(due, self._wanted.popleft())
            seconds = due - time.monotonic()
            if seconds <= 0.0:
                return due
            if due == math.inf:
                seconds = _IDLE if self._ends_idle else _FOR_EVER
            if not self._bell.acquire(timeout=seconds) and due == math.inf:
                return due

    def _log(self, message: str, error: BaseException) -> None:
        """Log an error; repeat the same error only after a round has succeeded."""
        text = f"{type(error).__name__}: {error}"
        if text != self.error:
            self.error = text
            logging.getLogger(self._name).error(message, self._name, exc_info=error)


_all: WeakSet[Background] = WeakSet()


def _stop_at_exit() -> None:
    # A forked child inherits the handlers of its parent.
    atexit.unregister(_stop_all)
    atexit.register(_stop_all)
    if multiprocessing.parent_process() is not None:
        # A child that multiprocessing forked does not run atexit handlers.
        Finalize(None, _stop_all, exitpriority=0)


def _stop_all() -> None:
    # All of them, even if one fails; and only once, because some processes call this twice.
    with ExitStack() as stopping:
        for background in list(_all):
            if background.woken:
                stopping.callback(background._at_exit)
        _all.clear()


class _Paused(threading.local):
    """What this thread has paused for a fork. A signal handler may fork meanwhile."""

    def __init__(self) -> None:
        self.by_fork: list[list[Background]] = []


_paused = _Paused()


def _pause_all() -> None:
    ends = time.monotonic() + _FORK_SECONDS
    paused: list[Background] = []
    _paused.by_fork.append(paused)
    for background in list(_all):
        if background.pause(max(0.0, ends - time.monotonic())):
            # At once: a signal handler may raise before all of them are paused.
            paused.append(background)


def _resume_all() -> None:
    for background in _paused.by_fork.pop():
        background.resume()


def _start_afresh() -> None:
    for paused in _paused.by_fork:
        # The child has new locks.
        paused.clear()
    _paused.by_fork.pop()
    for background in list(_all):
        background.start_afresh()


# Not every system forks.
getattr(os, "register_at_fork", dict)(
    before=_pause_all, after_in_parent=_resume_all, after_in_child=_start_afresh
)
