"""Checks that take more than a plain call: units taken ahead, and windows in several slots.

A request takes the units that this process holds first, without the store, and asks the store for
the rest. If that refuses, what it took here goes back, so that all is charged or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias

from ..decisions import LEASE, Charge, Decision
from ..exceptions import StoreError
from ..stores.protocol import Call, Evaluate, Refund, Reply, Store
from .health import Asked, Callbacks, Health
from .held import Held
from .leases import Leases, Return
from .multi_slot import MultiSlotCheck
from .outcomes import Outcomes
from .results import charges_of, lease_reply, leased
from .returning import Returner
from .shield import Shield
from .windows import WindowSet

Flow: TypeAlias = "Generator[Asked, Any, Decision]"
_ADMITTED = Reply((1, 0))
# Units of leases that go back in one round trip.
_RETURNS = 500
# Seconds that a call gets when the time is up: enough for it to fail.
_LEAST = 0.001


class Lender:
    """Charges windows with the units that this process holds, and from the store."""

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
        """`background`: a thread gives units back when their leases end."""
        self._store = store
        self._leases = leases
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
        """Return the decision if this process holds all units, else a flow that asks the store."""
        template, keys = windows
        rules = template.rules
        if len(keys) == 1:
            policy, cost = rules[0][:2]
            taken = self._leases.take(keys[0], policy, cost)
            if taken is None:
                return self._ask(windows, Held())
            decision = leased(windows, *taken)
        else:
            held = Held()
            for i in template.leased:
                taken = self._leases.take(keys[i], rules[i].policy, rules[i].cost)
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
        held: Held | None = None,
        budget: float | None = None,
    ) -> Flow:
        """Charge windows that no one call can hold; `groups` are those that are not held here.

        `budget`: the seconds that are left of the limiter's.
        """
        held = Held() if held is None else held
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
        return self._outcomes.answered(windows, decision, start, forgotten, asked.keys[0])

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
        """Return the windows at the costs that the store has to admit, for a look at them."""
        template, keys = windows
        held = {i: self._leases.units(keys[i], template.rules[i].policy) for i in template.leased}
        if not any(held.values()):
            return windows
        costs = [max(0, rule.cost - held.get(i, 0)) for i, rule in enumerate(template.rules)]
        return WindowSet(template.with_costs(costs), keys)

    def give_back(self, charges: tuple[Charge, ...], stamp: int) -> tuple[Charge, ...]:
        """Take back hits that came from leases; return those that only the store can take."""
        return self._leases.give_back(charges, stamp)

    def forget(self, keys: Sequence[str]) -> None:
        """Hand out no more units of windows that are reset."""
        self._leases.forget(keys)

    def return_ended(self) -> None:
        """Give back the units of leases that have ended."""
        self._give(self._leases.over())

    def close(self) -> None:
        """Give back all units."""
        self._returner.end()

    def _ask(self, windows: WindowSet, held: Held) -> Flow:
        """Charge what is not held here.

        If that lies in several slots, each gives the units of its leased windows to this process
        first, which can put them back without the store.
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
                self._health.answered(node)
            if self._budget is not None:
                left = max(_LEAST, began + self._budget - self._clock())
            if not reply.admitted:
                # The answer is about all windows, so all are looked at.
                groups = self._groups(windows, range(len(windows.keys)))
                assert groups is not None
                return (yield from self.charge_slots(windows, groups, None, left))
            for i, row in zip(positions, reply.windows(), strict=True):
                held[i] = Reply((1, reply.clock, *row))

    def _groups(self, windows: WindowSet, positions: Sequence[int]) -> list[list[int]] | None:
        """Return which of these windows one call can hold together; None for all of them."""
        if not windows.template.joined:
            return None
        return self._store.groups(tuple([windows.keys[i] for i in positions]))

    def _charge(self, windows: WindowSet, within: float | None) -> Generator[Call, Any, Reply]:
        """Charge windows in one call, and keep what it takes ahead."""
        asked = self._leases.ask(windows)
        try:
            call = Evaluate(windows.keys, windows.template.rules, True, within, asked.ahead)
            reply: Reply = yield call
        except BaseException:
            self._leases.failed(windows, asked)
            raise
        self._leases.answered(windows, asked, reply)
        self._watch()
        if self._near.listeners.receivers:
            self._near.charged(windows, reply, asked.ahead)
        return reply

    def _put_back(self, windows: WindowSet, held: Held) -> None:
        for charges, stamp in held.charges(windows):
            self._leases.give_later(charges, stamp)
            self._watch()

    def _watch(self) -> None:
        """Let the thread know of new leases, and others of those that have ended."""
        if self._background:
            self._returner.watch()
        if self._ended is not None:
            for ended in self._leases.finished():
                self._ended(*ended)

    def _give(self, returns: Sequence[Return]) -> None:
        """Give units back to the store. While it is away, they count until they leave."""
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
    """Return the leased windows of the first slot that has any."""
    leased = windows.template.leased
    for group in groups:
        positions = [rest[i] for i in group if rest[i] in leased]
        if positions:
            return positions
    return []
