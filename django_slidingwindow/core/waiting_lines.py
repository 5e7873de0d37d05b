"""`acquire`: repeat a check until it is admitted, with a waiting line for callers in this process.

Callers with the same windows and costs wait in one line, in the order of their arrival. Only the
first one asks the store; the others wait for their turn.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, wait
from typing import Any, NamedTuple, TypeAlias

from ..decisions import Decision
from .windows import WindowSet

# The shortest and the longest pause in seconds before the first in a line asks again. The longest
# bounds how late it notices a refund or a reset.
_LEAST_PAUSE, _LONGEST_PAUSE = 0.005, 5.0
# The pause while it waits for a request in flight: nobody knows when that ends.
_SLOT_PAUSE = 0.05
# Seconds after which the first in a line is skipped if it does not ask: its event loop may have
# stopped for good.
_STALLED = 5.0


class Ask(NamedTuple):
    """Yielded by a flow: charge the windows, and send back the decision."""

    windows: WindowSet


class Pause(NamedTuple):
    """Yielded by a flow: continue after `seconds`."""

    seconds: float


class Turn(NamedTuple):
    """Yielded by a flow: continue when the future is done, at the latest after `seconds`."""

    comes: Future[None]
    seconds: float


Step: TypeAlias = "Ask | Pause | Turn"


def take(step: Pause | Turn) -> None:
    """Wait in a thread."""
    if isinstance(step, Pause):
        time.sleep(step.seconds)
    else:
        wait([step.comes], step.seconds)


async def atake(step: Pause | Turn) -> None:
    """Wait in a task."""
    if isinstance(step, Pause):
        await asyncio.sleep(step.seconds)
    else:
        await asyncio.wait([asyncio.wrap_future(step.comes)], timeout=step.seconds)


class _WaitingLine:
    __slots__ = ("opens", "places")

    def __init__(self) -> None:
        self.places: deque[Future[None]] = deque()
        """One future for each caller, done when that caller is the first."""
        self.opens: float | None = None
        """When the first may ask, by the limiter's clock; None while all callers may ask."""


class WaitingLines:
    """The waiting lines of one limiter, shared by threads and by the tasks of all event loops."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Reentrant: a caller that is garbage collected leaves its line, in any thread.
        self._lock = threading.RLock()
        self._lines: dict[WindowSet, _WaitingLine] = {}

    def __len__(self) -> int:
        """Return the number of callers in all lines."""
        with self._lock:
            return sum(len(line.places) for line in self._lines.values())

    def acquire(self, windows: WindowSet, timeout: float | None) -> Generator[Step, Any, Decision]:
        """Wait until admitted; give up as soon as `timeout` seconds cannot be enough."""
        ends = math.inf if timeout is None else self._clock() + timeout
        line, place = self._join(windows)
        try:
            while line.opens is None or line.opens <= ends:
                now = self._clock()
                if line.opens is not None and not place.done():
                    until = min(ends, line.opens + _STALLED)
                    if now < until:
                        yield Turn(place, until - now)
                        continue
                    if now >= ends:
                        break
                if line.opens is not None and line.opens > now:
                    yield Pause(_pause(windows, line.opens - now))
                decision: Decision = yield Ask(windows)
                if decision.allowed:
                    full = _full_for(windows, decision)
                    if full or line.opens is not None:
                        line.opens = self._clock() + full
                    return decision
                # Without windows, an override blocks: there is nothing to wait for.
                if decision.retry_after is None or not windows.keys:
                    return decision
                least = _SLOT_PAUSE if windows.template.inflight else _LEAST_PAUSE
                line.opens = self._clock() + max(decision.retry_after, least)
                if line.opens > ends:
                    return decision
            # A caller is never refused without asking the store. If this one is admitted, it has
            # overtaken those before it.
            last: Decision = yield Ask(windows)
            return last
        finally:
            self._leave(windows, line, place)

    def _join(self, windows: WindowSet) -> tuple[_WaitingLine, Future[None]]:
        place: Future[None] = Future()
        with self._lock:
            line = self._lines.get(windows)
            if line is None:
                line = self._lines[windows] = _WaitingLine()
            line.places.append(place)
            _call_first(line)
        return line, place

    def _leave(self, windows: WindowSet, line: _WaitingLine, place: Future[None]) -> None:
        with self._lock:
            line.places.remove(place)
            if line.places:
                _call_first(line)
            else:
                del self._lines[windows]


def _call_first(line: _WaitingLine) -> None:
    if not line.places[0].done():
        line.places[0].set_result(None)


def _pause(windows: WindowSet, seconds: float) -> float:
    """Return how long to wait before asking again, if there may be room after some seconds."""
    # A window that counts refusals has no room for longer after each of them.
    if any(rule.count_rejected for rule in windows.template.rules):
        return seconds
    return min(seconds, _LONGEST_PAUSE)


def _full_for(windows: WindowSet, admission: Decision) -> float:
    """Return for how many seconds after an admission the next caller is certain to be refused."""
    # With leases, the remaining hits are a lower bound.
    if not windows.template.exact or windows.template.leased:
        return 0.0
    least = min([rule.cost for rule in windows.template.rules], default=0)
    # The decision is about the window with the fewest hits left.
    if admission.remaining >= least:
        return 0.0
    full = [one.reset_after for one in admission.verdicts if one.remaining < least]
    return max(full, default=0.0)
