"""A thread that does what requests leave for it."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from django_slidingwindow.core import background as module
from django_slidingwindow.core.background import Background

if TYPE_CHECKING:
    from collections.abc import Callable


class Work:
    """Work that counts its rounds, and can fail."""

    def __init__(self, interval: float = 0.001) -> None:
        self.rounds = 0
        self.error: BaseException | None = None
        self.forks = 0
        self.background = Background(
            self.work, name="a test", interval=interval, forked=self.forked
        )

    def work(self) -> None:
        self.rounds += 1
        if self.error is not None:
            raise self.error

    def forked(self) -> None:
        self.forks += 1


def until(true: Callable[[], object]) -> None:
    ends = time.monotonic() + 30
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.001)


def test_nothing_runs_before_it_is_woken() -> None:
    work = Work()
    assert work.background._thread is None
    work.background.wake()
    until(lambda: work.rounds == 1)
    work.background.wake()
    until(lambda: work.rounds == 2)
    work.background.stop()
    assert work.background._thread is None


def test_calls_are_gathered_unless_they_are_urgent() -> None:
    work = Work(interval=3600)
    for _ in range(10):
        work.background.wake()
    assert work.rounds == 0
    work.background.wake(urgent=True)
    until(lambda: work.rounds == 1)
    work.background.stop()


def test_what_is_left_is_done_at_the_end() -> None:
    work = Work(interval=3600)
    work.background.stop()
    assert work.rounds == 0
    work = Work(interval=3600)
    work.background.wake()
    work.background.stop()
    assert work.rounds == 1
    work.background.wake()
    assert work.background._thread is None, "it was stopped"


def test_the_thread_ends_without_work_and_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE", 0.01)
    work = Work()
    work.background.wake()
    until(lambda: work.rounds == 1 and work.background._thread is None)
    work.background.wake()
    until(lambda: work.rounds == 2)


def test_work_that_comes_while_the_thread_ends_starts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Work()

    class Late(threading.Event):
        """Somebody sets it just after the thread has waited in vain."""

        def wait(self, timeout: float | None = None) -> bool:
            if self.is_set() or work.rounds:
                return super().wait(timeout)
            self.set()
            return False

    work.background._due = Late()
    work.background._run()
    until(lambda: work.rounds == 1)
    work.background.stop()


@pytest.mark.parametrize("error", [ValueError("wrong"), SystemExit()])
def test_a_thread_that_dies_is_replaced(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work()
    work.error = error
    work.background.wake()
    until(lambda: work.rounds == 1 and work.background._thread is None)
    assert "the thread a test died" in caplog.text
    work.error = None
    work.background.wake()
    until(lambda: work.rounds == 2)
    work.background.stop()


def test_a_thread_that_cannot_start_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    work = Work()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        work.background.wake()
    assert "could not start the thread a test" in caplog.text
    assert caplog.records[0].levelno == logging.ERROR
    work.background.wake()
    until(lambda: work.rounds == 1)
    work.background.stop()


def test_two_that_wake_it_start_one_thread() -> None:
    work = Work(interval=3600)
    work.background.wake()
    thread = work.background._thread
    work.background._start()
    assert work.background._thread is thread
    work.background.stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_starts_without_it() -> None:
    work = Work(interval=3600)
    work.background.wake()
    child = os.fork()
    if not child:
        found = (work.background._thread, work.background._due.is_set(), work.forks)
        os._exit(0 if found == (None, False, 1) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert work.background._thread is not None
    work.background.stop()
