"""Windows in this process: the fallback when Redis is away, and a store for tests."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from ..decisions import LOCAL
from ..policies import Policy
from .base import Call, Evaluate, Line, Refund
from .windows import Counter, Log, View, Window


def monotonic_us() -> int:
    """Microseconds of a clock that never steps back."""
    return time.monotonic_ns() // 1_000


class MemoryStore:
    """Exact windows in memory, bounded in keys and in hits; safe to share among threads.

    The least recently used windows go first when there are more than `max_keys`, or
    hold more than `max_hits` stamps in all; those that a request has just charged stay.
    """

    source = LOCAL

    swept = 2
    """Windows looked at when one is charged, in turn, to forget those that have expired."""

    def __init__(
        self,
        *,
        clock: Callable[[], int] | None = None,
        max_keys: int = 100_000,
        max_hits: int | None = None,
    ) -> None:
        self._clock = clock or monotonic_us
        self._max_keys = max_keys
        self._max_hits = 10 * max_keys if max_hits is None else max_hits
        self._lock = threading.Lock()
        self._windows: OrderedDict[str, Window] = OrderedDict()
        # Every window once, and some that are gone from `_windows` until their turn comes.
        self._turns: deque[Window] = deque()
        self._hits = 0

    def __len__(self) -> int:
        return len(self._windows)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._windows.clear()
            self._turns.clear()
            self._hits = 0

    def groups(self, keys: tuple[str, ...]) -> list[list[int]] | None:
        return None

    def lane(self, key: str) -> str:
        return ""

    def lanes(self) -> list[str]:
        return [""]

    async def arun(self, call: Call) -> list[int]:
        return self.run(call)

    def run(self, call: Call) -> list[int]:
        with self._lock:
            now = self._clock()
            if isinstance(call, Evaluate):
                return self._evaluate(call, now)
            if isinstance(call, Refund):
                return self._refund(call, now)
            return [sum(self._reset(key, now) for key in call.keys)]

    def _evaluate(self, call: Evaluate, now: int) -> list[int]:
        keys, lines, writes = call.keys, call.lines, call.writes
        views: list[View] = []
        admitted = 1
        for key, (policy, cost, observed, _) in zip(keys, lines, strict=True):
            view = self._look(key, policy, now, writes)
            if cost and not observed and view.count + cost > policy.limit:
                admitted = 0
            views.append(view)
        reply = [admitted, now]
        charges: dict[str, tuple[View, int, int | None]] = {}
        for key, line, view in zip(keys, lines, views, strict=True):
            added, keep = _answer(reply, line, view, admitted)
            # Policies with an equal key share their hits: a request is charged once there.
            if added and key not in charges:
                charges[key] = view, added, keep
        if charges and writes:
            for view, added, keep in charges.values():
                view.charge(added, keep)
                self._keep(view.window)
            self._sweep(now)
            self._evict(len(charges))
        return reply

    def _look(self, key: str, policy: Policy, now: int, writes: bool) -> View:
        window = self._windows.get(key)
        if window is None:
            # It is kept only when it is charged.
            window = Counter(key, policy) if policy.algorithm == "counter" else Log(key, policy)
        else:
            self._windows.move_to_end(key)
        return window.look(now, policy, writes)

    def _keep(self, window: Window) -> None:
        if window.key not in self._windows:
            self._windows[window.key] = window
            self._turns.append(window)
        size = len(window)
        self._hits += size - window.known
        window.known = size

    def _refund(self, call: Refund, now: int) -> list[int]:
        reply = []
        for charge in call.charges:
            window = self._windows.get(charge.key)
            if window is None:
                reply.append(0)
                continue
            reply.append(window.refund(now, charge.policy, call.stamp, charge.cost))
            self._keep(window)
            if not window.known:
                self._forget(window)
        return reply

    def _reset(self, key: str, now: int) -> bool:
        window = self._windows.get(key)
        if window is None:
            return False
        counted = not window.expired(now)
        self._forget(window)
        return counted

    def _forget(self, window: Window) -> None:
        del self._windows[window.key]
        self._hits -= window.known
        window.clear()

    def _sweep(self, now: int) -> None:
        for _ in range(min(self.swept, len(self._turns))):
            window = self._turns.popleft()
            if self._windows.get(window.key) is not window:
                continue
            if window.expired(now):
                self._forget(window)
            else:
                self._turns.append(window)

    def _evict(self, charged: int) -> None:
        windows = self._windows
        while len(windows) > charged and (
            len(windows) > self._max_keys or self._hits > self._max_hits
        ):
            self._forget(next(iter(windows.values())))


def _answer(reply: list[int], line: Line, view: View, admitted: int) -> tuple[int, int | None]:
    """Add one window's part to the reply. Returns the hits to store, and how many to keep."""
    limit, cost, count = line.policy.limit, line.cost, view.count
    if not cost or count + cost <= limit:
        added = cost if admitted else 0
        reset = view.leaves(1) if count + added else 0
        reply += (1, max(0, limit - count - added), 0, reset)
        return added, None
    added = min(cost, limit) if line.count_rejected else 0
    retry, reset = view.refused(limit, cost, added)
    reply += (0, max(0, limit - count - added), retry if cost <= limit else -1, reset)
    return added, limit
