"""Asks the store for a check, in one call or in several, and tells the breaker how that went."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..decisions import Charge, Decision
from ..exceptions import StoreError
from ..stores.protocol import Call, Evaluate, Refund, Store, Together
from .breaker import CLOSED, Breakers
from .multi_slot import Parts
from .results import Charged, charges_of, decision_of
from .windows import Plan

# The share of the budget that is kept for giving back, where several calls make a check.
_GIVE_BACK = 0.25
# Seconds that giving back gets where the time is up.
_LEAST = 0.005

Asked: TypeAlias = "Call | Together"
"""What a flow wants of the store."""
Lanes: TypeAlias = "tuple[list[list[int]] | None, list[str]]"
"""Positions of keys that one call can hold, None for all of them; the lane of each call."""


class Audience(Protocol):
    """Those who want to hear of decisions, such as a signal's receivers."""

    receivers: list[Any]


class _Everybody:
    def __init__(self) -> None:
        self.receivers: list[Any] = [None]


class Hooks(NamedTuple):
    """Who is told. They must not raise: nothing of theirs may fail a request."""

    checked: Callable[[Decision, float | None], None] | None = None
    """Every decision, with the seconds that the store took if it was asked."""
    audience: Audience = _Everybody()
    """While it has no receivers, nobody is told of decisions, nor looks at the clock for that."""
    degraded: Callable[[StoreError], None] | None = None
    """The store went away."""
    recovered: Callable[[float], None] | None = None
    """The store is back, after so many seconds."""
    failed: Callable[[StoreError], None] | None = None
    """The store answers, but not this check: the fallback has decided it."""


class Asker:
    """A store behind its breakers. Its flows yield calls and raise StoreError."""

    def __init__(
        self,
        store: Store,
        *,
        hooks: Hooks,
        recovered: Callable[[], None],
        freed: Callable[[Iterable[str]], None],
        budget: float | None,
        clock: Callable[[], float],
    ) -> None:
        """`freed` is called with the keys of windows from which hits were taken back."""
        self.breaker = Breakers()
        self._store = store
        self._hooks = hooks
        self._recovered = recovered
        self._freed = freed
        self._budget = budget
        self._clock = clock

    def lanes_for(self, plan: Plan, writes: bool) -> Lanes | None:
        """Which calls the plan takes; None where the store must not be asked."""
        groups = self._store.groups(plan.keys) if len(plan.keys) > 1 else None
        if groups is None:
            lanes = [self._store.lane(plan.keys[0])]
        else:
            lanes = [self._store.lane(plan.keys[group[0]]) for group in groups]
        asked = [*dict.fromkeys(lanes)]
        # What only looks is no probe: a server that cannot write may answer it.
        if not (self.breaker.permit(asked) if writes else self._all_closed(asked)):
            return None
        return groups, lanes

    def ask(self, plan: Plan, lanes: Lanes, *, writes: bool) -> Generator[Asked, Any, Decision]:
        """The store's decision."""
        groups, names = lanes
        if groups is not None:
            return (yield from self._ask_parts(Parts(plan, groups, names), writes))
        lane = names[0]
        call = Evaluate(plan.keys, plan.form.lines, writes)
        reply = yield from self._call(lane, call, proves=writes)
        charged: tuple[Charged, ...] | None = None if writes else ()
        return decision_of(plan, plan.form.lines, reply, self._store.source, charged)

    def unanswered(self, plan: Plan, error: BaseException) -> None:
        """Reports that a plain call, which charges, has no answer."""
        self._report(self._store.lane(plan.keys[0]), error, proves=True)

    def refund(self, charges: tuple[Charge, ...], stamp: int) -> Generator[Asked, Any, int]:
        """The hits given back; none of them while the store is away."""
        lane = self._store.lane(charges[0].key)
        if self._all_closed([lane]):
            # Otherwise they stay until they expire: too many are counted, never too few.
            try:
                return sum((yield from self._call(lane, Refund(charges, stamp), proves=False)))
            except StoreError:
                pass
            finally:
                self._freed([charge.key for charge in charges])
        return 0

    def _all_closed(self, lanes: Sequence[str]) -> bool:
        return all(self.breaker.of(lane).state == CLOSED for lane in lanes)

    def _call(self, lane: str, call: Call, *, proves: bool) -> Generator[Asked, Any, list[int]]:
        """The store's answer, of which the lane's breaker is told."""
        try:
            reply: list[int] = yield call
        except BaseException as error:
            self._report(lane, error, proves=proves)
            raise
        if proves:
            self._succeeded(lane)
        return reply

    def _call_all(
        self, lanes: Sequence[str], together: Together, *, proves: bool
    ) -> Generator[Asked, Any, None]:
        """Ask several calls, each on its lane, and report to the breakers."""
        try:
            yield together
        except BaseException as error:
            for lane in set(lanes):
                self._report(lane, error, proves=proves)
            raise
        # Of a lane, one tells for all: an outage if there is any.
        told: dict[str, list[int] | StoreError] = {}
        for lane, answer in zip(lanes, together.answers, strict=True):
            if lane not in told or (isinstance(answer, StoreError) and answer.outage):
                told[lane] = answer
        for lane, answer in told.items():
            if isinstance(answer, StoreError):
                self._report(lane, answer, proves=proves)
            elif proves:
                self._succeeded(lane)

    def _report(self, lane: str, error: BaseException, *, proves: bool) -> None:
        """Tells the lane's breaker of a call that has no answer."""
        if not isinstance(error, StoreError):
            self.breaker.abandoned([lane])
        elif error.outage:
            self._failed(lane, error)
        elif proves:
            self._succeeded(lane)

    def _failed(self, lane: str, error: StoreError) -> None:
        if self.breaker.failed(lane, error.incident) and self._hooks.degraded is not None:
            self._hooks.degraded(error)

    def _succeeded(self, lane: str) -> None:
        seconds = self.breaker.succeeded(lane, self._store.lanes)
        if seconds is not None:
            self._recovered()
            if self._hooks.recovered is not None:
                self._hooks.recovered(seconds)

    def _ask_parts(self, parts: Parts, writes: bool) -> Generator[Asked, Any, Decision]:
        """Keys that no one call can hold: peek at all, then charge all.

        The one with the least left is charged first, so that who loses a race loses it there and
        has taken nothing from the others. Where a race refuses after all, what was charged is
        given back.
        """
        start = self._clock()
        charged: dict[int, Charged] = {}

        def ask(
            plans: dict[int, Plan], charge: bool
        ) -> Generator[Asked, Any, dict[int, list[int]]]:
            within = self._left(start, 1 - _GIVE_BACK)
            if charge and within is not None and within <= 0:
                raise StoreError("several calls took too long together", outage=False)
            lanes = [parts.lanes[number] for number in plans]
            calls = [
                Evaluate(plan.keys, plan.form.lines, charge, within) for plan in plans.values()
            ]
            together = Together(tuple(calls), [])
            try:
                yield from self._call_all(lanes, together, proves=writes)
            finally:
                # A check that was cancelled has charged as well.
                for number, answer in zip(plans, together.answers, strict=False):
                    if charge and not isinstance(answer, StoreError) and answer[0]:
                        charged[number] = charges_of(plans[number], answer)
            replies = {}
            for number, answer in zip(plans, together.answers, strict=True):
                if isinstance(answer, StoreError):
                    raise answer
                replies[number] = answer
            return replies

        try:
            parts.answered((yield from ask(parts.plans, False)))
            if writes and parts.admitted:
                for some in parts.in_turns():
                    parts.answered((yield from ask(some, True)))
                    if not parts.admitted:
                        break
            elif writes:
                refusing = parts.refusals_to_store()
                if refusing:
                    plans = {n: parts.plans[n].part(where) for n, where in refusing.items()}
                    parts.stored(refusing, (yield from ask(plans, True)))
        except GeneratorExit:
            # Nobody drives the flow any more, so nobody can give back.
            raise
        except BaseException:
            yield from self._give_back(parts, charged, start)
            raise
        if not parts.admitted:
            yield from self._give_back(parts, charged, start)
        return decision_of(
            *(parts.plan, parts.plan.form.lines, parts.reply(), self._store.source),
            tuple(charged.values()),
        )

    def _give_back(
        self, parts: Parts, charged: dict[int, Charged], start: float
    ) -> Generator[Asked, Any, None]:
        left = self._left(start, 1)
        within = None if left is None else max(left, _LEAST)
        lanes, calls = [], []
        for number, (charges, stamp) in charged.items():
            if charges:
                lanes.append(parts.lanes[number])
                calls.append(Refund(charges, stamp, within))
        charged.clear()
        if calls:
            try:
                yield from self._call_all(lanes, Together(tuple(calls), []), proves=False)
            finally:
                self._freed([charge.key for call in calls for charge in call.charges])

    def _left(self, start: float, share: float) -> float | None:
        """Seconds that are left of a share of the budget."""
        if self._budget is None:
            return None
        return start + share * self._budget - self._clock()
