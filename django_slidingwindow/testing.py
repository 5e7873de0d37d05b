"""For the tests of projects that use limits: without Redis, and with a clock that stands still.

    with limits_in_memory() as clock:
        for _ in range(5):
            assert client.get("/login/").status_code == 200
        assert client.get("/login/").status_code == 429
        clock.advance(60)
        assert client.get("/login/").status_code == 200

Both context managers hold for the whole process: for all threads and event loops, so
for Django's test client and its asynchronous one. pytest has them as fixtures.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from .conf import conf
from .core.limiter import Limiter, Question
from .core.waiting import Pause
from .decisions import REDIS
from .guard import overriding
from .guard.current_limiter import limiters_from
from .guard.limiter_factory import CALLBACKS
from .stores.memory import MemoryStore


class FrozenClock:
    """A clock that moves only by `advance`. Called, it returns microseconds, as stores want."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 1_000_000_000_000_000

    def __call__(self) -> int:
        return self._now

    def advance(self, seconds: float | timedelta) -> None:
        """Let so much time pass."""
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if not seconds >= 0:
            raise ValueError(f"a clock does not go back: {seconds!r} seconds")
        with self._lock:
            self._now += round(seconds * 1_000_000)


@contextmanager
def limits_disabled() -> Iterator[None]:
    """Limit nothing within it, and ask nothing of Redis."""
    with _limiters_in_memory(FrozenClock()), conf.forced(enabled=False):
        yield


@contextmanager
def limits_in_memory(clock: FrozenClock | None = None) -> Iterator[FrozenClock]:
    """Count from nothing within it, in memory; give the clock that the limits go by.

    They are on even where the settings say ENABLED = False, and settings that are
    overridden inside apply at once. `limits.acquire` moves the clock instead of waiting.
    Refusals are not written to the log.
    """
    clock = FrozenClock() if clock is None else clock
    # The log's thread would write beside the test's own transaction.
    with _limiters_in_memory(clock), _overrides_by(clock), conf.forced(enabled=True, log=False):
        yield clock


@contextmanager
def _limiters_in_memory(clock: FrozenClock) -> Iterator[None]:
    # One for all the limiters that changed settings ask for: they count on where others ended.
    store = _Store(clock=clock)
    with limiters_from(lambda: _InMemory(store, clock)):
        yield


@contextmanager
def _overrides_by(clock: FrozenClock) -> Iterator[None]:
    """Let overrides end when the clock has advanced to their time."""
    before, now, start = overriding.clock, time.time(), clock()
    overriding.clock = lambda: now + (clock() - start) / 1_000_000
    try:
        yield
    finally:
        overriding.clock = before


class _Store(MemoryStore):
    # Decisions read as they do in production, where local windows mean that Redis is away.
    source = REDIS


class _InMemory(Limiter):
    """Without a shield, because its clock cannot be frozen."""

    def __init__(self, store: MemoryStore, clock: FrozenClock) -> None:
        super().__init__(
            store, prefix=conf.prefix, callbacks=CALLBACKS, clock=lambda: clock() / 1_000_000
        )
        self._frozen = clock

    def _answer(self, question: Question) -> Any:
        if isinstance(question, Pause):
            return self._frozen.advance(question.seconds)
        return super()._answer(question)

    async def _aanswer(self, question: Question) -> Any:
        return self._answer(question)
