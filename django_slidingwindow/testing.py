"""Tools for tests of projects that use limits: no Redis, and a clock that the test moves.

    with limits_in_memory() as clock:
        for _ in range(5):
            assert client.get("/login/").status_code == 200
        assert client.get("/login/").status_code == 429
        clock.advance(60)
        assert client.get("/login/").status_code == 200

Both context managers apply to the whole process, with all its threads and event loops. So they work
with Django's test client and its async client. `pytest_plugin` has both as fixtures.
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
from .core.waiting_lines import Pause
from .decisions import REDIS
from .guard import override_snapshot
from .guard.current_limiter import limiters_from
from .guard.limiter_factory import CALLBACKS
from .stores.memory import MemoryStore


class FrozenClock:
    """A clock that only `advance` moves. A call returns microseconds, the unit of the stores."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 1_000_000_000_000_000

    def __call__(self) -> int:
        return self._now

    def advance(self, seconds: float | timedelta) -> None:
        """Move the clock forward."""
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if not seconds >= 0:
            raise ValueError(f"a clock does not go back: {seconds!r} seconds")
        with self._lock:
            self._now += round(seconds * 1_000_000)


@contextmanager
def limits_disabled() -> Iterator[None]:
    """Switch all limits off inside the block. Redis is not asked."""
    with _limiters_in_memory(FrozenClock()), conf.forced(enabled=False):
        yield


@contextmanager
def limits_in_memory(clock: FrozenClock | None = None) -> Iterator[FrozenClock]:
    """Count in memory inside the block, starting with empty windows. Yield the clock of the limits.

    Limits are on, even if the settings say ENABLED = False. Settings that are overridden inside
    the block apply at once. `limits.acquire` moves the clock instead of waiting. Refusals are not
    written to the log.
    """
    clock = FrozenClock() if clock is None else clock
    # No log: its thread would write outside of the transaction of the test.
    with _limiters_in_memory(clock), _overrides_follow(clock), conf.forced(enabled=True, log=False):
        yield clock


@contextmanager
def _limiters_in_memory(clock: FrozenClock) -> Iterator[None]:
    # Changed settings make a new limiter. All limiters share one store, so that the hits stay.
    store = _Store(clock=clock)
    with limiters_from(lambda: _InMemoryLimiter(store, clock)):
        yield


@contextmanager
def _overrides_follow(clock: FrozenClock) -> Iterator[None]:
    """End overrides by this clock, which starts at the current time."""
    before, now, start = override_snapshot.clock, time.time(), clock()
    override_snapshot.clock = lambda: now + (clock() - start) / 1_000_000
    try:
        yield
    finally:
        override_snapshot.clock = before


class _Store(MemoryStore):
    # Decisions look as in production, where "local" would mean that Redis is away.
    source = REDIS


class _InMemoryLimiter(Limiter):
    """A limiter without a shield, because a shield has a clock of its own."""

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
