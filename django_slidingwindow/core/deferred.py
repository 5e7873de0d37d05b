"""Profiles in the mode "deferred": decided by what this process knows, and charged afterwards.

A background thread sends the charges. What was admitted is charged even if the window turns out
to be full (as with `count_rejected`), so that those who come later pay for it.

This process knows what the store has answered last: how many hits were left, and when the next hit
leaves the window. Until then a window without room is refused here, as the store would refuse
it. A window that was never looked at is taken to be empty.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from typing import Any

from ..algorithms.timing import EXACT
from ..decisions import DEFERRED, Charge, Decision
from ..stores.protocol import Fields, Reply, Store
from .health import Health, Sent
from .nearness import Nearness
from .outbox import Outbox, Waiting, Window
from .results import decision_of, together
from .waiting import Ask
from .windows import WindowSet

# How many windows may have unsent charges, and how many windows this process remembers.
_MAX_WAITING, _MAX_KNOWN = 10_000, 50_000
# Seconds after which a window that refuses is looked at again: it may have been reset.
_LOOK_AGAIN = 1.0


class _Known:
    """What this process knows about one window. Times are by the limiter's clock."""

    __slots__ = ("looked_at", "remaining", "reset_at", "retry_at", "unsent")

    def __init__(self) -> None:
        self.remaining: int | None = None
        """What the store has said last; None if it was never asked."""
        self.reset_at = self.retry_at = self.looked_at = 0.0
        self.unsent = 0
        """Hits that were admitted here and are not part of that."""


_UNKNOWN = _Known()


class Deferred:
    """What this process knows about windows that are charged afterwards."""

    def __init__(
        self,
        store: Store,
        health: Health,
        *,
        without_store: Callable[[WindowSet, None], Decision],
        report: Callable[[Decision, None], Decision],
        sent: Callable[[Sent], None] | None,
        near: Nearness,
        interval: float,
        clock: Callable[[], float],
        max_waiting: int = _MAX_WAITING,
    ) -> None:
        """`without_store` decides while the store is away; `report` is called with each decision.

        The rest as for `Outbox`.
        """
        self._store = store
        self._breakers = health.breakers
        self._without_store = without_store
        self._report = report
        self._clock = clock
        self._known: OrderedDict[Window, _Known] = OrderedDict()
        self._outbox = Outbox(
            store,
            health,
            answered=self._answered,
            forked=self._known.clear,
            sent=sent,
            near=near,
            interval=interval,
            clock=clock,
            max_windows=max_waiting,
        )
        self.flush = self._outbox.flush

    def check(self, windows: WindowSet) -> Decision | Generator[Ask, Decision, Decision]:
        """Return the decision; a flow if there are windows that have to be charged at once."""
        later, rest = self._split(windows)
        refusal = self._refusal(later)
        if refusal is not None:
            return self._report(refusal, None)
        if self._breakers.open and not self._breakers.permit(self._nodes(later)):
            # About all windows together, so that all are charged or none.
            return self._without_store(windows, None)
        return self._take(later) if rest is None else self._with_rest(later, rest)

    def give_back(self, charges: Iterable[Charge], waiting: Waiting) -> int:
        """Take back what `check` has charged; return the hits."""
        taken = 0
        with self._outbox.lock:
            for charge in charges:
                taken += charge.cost
                known = self._of((charge.key, charge.policy))
                # It may have been forgotten meanwhile.
                known.unsent = max(0, known.unsent - self._outbox.give_back(charge, waiting))
        return taken

    def forget(self, keys: Iterable[str]) -> None:
        """Forget the last replies for windows that were reset."""
        if self._known:
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
                # The probe that it may have been is not sent.
                self._breakers.abandoned(self._nodes(later))
        return together(decision, self._take(later)) if decision.allowed else decision

    def _nodes(self, windows: WindowSet) -> list[str]:
        return [*dict.fromkeys([self._store.node(key) for key in windows.keys])]

    def _refusal(self, windows: WindowSet) -> Decision | None:
        """Return a refusal if the windows are full, as far as this process knows."""
        now = self._clock()
        template, keys = windows
        with self._outbox.lock:
            fields = self._look(windows, now)
            if fields[0]:
                return None
            for key, rule in zip(keys, template.rules, strict=True):
                known = self._known.get((key, rule.policy))
                if known is not None and now - known.looked_at > _LOOK_AGAIN:
                    known.looked_at = now
                    self._outbox.waiting((key, rule.policy))
        return decision_of(windows, template.rules, fields, DEFERRED, ())

    def _take(self, windows: WindowSet) -> Decision:
        """Admit the request, and charge it later."""
        template, keys = windows
        charged: dict[str, tuple[tuple[Charge, ...], Any]] = {}
        with self._outbox.lock:
            fields = self._look(windows, self._clock(), admitted=True)
            for i, (key, rule) in enumerate(zip(keys, template.rules, strict=True)):
                policy, cost = rule.policy, rule.cost
                # Policies with the same key share their hits: a request is charged once there.
                if not cost or key in charged:
                    continue
                waiting = self._outbox.waiting((key, policy))
                if waiting is None:
                    self._outbox.drop(cost)
                    continue
                waiting.hits += cost
                waiting.profile = template.named[i][0]
                self._of((key, policy)).unsent += cost
                charged[key] = (Charge(key, policy, cost),), waiting
        taken = tuple(charged.values())
        decision = decision_of(windows, template.rules, fields, DEFERRED, taken)
        return self._report(decision, None)

    def _look(self, windows: WindowSet, now: float, *, admitted: bool = False) -> Fields:
        """Return a reply from what this process knows. `admitted`: it was not refused."""
        template, keys = windows
        fields: list[int] = []
        for key, rule in zip(keys, template.rules, strict=True):
            policy, cost = rule.policy, rule.cost
            known = self._known.get((key, policy), _UNKNOWN)
            left = policy.limit if known.remaining is None else known.remaining
            left -= known.unsent
            until = known.retry_at
            if policy.algorithm in EXACT:
                # No room comes before a hit leaves.
                until = max(until, known.reset_at)
            reset = _microseconds(known.reset_at - now)
            if cost > policy.limit:
                fields += [0, max(0, left), -1, reset]
            elif not admitted and cost > left and now < until:
                fields += [0, max(0, left), _microseconds(until - now), reset]
            else:
                fields += [1, max(0, left - cost), 0, reset]
        return (int(0 not in fields[::4]), 0, *fields)

    def _of(self, window: Window) -> _Known:
        known = self._known.get(window)
        if known is None:
            known = self._known[window] = _Known()
            if len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
        return known

    def _answered(self, window: Window, hits: int, looks: Reply | None, asked_at: float) -> None:
        """Remember the answer of the store to a charge of `hits` hits."""
        known = self._of(window)
        known.unsent = max(0, known.unsent - hits)
        self._known.move_to_end(window)
        if looks is not None:
            (_, known.remaining, _, reset), (_, _, retry, _) = looks.windows()
            # Counted from before it was asked: a refusal here ends no later than the store's.
            known.reset_at = asked_at + reset / 1_000_000
            known.retry_at = asked_at + retry / 1_000_000
            known.looked_at = asked_at


def _microseconds(seconds: float) -> int:
    return max(0, round(1_000_000 * seconds))
