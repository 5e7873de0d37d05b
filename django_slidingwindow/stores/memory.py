"""Windows in this process: the fallback during an outage of Redis, and a store for tests."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..algorithms.in_memory import Counter, Log, View, Window
from ..algorithms.penalties import PenaltyWindow
from ..algorithms.slots import Slots, Taken
from ..decisions import LOCAL
from ..policies import PENALTY, SLOTS, Policy
from .memory_penalties import PenaltyWatch
from .protocol import (
    PATIENCE,
    Call,
    Evaluate,
    Refund,
    Reply,
    Reset,
    SingleNode,
    WindowRule,
    WindowRules,
)

_WINDOWS: dict[str, Any] = {"counter": Counter, SLOTS: Slots, PENALTY: PenaltyWindow}
"""Classes by algorithm. All other algorithms use `Log`."""

_Charge: TypeAlias = "tuple[View, Policy, int, int]"
"""A window as it was seen, its policy, the hits to add, and the oldest hits to drop."""


class MemoryStore(SingleNode):
    """Exact windows in memory, safe to share among threads.

    If there are more than `max_keys` windows, or if they hold more than `max_hits` stamps in
    total, the least recently used windows are forgotten. The windows that a request has just
    charged are kept.
    """

    source = LOCAL
    remote = False
    """So leases and deferred profiles are charged at once; hits count for exactly one window."""

    swept_after, swept = 4, 8
    """After `swept_after` charges, look at the next `swept` windows and forget expired ones."""

    def __init__(
        self,
        *,
        clock: Callable[[], int] | None = None,
        max_keys: int = 100_000,
        max_hits: int | None = None,
    ) -> None:
        self._clock = clock
        self._max_keys = max_keys
        self._max_hits = 10 * max_keys if max_hits is None else max_hits
        self._lock = threading.Lock()
        self._windows: OrderedDict[str, Window] = OrderedDict()
        # The order of the sweep: every window once, and forgotten windows until their turn comes.
        self._turns: deque[Window] = deque()
        self._hits = 0
        self._unswept = 0

    def __len__(self) -> int:
        return len(self._windows)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._windows.clear()
            self._turns.clear()
            self._hits = 0

    def close(self, node: str = "") -> None:
        """Do nothing: this store has no connections."""

    async def acharge(self, keys: tuple[str, ...], rules: WindowRules) -> Reply:
        return self.charge(keys, rules)

    async def arun(self, call: Call) -> Any:
        return self.run(call)

    def run(self, call: Call) -> Any:
        with self._lock:
            now = time.monotonic_ns() // 1_000 if self._clock is None else self._clock()
            if isinstance(call, Evaluate):
                return self._evaluate(call, now)
            return self._refund(call, now) if isinstance(call, Refund) else self._reset(call, now)

    def run_many(self, calls: Sequence[Call], within: float = PATIENCE) -> list[Any]:
        return [self.run(call) for call in calls]

    def charge(self, keys: tuple[str, ...], rules: WindowRules) -> Reply:
        key, (policy, cost, observed, count_rejected) = keys[0], rules[0][:4]
        with self._lock:
            now = time.monotonic_ns() // 1_000 if self._clock is None else self._clock()
            # Fast path for one hit on one window, which most checks are.
            window = self._windows.get(key)
            if (
                type(window) is not Log
                or len(keys) > 1
                or cost != 1
                or observed
                or count_rejected
                or not (reply := window.hit(now, policy.limit))
            ):
                return self._evaluate(Evaluate(keys, rules, writes=True), now)
            self._windows.move_to_end(key)
            if reply[0]:
                size = len(window.stamps)
                self._hits += size - window.known
                window.known = size
                self._unswept += 1
                if self._unswept >= self.swept_after or self._hits > self._max_hits:
                    self._tidy(1, now)
            return Reply(reply)

    def _evaluate(self, call: Evaluate, now: int) -> Reply:
        keys, rules, writes = call.keys, call.rules, call.writes
        if any(rule.policy.inflight for rule in rules):
            now = Taken(now)
        views = [
            self._look(key, rule.policy, now, writes) for key, rule in zip(keys, rules, strict=True)
        ]
        refuses = [
            rule.cost > 0 and view.count + rule.cost > rule.policy.limit
            for rule, view in zip(rules, views, strict=True)
        ]
        watch, full = None, refuses
        if any(rule.policy.algorithm == PENALTY for rule in rules):
            watch = PenaltyWatch(keys, rules, views, refuses)
            rules, refuses, full = tuple(watch.rules), watch.refuses, watch.full
        admitted = all(
            rule.observed or not refused for rule, refused in zip(rules, refuses, strict=True)
        )
        stored = _stored_hits(keys, rules, refuses, admitted)
        reply = [int(admitted), now]
        charges: dict[str, _Charge] = {}
        for i, (key, rule, view) in enumerate(zip(keys, rules, views, strict=True)):
            added, cap = stored.get(key, (0, None))
            dropped = 0
            if cap is not None:
                added, dropped = view.stored(added, cap)
            row = _window_reply(view, rule, full[i], added, dropped)
            reply += row if watch is None else watch.row(i, row, admitted)
            # Policies with the same key share its hits, so the key is charged once.
            if added:
                charges.setdefault(key, (view, rule.policy, added, dropped))
        if writes:
            self._store(charges, [] if watch is None else watch.store(), keys, now)
        return Reply(reply)

    def _store(
        self,
        charges: dict[str, _Charge],
        penalties: Sequence[Window],
        keys: tuple[str, ...],
        now: int,
    ) -> None:
        """Charge windows, and keep penalties that have changed."""
        for key, (view, policy, added, dropped) in charges.items():
            if keys.count(key) > 1:
                view = self._look(key, policy, now, True)
            view.charge(added, dropped)
            self._keep(view.window)
        for penalty in penalties:
            self._keep(penalty)
        changed = len(charges) + len(penalties)
        if changed:
            self._unswept += changed
            self._tidy(changed, now)

    def _look(self, key: str, policy: Policy, now: int, writes: bool) -> View:
        window = self._windows.get(key)
        if window is None:
            # `_keep` stores it if it is charged.
            window = _WINDOWS.get(policy.algorithm, Log)(key, policy)
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

    def _reset(self, call: Reset, now: int) -> list[int]:
        counted = 0
        for key in call.keys:
            window = self._windows.get(key)
            if window is not None:
                counted += not window.expired(now)
                self._forget(window)
        return [counted]

    def _forget(self, window: Window) -> None:
        del self._windows[window.key]
        self._hits -= window.known
        window.clear()

    def _tidy(self, charged: int, now: int) -> None:
        while self._unswept >= self.swept_after:
            self._unswept -= self.swept_after
            self._sweep(now)
        windows = self._windows
        while len(windows) > charged and (
            len(windows) > self._max_keys or self._hits > self._max_hits
        ):
            self._forget(next(iter(windows.values())))

    def _sweep(self, now: int) -> None:
        for _ in range(min(self.swept, len(self._turns))):
            window = self._turns.popleft()
            if self._windows.get(window.key) is not window:
                continue
            if window.expired(now):
                self._forget(window)
            else:
                self._turns.append(window)


def _stored_hits(
    keys: tuple[str, ...], rules: tuple[WindowRule, ...], refuses: list[bool], admitted: bool
) -> dict[str, tuple[int, int | None]]:
    """Return the hits that a request adds to each key, and the count that they may reach.

    The second number is None, for no bound, if the hits are those of an admitted request. A
    refused request that counts never raises the count above the limit.
    """
    stored: dict[str, tuple[int, int | None]] = {}
    for key, rule, refused in zip(keys, rules, refuses, strict=True):
        limit = rule.policy.limit
        added, cap = stored.get(key, (0, 0))
        if not refused:
            if admitted and rule.cost and cap is not None:
                stored[key] = rule.cost, None
        elif rule.count_rejected and cap is not None:
            stored[key] = max(added, min(rule.cost, limit)), max(cap, limit)
    return stored


def _window_reply(
    view: View, rule: WindowRule, refused: bool, added: int, dropped: int
) -> tuple[int, int, int, int]:
    """Return the fields of a window's `WindowReply`."""
    limit, cost, retry = rule.policy.limit, rule.cost, 0
    if not cost:
        # A request without a cost gets the window as it was before this call.
        added = dropped = 0
    if refused:
        retry = -1 if cost > limit else view.passes(limit, cost, added)
    count = view.count + added
    reset = view.leaves(dropped + 1) if count else 0
    return int(not refused), max(0, limit - count + dropped), retry, reset
