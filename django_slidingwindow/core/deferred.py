"""Profiles in the mode "deferred": decide from memory, and charge the store afterwards.

A background thread sends the charges. An admitted request is charged even if the window turns out
to be full (as with `count_rejected`), so that later requests pay for it.

For each window the process remembers the last reply of the store: how many hits were left, and when
the next hit leaves the window. Until that time, requests for which there is no room are refused. A
window without a reply counts as empty.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from ..algorithms.timing import EXACT
from ..decisions import DEFERRED, NO_LIMIT, Charge, Decision
from ..policies import Policy
from ..stores.protocol import Fields, Reply, Store
from .callbacks import Sent
from .health import Health
from .near_limit import NearLimit
from .outbox import Outbox, PendingCharge
from .results import decision_of, together
from .waiting_lines import Ask
from .windows import WindowSet

# The most windows that are remembered.
_MAX_KNOWN = 50_000
# Seconds after which a window that refuses is read again: another process may have reset it.
_READ_AGAIN = 1.0


class _KnownWindow:
    """The state of one window as this process knows it. Times are by the limiter's clock."""

    __slots__ = ("read_at", "remaining", "reset_at", "retry_at")

    def __init__(self, remaining: int, reset_at: float, retry_at: float, read_at: float) -> None:
        self.remaining = remaining
        """The hits left in the last reply of the store."""
        self.reset_at = reset_at
        self.retry_at = retry_at
        self.read_at = read_at


_UNKNOWN = _KnownWindow(NO_LIMIT, 0.0, 0.0, 0.0)


class Deferred:
    """Decides about deferred windows, and leaves their charges to the outbox."""

    def __init__(
        self,
        store: Store,
        health: Health,
        *,
        without_store: Callable[[WindowSet, None], Decision],
        report: Callable[[Decision, None], Decision],
        sent: Callable[[Sent], None] | None,
        near: NearLimit,
        interval: float,
        clock: Callable[[], float],
    ) -> None:
        """`without_store` decides during an outage; `report` is called with each decision.

        The other arguments are those of `Outbox`.
        """
        self._store = store
        self._breakers = health.breakers
        self._without_store = without_store
        self._report = report
        self._clock = clock
        # By key and policy: policies may share a window.
        self._known: OrderedDict[tuple[str, Policy], _KnownWindow] = OrderedDict()
        self._outbox = Outbox(
            store,
            health,
            answered=self._answered,
            forked=self._known.clear,
            sent=sent,
            near=near,
            interval=interval,
            clock=clock,
        )
        self.flush = self._outbox.flush

    def check(self, windows: WindowSet) -> Decision | Generator[Ask, Decision, Decision]:
        """Return the decision, or a flow if other windows have to be charged at once."""
        later, rest = self._split(windows)
        refusal = self._refusal(later)
        if refusal is not None:
            return self._report(refusal, None)
        if self._breakers.open and not self._breakers.permit(self._nodes(later)):
            # The fallback decides about all windows together: all are charged or none.
            return self._without_store(windows, None)
        return self._take(later) if rest is None else self._with_rest(later, rest)

    def give_back(self, charges: Iterable[Charge], pending: PendingCharge) -> int:
        """Refund what `check` charged; return the hits."""
        taken = 0
        with self._outbox.lock:
            for charge in charges:
                taken += charge.cost
                self._outbox.give_back(charge, pending)
        return taken

    def forget(self, keys: Iterable[str]) -> None:
        """Forget the last replies for windows that were reset."""
        forgotten = set(keys)
        with self._outbox.lock:
            self._outbox.forget(forgotten)
            for window in [window for window in self._known if window[0] in forgotten]:
                del self._known[window]

    def _split(self, windows: WindowSet) -> tuple[WindowSet, WindowSet | None]:
        """Return the windows that are charged later, and those that are charged at once."""
        later, number = windows.template.deferred, len(windows.keys)
        if len(later) == number:
            return windows, None
        return windows.part(later), windows.part([i for i in range(number) if i not in later])

    def _with_rest(self, later: WindowSet, rest: WindowSet) -> Generator[Ask, Decision, Decision]:
        decision = None
        try:
            decision = yield Ask(rest)
        finally:
            if self._breakers.open and not (decision and decision.allowed):
                # If it had the permit to probe, that probe is not sent.
                self._breakers.abandoned(self._nodes(later))
        return together(decision, self._take(later)) if decision.allowed else decision

    def _nodes(self, windows: WindowSet) -> list[str]:
        return [*dict.fromkeys([self._store.node(key) for key in windows.keys])]

    def _refusal(self, windows: WindowSet) -> Decision | None:
        """Return a refusal if a window has no room, as far as this process knows."""
        now = self._clock()
        template, keys = windows
        counted: dict[str, int] = {}
        with self._outbox.lock:
            fields = self._estimate(windows, now)
            if fields[0]:
                return None
            for i, (key, rule) in enumerate(zip(keys, template.rules, strict=True)):
                policy, hits = rule.policy, 0
                if rule.count_rejected and not fields[2 + 4 * i]:
                    # Of policies with the same key, the largest refusal counts.
                    hits = max(0, min(rule.cost, policy.limit) - counted.get(key, 0))
                    counted[key] = counted.get(key, 0) + hits
                known = self._known.get((key, policy))
                if known is not None and now - known.read_at > _READ_AGAIN:
                    known.read_at = now
                elif not hits:
                    continue
                self._leave(windows, i, hits)
        return decision_of(windows, template.rules, fields, DEFERRED, ())

    def _take(self, windows: WindowSet) -> Decision:
        """Admit the request, and charge it later."""
        template, keys = windows
        charged: dict[str, tuple[tuple[Charge, ...], Any] | None] = {}
        with self._outbox.lock:
            fields = self._estimate(windows, self._clock(), admitted=True)
            for i, (key, rule) in enumerate(zip(keys, template.rules, strict=True)):
                if rule.cost:
                    # Policies with the same key share their hits: charge each key once.
                    is_first = key not in charged
                    pending = self._leave(windows, i, rule.cost if is_first else 0)
                    if is_first:
                        charge = Charge(key, rule.policy, rule.cost)
                        charged[key] = None if pending is None else ((charge,), pending)
        taken = tuple([each for each in charged.values() if each is not None])
        decision = decision_of(windows, template.rules, fields, DEFERRED, taken)
        return self._report(decision, None)

    def _leave(self, windows: WindowSet, position: int, hits: int) -> PendingCharge | None:
        """Leave hits of a window to the outbox; return None if it is full."""
        profile, policy = windows.template.named[position]
        pending = self._outbox.pending(windows.keys[position])
        if pending is None:
            self._outbox.drop(hits)
        else:
            pending.profiles[policy] = profile
            pending.hits += hits
        return pending

    def _estimate(self, windows: WindowSet, now: float, *, admitted: bool = False) -> Fields:
        """Return the reply that the store would give, as far as this process knows.

        `admitted`: the request is known to be admitted.
        """
        template, keys = windows
        fields: list[int] = []
        for key, rule in zip(keys, template.rules, strict=True):
            policy, cost = rule.policy, rule.cost
            known = self._known.get((key, policy), _UNKNOWN)
            left = max(0, min(policy.limit, known.remaining) - self._outbox.unsent(key))
            until = known.retry_at
            if policy.algorithm in EXACT:
                # There is no room before a hit leaves the window.
                until = max(until, known.reset_at)
            reset = _microseconds(known.reset_at - now)
            if cost > policy.limit:
                fields += [0, left, -1, reset]
            elif not admitted and cost > left and now < until:
                fields += [0, left, _microseconds(until - now), reset]
            else:
                fields += [1, max(0, left - cost), 0, reset]
        return (int(0 not in fields[::4]), 0, *fields)

    def _answered(self, key: str, policies: Sequence[Policy], state: Reply, sent_at: float) -> None:
        """Remember what the store says about a window after a charge."""
        rows = [*state.windows()]
        for policy, now, one_more in zip(policies, rows[::2], rows[1::2], strict=True):
            _, remaining, _, reset = now
            _, _, retry, _ = one_more
            # From the time before the call, so that a refusal here ends no later than the store's.
            times = sent_at + reset / 1_000_000, sent_at + retry / 1_000_000, sent_at
            self._known[key, policy] = _KnownWindow(remaining, *times)
            self._known.move_to_end((key, policy))
            if len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)


def _microseconds(seconds: float) -> int:
    return max(0, round(1_000_000 * seconds))
