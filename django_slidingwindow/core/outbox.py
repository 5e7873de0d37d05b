"""Deferred charges that wait to be sent to the store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import TypeAlias

from ..decisions import Charge
from ..exceptions import StoreError
from ..policies import Policy
from ..stores.protocol import Evaluate, Refund, Reply, Store, WindowRule
from .background import Background
from .callbacks import Sent
from .health import Health
from .near_limit import NearLimit

# The most windows with unsent charges.
_MAX_WINDOWS = 10_000
# Calls in one round trip.
_CALLS = 500
# Enough for as many windows as may wait, with a Redis 200 ms away.
_EXIT_SECONDS = 10.0


class PendingCharge:
    """The hits of one window that are sent in one call."""

    __slots__ = ("given_back", "hits", "profiles", "stamp", "was_reset")

    def __init__(self) -> None:
        self.profiles: dict[Policy, str] = {}
        """The policies that count the hits, each with a profile that has it."""
        self.hits = 0
        self.stamp: int | None = None
        """The store's clock when they were charged."""
        self.given_back: list[Charge] = []
        """Charges that were refunded while the call was under way."""
        self.was_reset = False
        """Whether the window was reset while the call was under way."""

    @property
    def policies(self) -> list[Policy]:
        """The policies, the one with the highest limit first. The hits are charged to that one."""
        return sorted(self.profiles, key=attrgetter("limit"), reverse=True)


Answered: TypeAlias = "Callable[[str, Sequence[Policy], Reply, float], None]"
"""Called after a charge with a key, its policies, the reply about them, and the time of the call.
The reply has two rows for each policy: for no hit, and for one hit more."""


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
        self._sending: dict[str, PendingCharge] = {}
        self._empty()

    def _empty(self) -> None:
        # By key.
        self._pending: dict[str, PendingCharge] = {}
        self._refunds: list[tuple[Charge, int]] = []
        self._dropped = 0

    def _start_afresh(self) -> None:
        # The parent's thread that holds the lock does not exist here.
        self._begin()
        self._forked()

    def pending(self, key: str) -> PendingCharge | None:
        """Return the pending charge of a window; None if the outbox is full."""
        pending = self._pending.get(key)
        if pending is None:
            if len(self._pending) >= _MAX_WINDOWS:
                return None
            pending = self._pending[key] = PendingCharge()
            half_full = 2 * len(self._pending) > _MAX_WINDOWS
            self._background.wake(0.0 if half_full else self._interval)
        return pending

    def unsent(self, key: str) -> int:
        """Return the hits of a window that its last reply does not include."""
        waiting, sending = self._pending.get(key), self._sending.get(key)
        hits = waiting.hits if waiting is not None else 0
        return hits if sending is None or sending.was_reset else hits + sending.hits

    def drop(self, hits: int) -> None:
        """Count hits that will never be sent."""
        self._dropped += hits

    def give_back(self, charge: Charge, pending: PendingCharge) -> None:
        """Refund hits."""
        if self._pending.get(charge.key) is pending:
            pending.hits -= charge.cost
            return
        pending.given_back.append(charge._replace(policy=pending.policies[0]))
        self._refund(pending)

    def forget(self, keys: Collection[str]) -> None:
        """Drop the hits of windows that are reset, and ignore replies that are under way."""
        for key in keys:
            self._pending.pop(key, None)
            sending = self._sending.get(key)
            if sending is not None:
                sending.was_reset = True

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
            self._give_back(refunds)
            for at in range(0, len(work), _CALLS // 2):
                sent = self._send(work[at : at + _CALLS // 2], sent)
        finally:
            with self.lock:
                self._sending = {}
        return sent._replace(seconds=self._clock() - start) if work or dropped else None

    def _refund(self, sent: PendingCharge) -> None:
        """Refund in the next round what was given back of a charge, if it has been charged."""
        if sent.stamp is None:
            return
        for charge in sent.given_back:
            self._refunds.append((charge, sent.stamp))
            # The state of the window is read again after that.
            again = self.pending(charge.key)
            if again is not None:
                again.profiles = {**sent.profiles, **again.profiles}
        sent.given_back = []
        self._background.wake(self._interval)

    def _give_back(self, refunds: Sequence[tuple[Charge, int]]) -> None:
        for at in range(0, len(refunds), _CALLS):
            some = refunds[at : at + _CALLS]
            nodes = [self._store.node(charge.key) for charge, _ in some]
            calls = [Refund((charge,), stamp) for charge, stamp in some]
            self._health.run_many(calls, nodes, charges=True)

    def _send(self, work: Sequence[tuple[str, PendingCharge]], sent: Sent) -> Sent:
        """Charge windows, and read the state of each after that."""
        calls: list[Evaluate] = []
        nodes: list[str] = []
        for key, pending in work:
            nodes += [self._store.node(key)] * 2
            calls += [_charge(key, pending), _look(key, pending)]
        now = self._clock()
        answers = self._health.run_many(calls, nodes, charges=True)
        if self._near.listeners.receivers:
            # Without the lock: a receiver may check limits itself.
            self._report_near(work, answers[::2])
        charged, over, lost, seconds, error = sent
        with self.lock:
            for (key, pending), reply, looks in zip(work, answers[::2], answers[1::2], strict=True):
                if isinstance(reply, StoreError):
                    lost += pending.hits
                    error = reply
                else:
                    charged += pending.hits
                    over += 0 if all(reply.admits) else pending.hits
                    pending.stamp = reply.clock
                    self._refund(pending)
                if not pending.was_reset and not isinstance(looks, StoreError):
                    self._answered(key, pending.policies, looks, now)
                del self._sending[key]
        return Sent(charged, over, lost, seconds, error)

    def _report_near(
        self, work: Sequence[tuple[str, PendingCharge]], replies: Sequence[Reply | StoreError]
    ) -> None:
        for (key, pending), reply in zip(work, replies, strict=True):
            if not isinstance(reply, StoreError):
                for position, policy in enumerate(pending.policies):
                    rule = WindowRule(policy, pending.hits)
                    self._near.window(pending.profiles[policy], key, rule, reply.window(position))


def _charge(key: str, pending: PendingCharge) -> Evaluate:
    """Return the call that charges a window to its policy with the highest limit.

    The reply says of the other policies whether they would have admitted the hits.
    """
    rules = [
        WindowRule(policy, pending.hits, observed=position > 0, count_rejected=position == 0)
        for position, policy in enumerate(pending.policies)
    ]
    return Evaluate((key,) * len(rules), tuple(rules), writes=True)


def _look(key: str, pending: PendingCharge) -> Evaluate:
    """Return the call that reads the hits left, and when one more would be admitted."""
    rules = [WindowRule(policy, cost) for policy in pending.policies for cost in (0, 1)]
    return Evaluate((key,) * len(rules), tuple(rules), writes=False)
