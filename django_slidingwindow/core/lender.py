"""Checks that need more than one plain call: leases, and windows in several cluster slots.

A request first takes the units that this process has leased, and then asks the store for the rest.
If the store refuses, the leased units are put back: all windows are charged or none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias

from ..decisions import LEASE, Decision
from ..exceptions import StoreError
from ..stores.protocol import Call, Evaluate, Refund, Reply, Store
from .callbacks import Callbacks
from .health import Health, StoreCall
from .lease_returner import Returner
from .leases import Leases, Return
from .multi_slot import MultiSlotCheck
from .outcomes import Outcomes
from .results import charges_of, lease_reply, leased
from .shield import Shield
from .taken_units import TakenUnits
from .windows import WindowSet

Flow: TypeAlias = "Generator[StoreCall, Any, Decision]"
_ADMITTED = Reply((1, 0))
# Leases whose units are returned in one round trip.
_RETURNS = 500
# Time limit in seconds of a call after the budget is used up: just enough to fail.
_LEAST = 0.001


class Lender:
    """Charges windows, from leases where possible and from the store for the rest."""

    def __init__(
        self,
        store: Store,
        leases: Leases,
        *,
        outcomes: Outcomes,
        health: Health,
        shield: Shield,
        callbacks: Callbacks,
        budget: float | None,
        clock: Callable[[], float],
        background: bool,
    ) -> None:
        """`background`: a thread returns units when their leases end."""
        self._store = store
        self.leases = leases
        self._outcomes = outcomes
        self._health = health
        self._breaker = health.breakers
        self._shield = shield
        self._listeners = callbacks.listeners
        self._ended = callbacks.leased
        self._near = callbacks.near
        self._budget = budget
        self._clock = clock
        self._returner = Returner(leases, self._give)
        self._background = background

    def charge(self, windows: WindowSet) -> Decision | Flow:
        """Return the decision if leases cover all windows, else a flow that asks the store."""
        template, keys = windows
        rules = template.rules
        if len(keys) == 1:
            policy, cost = rules[0][:2]
            taken = self.leases.take(keys[0], policy, cost)
            if taken is None:
                return self._ask(windows, TakenUnits())
            decision = leased(windows, *taken)
        else:
            held = TakenUnits()
            for i in template.leased:
                taken = self.leases.take(keys[i], rules[i].policy, rules[i].cost)
                if taken is not None:
                    held[i] = lease_reply(*taken)
            if len(held) < len(keys):
                return self._ask(windows, held)
            decision = held.decision(windows, (), _ADMITTED, (), LEASE)
        return self._outcomes.report(decision, None) if self._listeners.receivers else decision

    def charge_slots(
        self,
        windows: WindowSet,
        groups: list[list[int]],
        held: TakenUnits | None = None,
        budget: float | None = None,
    ) -> Flow:
        """Charge windows in several slots. `groups` divides those that `held` does not cover.

        `budget`: the seconds left of the limiter's budget.
        """
        held = TakenUnits() if held is None else held
        rest = held.rest(windows)
        asked = windows.part(rest) if held else windows
        nodes = [self._store.node(asked.keys[group[0]]) for group in groups]
        if not self._breaker.permit([*dict.fromkeys(nodes)]):
            self._put_back(windows, held)
            return self._outcomes.without_store(windows, None)
        start, forgotten = self._outcomes.begin(), self._shield.forgotten
        check = self.multi_slot(asked, groups, nodes, budget)
        try:
            reply, charged = yield from check.ask(writes=True)
        except BaseException as error:
            self._put_back(windows, held)
            if not isinstance(error, StoreError):
                raise
            return self._outcomes.without_store(windows, start, error)
        if not reply.admitted:
            self._put_back(windows, held)
        decision = held.decision(windows, rest, reply, charged, self._store.source)
        return self._outcomes.answered(windows, decision, start, forgotten, "")

    def multi_slot(
        self,
        windows: WindowSet,
        groups: list[list[int]],
        nodes: list[str],
        budget: float | None = None,
    ) -> MultiSlotCheck:
        """Return a check of windows in several slots."""
        return MultiSlotCheck(
            windows,
            groups,
            nodes,
            health=self._health,
            freed=self._shield.forget,
            near=self._near,
            budget=self._budget if budget is None else budget,
            clock=self._clock,
        )

    def seen_from_here(self, windows: WindowSet) -> WindowSet:
        """Return the windows with the costs that leases do not cover, for a peek."""
        template, keys = windows
        held = {i: self.leases.units(keys[i], template.rules[i].policy) for i in template.leased}
        if not any(held.values()):
            return windows
        costs = [max(0, rule.cost - held.get(i, 0)) for i, rule in enumerate(template.rules)]
        return WindowSet(template.with_costs(costs), keys)

    def return_ended(self) -> None:
        """Return the units of leases that have ended."""
        self._give(self.leases.over())

    def close(self) -> None:
        """Return all units."""
        self._returner.end()

    def _ask(self, windows: WindowSet, held: TakenUnits) -> Flow:
        """Charge the windows that `held` does not cover.

        If these are in several slots, first lease units from each slot with leased windows: units
        in a lease can be put back without the store.
        """
        start, forgotten, began = self._outcomes.begin(), self._shield.forgotten, self._clock()
        left = None
        while True:
            rest = held.rest(windows)
            groups = self._groups(windows, rest)
            ahead = groups and _leased_slot(windows, rest, groups)
            if groups and not ahead:
                return (yield from self.charge_slots(windows, groups, held, left))
            positions = ahead or rest
            asked = windows if len(positions) == len(windows.keys) else windows.part(positions)
            node = self._store.node(asked.keys[0])
            if self._breaker.open and not self._breaker.permit([node]):
                self._put_back(windows, held)
                return self._outcomes.without_store(windows, None)
            try:
                reply = yield from self._charge(asked, left)
            except BaseException as error:  # noqa: BLE001 -- raised again unless a StoreError
                self._put_back(windows, held)
                return self._outcomes.unanswered(windows, error, start, asked.keys[0])
            if not reply.admitted:
                self._put_back(windows, held)
            if positions is rest:
                charged = (charges_of(asked, reply),) if held else None
                decision = held.decision(windows, rest, reply, charged, self._store.source)
                return self._outcomes.answered(windows, decision, start, forgotten, asked.keys[0])
            if not self._breaker.is_healthy:
                self._health.answered(node, charged=bool(reply.admitted))
            if self._budget is not None:
                left = max(_LEAST, began + self._budget - self._clock())
            if not reply.admitted:
                # The decision is about all windows, so all of them are read.
                groups = self._groups(windows, range(len(windows.keys)))
                assert groups is not None
                return (yield from self.charge_slots(windows, groups, None, left))
            for i, row in zip(positions, reply.windows(), strict=True):
                held[i] = Reply((1, reply.clock, *row))

    def _groups(self, windows: WindowSet, positions: Sequence[int]) -> list[list[int]] | None:
        """Return the groups of these windows that fit in one call; None if all of them do."""
        if not windows.template.joined:
            return None
        return self._store.groups(tuple([windows.keys[i] for i in positions]))

    def _charge(self, windows: WindowSet, within: float | None) -> Generator[Call, Any, Reply]:
        """Charge windows in one call, and keep the leases that it got."""
        asked = self.leases.ask(windows)
        try:
            call = Evaluate(windows.keys, windows.template.rules, True, within, asked.ahead)
            reply: Reply = yield call
        except BaseException:
            self.leases.failed(windows, asked)
            raise
        self.leases.answered(windows, asked, reply)
        self._watch()
        if self._near.listeners.receivers:
            self._near.charged(windows, reply, asked.ahead)
        return reply

    def _put_back(self, windows: WindowSet, held: TakenUnits) -> None:
        for charges, stamp in held.charges(windows):
            self.leases.give_later(charges, stamp)
            self._watch()

    def _watch(self) -> None:
        """Let the thread watch new leases, and report leases that have ended."""
        if self._background:
            self._returner.watch()
        if self._ended is not None:
            for ended in self.leases.finished():
                self._ended(*ended)

    def _give(self, returns: Sequence[Return]) -> None:
        """Return units to the store. During an outage they stay charged instead."""
        away: set[str] = set()
        for at in range(0, len(returns), _RETURNS):
            calls, nodes = [], []
            for charge, stamp in returns[at : at + _RETURNS]:
                node = self._store.node(charge.key)
                if node not in away and self._health.all_closed([node]):
                    calls.append(Refund((charge,), stamp))
                    nodes.append(node)
            if calls:
                answers = self._health.run_many(calls, nodes, charges=False)
                self._shield.forget([call.charges[0].key for call in calls])
                away.update(
                    node
                    for node, answer in zip(nodes, answers, strict=True)
                    if isinstance(answer, StoreError) and answer.outage
                )
        self._watch()


def _leased_slot(
    windows: WindowSet, rest: Sequence[int], groups: Sequence[Sequence[int]]
) -> list[int]:
    """Return the positions of the leased windows in the first slot that has any."""
    leased = windows.template.leased
    for group in groups:
        positions = [rest[i] for i in group if rest[i] in leased]
        if positions:
            return positions
    return []
