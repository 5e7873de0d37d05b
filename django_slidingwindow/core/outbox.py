"""Deferred charges that wait to be sent to the store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from ..decisions import Charge
from ..exceptions import StoreError
from ..policies import Policy
from ..stores.protocol import Evaluate, Refund, Reply, Store, WindowRule
from .background import Background
from .callbacks import Sent
from .health import Health
from .near_limit import NearLimit

# Calls in one round trip.
_CALLS = 500
# Enough for as many windows as may wait, with a Redis 200 ms away.
_EXIT_SECONDS = 10.0

Window: TypeAlias = "tuple[str, Policy]"
"""A key, and the policy that counts its hits."""


class PendingCharge:
    """The hits of one window that are sent in one call."""

    __slots__ = ("given_back", "hits", "profile", "stamp", "was_reset")

    def __init__(self) -> None:
        self.profile = ""
        """A profile that charged them."""
        self.hits = 0
        self.stamp: int | None = None
        """The store's clock when they were charged."""
        self.given_back: list[Charge] = []
        """Charges that were refunded while the call was under way."""
        self.was_reset = False
        """Whether the window was reset while the call was under way."""


Answered: TypeAlias = "Callable[[Window, int, Reply | None, float], None]"
"""Called with a window, the hits that were sent, the state of the window after that if it is known,
and the time of the call."""


class Outbox:
    """Collects charges, and sends them in batches. Hold `lock` to call any method but `flush`."""

    def __init__(
        self,
        store: Store,
        health: Health,
        *,
        answered: Answered,
        forked: Callable[[], None],
        sent: Callable[[Sent], None] | None,
        near: NearLimit,
        interval: float,
        clock: Callable[[], float],
        max_windows: int,
    ) -> None:
        """`interval`: seconds between two batches; `sent` is called after each.

        `forked` is called in a forked child, which starts empty: the charges are its parent's.
        """
        self._store = store
        self._health = health
        self._answered = answered
        self._forked = forked
        self._sent = sent
        self._near = near
        self._interval = interval
        self._clock = clock
        self._max_windows = max_windows
        self._background = Background(
            self.flush,
            name="django_slidingwindow.deferred",
            forked=self._start_afresh,
            exit_seconds=_EXIT_SECONDS,
        )
        self._begin()

    def _begin(self) -> None:
        self.lock = threading.Lock()
        """Protects the outbox and what the process knows about windows."""
        # Held while charges are sent, so that only one batch is under way.
        self._round = threading.RLock()
        self._sending: dict[Window, PendingCharge] = {}
        self._empty()

    def _empty(self) -> None:
        self._pending: dict[Window, PendingCharge] = {}
        self._refunds: list[tuple[Charge, int]] = []
        self._dropped = 0

    def _start_afresh(self) -> None:
        # The parent's thread that holds the lock does not exist here.
        self._begin()
        self._forked()

    def pending(self, window: Window) -> PendingCharge | None:
        """Return the pending charge of a window; None if the outbox is full."""
        pending = self._pending.get(window)
        if pending is None:
            if len(self._pending) >= self._max_windows:
                return None
            pending = self._pending[window] = PendingCharge()
            half_full = 2 * len(self._pending) > self._max_windows
            self._background.wake(0.0 if half_full else self._interval)
        return pending

    def drop(self, hits: int) -> None:
        """Count hits that will never be sent."""
        self._dropped += hits

    def give_back(self, charge: Charge, pending: PendingCharge) -> int:
        """Refund hits; return how many of them were not sent yet."""
        if self._pending.get((charge.key, charge.policy)) is pending:
            pending.hits -= charge.cost
            return charge.cost
        if pending.stamp is None:
            pending.given_back.append(charge)
        else:
            self._refund([charge], pending.stamp)
        return 0

    def forget(self, keys: Collection[str]) -> None:
        """Drop the hits of windows that are reset, and ignore replies that are under way."""
        for window in [window for window in self._pending if window[0] in keys]:
            del self._pending[window]
        for (key, _), pending in self._sending.items():
            pending.was_reset |= key in keys

    def flush(self) -> None:
        """Send all pending charges, after the batch that is under way. Called by the thread."""
        with self._round:
            sent = self._flush()
        if sent is not None and self._sent is not None:
            self._sent(sent)

    def _flush(self) -> Sent | None:
        """Send all pending charges and return the result; None if there was nothing to do."""
        with self.lock:
            pending, refunds, dropped = self._pending, self._refunds, self._dropped
            self._empty()
            self._sending = pending
        start = self._clock()
        work = [*pending.items()]
        sent = Sent(0, 0, dropped, 0.0, None)
        try:
            for at in range(0, len(work), _CALLS // 2):
                sent = self._send(work[at : at + _CALLS // 2], sent)
        finally:
            with self.lock:
                self._sending = {}
        for at in range(0, len(refunds), _CALLS):
            some = refunds[at : at + _CALLS]
            nodes = [self._store.node(charge.key) for charge, _ in some]
            calls = [Refund((charge,), stamp) for charge, stamp in some]
            self._health.run_many(calls, nodes, charges=True)
        return sent._replace(seconds=self._clock() - start) if work or dropped else None

    def _refund(self, charges: list[Charge], stamp: int) -> None:
        self._refunds += [(charge, stamp) for charge in charges]
        self._background.wake(self._interval)

    def _send(self, work: Sequence[tuple[Window, PendingCharge]], sent: Sent) -> Sent:
        """Charge windows, and read the state of each after that."""
        calls: list[Evaluate] = []
        nodes: list[str] = []
        for (key, policy), pending in work:
            nodes += [self._store.node(key)] * 2
            charge = WindowRule(policy, pending.hits, count_rejected=True)
            calls += [
                Evaluate((key,), (charge,), writes=True),
                # Returns the hits left, and when one more would be admitted.
                Evaluate((key, key), (WindowRule(policy, 0), WindowRule(policy, 1)), writes=False),
            ]
        now = self._clock()
        answers = self._health.run_many(calls, nodes, charges=True)
        if self._near.listeners.receivers:
            # Without the lock: a receiver may check limits itself.
            self._report_near(work, answers[::2])
        charged, over, lost, seconds, error = sent
        with self.lock:
            for (window, pending), reply, looks in zip(
                work, answers[::2], answers[1::2], strict=True
            ):
                if isinstance(reply, StoreError):
                    lost += pending.hits
                    error = reply
                else:
                    charged += pending.hits
                    over += 0 if reply.admitted else pending.hits
                    pending.stamp = reply.clock
                    if pending.given_back:
                        self._refund(pending.given_back, reply.clock)
                if not pending.was_reset:
                    seen = None if isinstance(looks, StoreError) else looks
                    self._answered(window, pending.hits, seen, now)
        return Sent(charged, over, lost, seconds, error)

    def _report_near(
        self, work: Sequence[tuple[Window, PendingCharge]], replies: Sequence[Reply | StoreError]
    ) -> None:
        for ((key, policy), pending), reply in zip(work, replies, strict=True):
            if not isinstance(reply, StoreError):
                rule = WindowRule(policy, pending.hits)
                self._near.window(pending.profile, key, rule, reply.window(0))
