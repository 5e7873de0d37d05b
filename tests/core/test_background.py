"""A thread that does what requests leave for it."""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pytest

from django_slidingwindow.core import background as module
from django_slidingwindow.core.background import Background

if TYPE_CHECKING:
    from collections.abc import Callable

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


class Work:
    """Work that counts its rounds, and can fail."""

    def __init__(self, **options: Any) -> None:
        self.rounds = 0
        self.error: BaseException | None = None
        self.again: float | None = None
        self.forks = 0
        self.background = Background(self.work, name="a test", forked=self.forked, **options)

    def work(self) -> float | None:
        self.rounds += 1
        if self.error is not None:
            raise self.error
        return self.again

    def forked(self) -> None:
        self.forks += 1


def until(true: Callable[[], object]) -> None:
    ends = time.monotonic() + 30
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.001)


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_nothing_runs_before_it_is_woken() -> None:
    work = Work()
    assert not work.background.running
    assert not work.background.woken
    work.background.wake()
    assert work.background.woken
    until(lambda: work.rounds == 1)
    work.background.wake()
    until(lambda: work.rounds == 2)
    assert work.background.stop()
    assert not work.background.running


def test_calls_are_gathered_unless_one_is_sooner() -> None:
    work = Work()
    for _ in range(10):
        work.background.wake(3600)
    assert work.rounds == 0
    assert len(work.background._wanted) <= 1
    work.background.wake(0.001)
    until(lambda: work.rounds == 1)
    work.background.stop()
    assert work.rounds == 2


def test_work_is_called_again_when_it_says_so() -> None:
    work = Work()
    work.again = 0.0
    work.background.wake()
    until(lambda: work.rounds > 3)
    work.again = None
    assert work.background.stop(60)


def test_stop_does_the_work_that_is_left() -> None:
    work = Work()
    work.background.stop()
    assert work.rounds == 0
    work = Work()
    work.background.wake(3600)
    work.background.stop()
    assert work.rounds == 1
    work.background.wake()
    assert not work.background.running, "it was stopped"
    work.background.start()
    assert not work.background.running


def test_stop_waits_no_longer_than_it_may() -> None:
    going_on = threading.Event()

    class Slow(Work):
        def work(self) -> float | None:
            going_on.wait(60)
            return super().work()

    work = Slow(exit_seconds=0.001)
    work.background.wake()
    assert not work.background.stop()
    assert not work.background.stop(0.002)
    going_on.set()
    assert work.background.stop(60)


def test_work_that_fails_is_tried_again_at_the_end() -> None:
    work = Work()
    work.again = 0.001
    work.background.wake(3600)
    assert not work.background.stop(0.05)
    work.again = None
    assert work.background.stop(60)


def test_the_thread_ends_without_work_and_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE", 0.01)
    work = Work()
    work.background.wake()
    until(lambda: work.rounds == 1 and work.background._thread is None)
    work.background.wake()
    until(lambda: work.rounds == 2)


def test_the_thread_may_stay_without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE", 0.0)
    work = Work(ends_idle=False)
    work.background.start()
    assert work.background.running
    assert work.rounds == 0
    thread = work.background._thread
    work.background.wake()
    until(lambda: work.rounds == 1)
    assert work.background._thread is thread
    work.background.stop()


def test_signals_do_not_prolong_the_wait() -> None:
    """With a SimpleQueue, each that came at a bad moment did so on Python 3.10, for ever."""
    background = Work().background
    began = time.monotonic()

    def ring(*_: Any) -> None:
        if time.monotonic() - began > 5:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise TimeoutError("it waits for a time that has passed")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 50e-6, 50e-6)
    try:
        for _ in range(20_000):
            began = time.monotonic()
            background._want(began)
            assert background._wait(math.inf) == began
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class LateBell:
    """A bell with which something is wanted just after the thread has waited in vain."""

    def __init__(self, late: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._late = [late]
        self.release = self._lock.release

    def acquire(self, timeout: float) -> bool:
        if self._late:
            self._late.pop()()
            return False
        return self._lock.acquire(timeout=timeout)


def test_work_that_comes_while_the_thread_ends_starts_another() -> None:
    work = Work()
    work.background._bell = LateBell(work.background.wake)  # type: ignore[assignment]
    work.background.start()
    until(lambda: work.rounds == 1)
    work.background.stop()


def test_work_that_comes_while_thread_and_process_end_is_done() -> None:
    work = Work()
    ending = threading.Event()

    def late() -> None:
        work.background.wake()
        ending.wait(60)

    work.background._bell = LateBell(late)  # type: ignore[assignment]
    work.background.start()
    work.background.stopping = True
    ending.set()
    assert work.background.stop(60)
    assert work.rounds == 1


@pytest.mark.parametrize("error", [ValueError("wrong"), SystemExit()])
def test_a_thread_that_dies_is_replaced(
    error: BaseException, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN", 0.001)
    work = Work()
    work.error = error
    work.background.wake()
    until(lambda: work.background.deaths > 2)
    assert work.background.error == f"{type(error).__name__}: {error}"
    # Once, and not each time.
    assert [record.getMessage() for record in caplog.records] == [
        "the thread a test died; starting another one"
    ]
    work.error = None
    # Without another call.
    until(lambda: not work.background.error)
    assert work.background.running
    work.background.stop()


def test_a_thread_that_cannot_start_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        work.background.wake()
        work.background.wake()
    (record,) = caplog.records
    assert record.getMessage() == "could not start the thread a test"
    assert (record.levelno, record.name) == (logging.ERROR, "a test")
    work.background.wake(3600)
    until(lambda: work.rounds == 1)
    work.background.stop()


def test_work_is_done_at_the_exit_if_no_thread_could_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Work()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        work.background.wake()
    work.background.stop()
    work.background.stop()
    assert work.rounds == 1


def test_concurrent_wakes_start_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    made: list[threading.Thread] = []
    make = threading.Thread

    def thread(**options: Any) -> threading.Thread:
        """Something is deleted while the thread is made, and wakes it."""
        if not made:
            made.append(make(target=print))
            work.background.wake(3600)
            made.append(work.background._thread)  # type: ignore[arg-type]
        return make(**options)

    monkeypatch.setattr(threading, "Thread", thread)
    work.background.wake(3600)
    assert work.background._thread is made[1]
    work.background.start()
    assert work.background._thread is made[1]
    work.background.stop()


def test_wake_is_reentrant() -> None:
    """As `__del__` does, in the middle of any other call."""
    work = Work()
    with work.background._starting:
        work.background.wake()
    until(lambda: work.rounds == 1)
    work.background.stop()


def test_interrupted_wake_does_not_stop_later_ones() -> None:
    work = Work()
    # It was about to put this time into the queue.
    work.background._soonest = time.monotonic()
    work.background.wake()
    until(lambda: work.rounds == 1)
    work.background.stop()


def test_all_are_stopped_once_even_if_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []
    unused = Work(at_exit=lambda: stopped.append("unused"))
    other = Work(at_exit=lambda: stopped.append("other"))
    failing = Work(at_exit=lambda: stopped.append("failing") or 1 / 0)
    for work in (other, failing):
        work.background.wake(3600)
    every = WeakSet([work.background for work in (unused, other, failing)])
    monkeypatch.setattr(module, "_all", every)
    with pytest.raises(ZeroDivisionError):
        module._stop_all()
    module._stop_all()
    assert sorted(stopped) == ["failing", "other"]
    for work in (other, failing):
        work.background.stop()


@needs_fork
def test_a_forked_child_starts_without_it() -> None:
    work = Work()
    work.background.wake(3600)
    child = os.fork()
    if not child:
        background = work.background
        found = (background._thread, background._soonest, background.woken, work.forks)
        os._exit(0 if found == (None, math.inf, False, 1) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert work.background.running
    work.background.stop()


class LongWork(Work):
    """Work that takes until `finish` is set."""

    def __init__(self) -> None:
        self.begun, self.finish = threading.Event(), threading.Event()
        self.busy = False
        super().__init__()

    def work(self) -> float | None:
        self.busy = True
        self.begun.set()
        self.finish.wait()
        self.busy = False
        return super().work()


def busy_in_a_child(work: LongWork) -> bool:
    """Return whether a child is forked in the middle of work."""
    child = os.fork()
    if not child:
        os._exit(work.busy)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


@needs_fork
def test_fork_waits_for_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: a child of a process that read overrides from SQLite hung now and then."""
    monkeypatch.setattr(module, "_FORK_SECONDS", 30)
    work = LongWork()
    work.background.wake()
    work.begun.wait()
    threading.Timer(0.1, work.finish.set).start()
    assert not busy_in_a_child(work)
    # In the parent, work goes on after the fork.
    work.background.wake()
    until(lambda: work.rounds == 2)
    work.background.stop()


@needs_fork
def test_fork_does_not_wait_forever_for_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FORK_SECONDS", 0.01)
    work = LongWork()
    work.background.wake()
    work.begun.wait()
    assert busy_in_a_child(work)
    work.finish.set()
    until(lambda: work.rounds == 1)
    work.background.stop()


def test_work_goes_on_after_a_fork_whose_wait_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Call the hooks of a fork. Python ignores what a signal handler raises in one of them."""
    work, busy = Work(), Work()

    def interrupted(seconds: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(busy.background, "pause", interrupted)
    monkeypatch.setattr(module, "_all", [work.background, busy.background])
    with pytest.raises(KeyboardInterrupt):
        module._pause_all()
    module._resume_all()
    work.background.wake()
    until(lambda: work.rounds == 1)
    work.background.stop()


def test_work_goes_on_after_a_fork_within_the_hook_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signal handler may fork at any time."""
    first, second = Work(), Work()
    pause = second.background.pause

    def fork_again(seconds: float) -> bool:
        monkeypatch.setattr(second.background, "pause", pause)
        module._pause_all()
        module._resume_all()
        return pause(seconds)

    monkeypatch.setattr(second.background, "pause", fork_again)
    monkeypatch.setattr(module, "_all", [first.background, second.background])
    module._pause_all()
    module._resume_all()
    for work in (first, second):
        work.background.wake()
        until(lambda: work.rounds == 1)  # noqa: B023
        work.background.stop()


@needs_fork
def test_work_may_fork() -> None:
    statuses: list[int] = []

    def work() -> None:
        child = os.fork()
        if not child:
            os._exit(0)
        statuses.append(os.waitpid(child, 0)[1])

    background = Background(work, name="a test", forked=lambda: None)
    background.wake()
    until(lambda: statuses == [0])
    background.stop()


@needs_fork
@pytest.mark.parametrize(
    ("way", "rounds"),
    [
        # The child has the exit handler of its parent, and its own.
        ("child = os.fork(); wake(); child and os.waitpid(child, 0)", 2),
        ("child = os.fork(); child and wake(); child and os.waitpid(child, 0)", 1),
        # Those that multiprocessing forks run no exit handler; those that it spawns run both.
        ("process = get_context('fork').Process(target=wake); process.start(); process.join()", 1),
        ("process = get_context('spawn').Process(target=wake); process.start(); process.join()", 1),
    ],
)
def test_processes_do_what_is_left_when_they_end(way: str, rounds: int, tmp_path: Any) -> None:
    text = f"""
        import os
        from multiprocessing import get_context
        from django_slidingwindow.core.background import Background

        def work():
            with open({str(tmp_path / "rounds")!r}, "a") as file:
                file.write("x")

        background = Background(work, name="a test", forked=lambda: None)

        def wake():
            background.wake(3600)

        if __name__ == "__main__":
            {way}
    """
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(text))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        [sys.executable, "-W", "ignore", str(program)], check=True, timeout=60, env=environment
    )
    assert (tmp_path / "rounds").read_text() == "x" * rounds
