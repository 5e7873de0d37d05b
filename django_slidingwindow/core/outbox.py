"""Charges that no request waits for, on their way to the store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from ..decisions import Charge
from ..exceptions import StoreError
from ..policies import Policy
from ..stores.protocol import Evaluate, Refund, Reply, Store, WindowRule
from .background import Background
from .health import Health, Sent
from .nearness import Nearness

# Calls in one round trip.
_CALLS = 500
# Enough for as many windows as may wait, with a Redis 200 ms away.
_EXIT_SECONDS = 10.0

Window: TypeAlias = "tuple[str, Policy]"
"""A key, and the policy that it is looked at by."""


class Waiting:
    """The hits of one window that are sent together."""

    __slots__ = ("given_back", "hits", "profile", "stamp", "was_reset")

    def __init__(self) -> None:
        self.profile = ""
        """One that has charged them."""
        self.hits = 0
        self.stamp: int | None = None
        """The store's clock when they were charged."""
        self.given_back: list[Charge] = []
        """What was given back while they were on their way."""
        self.was_reset = False
        """Whether the window was reset while they were on their way."""


Answered: TypeAlias = "Callable[[Window, int, Reply | None, float], None]"
"""Called with a window, the hits that were sent, how it looks now if that is known, and when it was
asked."""


class Outbox:
    """What waits to be sent. All but `flush` is called with the lock held."""

    def __init__(
        self,
        store: Store,
        health: Health,
        *,
        answered: Answered,
        forked: Callable[[], None],
        sent: Callable[[Sent], None] | None,
        near: Nearness,
        interval: float,
        clock: Callable[[], float],
        max_windows: int,
    ) -> None:
        """`interval`: seconds between two rounds; `sent` is called after each.

        `forked` is called in a forked child, where nothing waits: that is the parent's.
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
        """Of all that is known and waits."""
        # Held by a round: the next one begins when it has ended.
        self._round = threading.RLock()
        self._sending: dict[Window, Waiting] = {}
        self._empty()

    def _empty(self) -> None:
        self._waiting: dict[Window, Waiting] = {}
        self._refunds: list[tuple[Charge, int]] = []
        self._dropped = 0

    def _start_afresh(self) -> None:
        # The lock may be held by a thread that is not there.
        self._begin()
        self._forked()

    def waiting(self, window: Window) -> Waiting | None:
        """Return the hits of a window that wait; None if too many windows do."""
        waiting = self._waiting.get(window)
        if waiting is None:
            if len(self._waiting) >= self._max_windows:
                return None
            waiting = self._waiting[window] = Waiting()
            half_full = 2 * len(self._waiting) > self._max_windows
            self._background.wake(0.0 if half_full else self._interval)
        return waiting

    def drop(self, hits: int) -> None:
        """Count hits that will never be sent."""
        self._dropped += hits

    def give_back(self, charge: Charge, waiting: Waiting) -> int:
        """Take hits back; return how many of them were not even sent."""
        if self._waiting.get((charge.key, charge.policy)) is waiting:
            waiting.hits -= charge.cost
            return charge.cost
        if waiting.stamp is None:
            waiting.given_back.append(charge)
        else:
            self._refund([charge], waiting.stamp)
        return 0

    def forget(self, keys: Collection[str]) -> None:
        """Do not send the hits of windows that are reset, nor believe what is on its way."""
        for window in [window for window in self._waiting if window[0] in keys]:
            del self._waiting[window]
        for (key, _), waiting in self._sending.items():
            waiting.was_reset |= key in keys

    def flush(self) -> None:
        """Send what waits now, after what is on its way. The background thread calls it."""
        with self._round:
            sent = self._flush()
        if sent is not None and self._sent is not None:
            self._sent(sent)

    def _flush(self) -> Sent | None:
        """Return what became of the hits; None if there were none."""
        with self.lock:
            waiting, refunds, dropped = self._waiting, self._refunds, self._dropped
            self._empty()
            self._sending = waiting
        start = self._clock()
        work = [*waiting.items()]
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

    def _send(self, work: Sequence[tuple[Window, Waiting]], sent: Sent) -> Sent:
        """Charge windows, and look at each after that."""
        calls: list[Evaluate] = []
        nodes: list[str] = []
        for (key, policy), waiting in work:
            nodes += [self._store.node(key)] * 2
            charge = WindowRule(policy, waiting.hits, count_rejected=True)
            calls += [
                Evaluate((key,), (charge,), writes=True),
                # What is left, and when one more would pass.
                Evaluate((key, key), (WindowRule(policy, 0), WindowRule(policy, 1)), writes=False),
            ]
        now = self._clock()
        answers = self._health.run_many(calls, nodes, charges=True)
        if self._near.listeners.receivers:
            # Without the lock: a receiver may check limits itself.
            self._look_for_near(work, answers[::2])
        charged, over, lost, seconds, error = sent
        with self.lock:
            for (window, waiting), reply, looks in zip(
                work, answers[::2], answers[1::2], strict=True
            ):
                if isinstance(reply, StoreError):
                    lost += waiting.hits
                    error = reply
                else:
                    charged += waiting.hits
                    over += 0 if reply.admitted else waiting.hits
                    waiting.stamp = reply.clock
                    if waiting.given_back:
                        self._refund(waiting.given_back, reply.clock)
                if not waiting.was_reset:
                    seen = None if isinstance(looks, StoreError) else looks
                    self._answered(window, waiting.hits, seen, now)
        return Sent(charged, over, lost, seconds, error)

    def _look_for_near(
        self, work: Sequence[tuple[Window, Waiting]], replies: Sequence[Reply | StoreError]
    ) -> None:
        for ((key, policy), waiting), reply in zip(work, replies, strict=True):
            if not isinstance(reply, StoreError):
                rule = WindowRule(policy, waiting.hits)
                self._near.window(waiting.profile, key, rule, reply.window(0))
