"""Claims in, a decision out: the whole logic of a check, apart from settings and HTTP.

Sync and async share it. Each operation is a flow that yields what it wants of the
store (or how long to wait); `Limiter` drives it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from . import decisions
from .answers import aged, allowed_unseen, charges_of, decision_of, unlimited
from .breaker import CLOSED, Breaker
from .claims import Claim, Plan
from .decisions import Charge, Decision
from .exceptions import StoreError
from .flows import adrive, drive
from .policies import Policy
from .shield import Shield
from .stores.base import Call, Evaluate, Refund, Reset, Store
from .stores.memory import MemoryStore


@dataclass(frozen=True, slots=True)
class Wait:
    """Asked by a flow: come back after so many seconds."""

    seconds: float


Flow: TypeAlias = "Generator[Call | Wait, Any, Decision]"


@dataclass(frozen=True, slots=True)
class Hooks:
    """Who is told. They must not raise: nothing of theirs may fail a request."""

    checked: Callable[[Decision, float | None], None] | None = None
    """Every decision, with the seconds that the store took if it was asked."""
    degraded: Callable[[StoreError], None] | None = None
    """The store went away."""
    recovered: Callable[[float], None] | None = None
    """The store is back, after so many seconds."""


class Limiter:
    """Exact limits over a store, with what happens when the store is away."""

    def __init__(
        self,
        store: Store,
        *,
        prefix: str = "throttle",
        fallback: str = "local",
        processes: int = 1,
        local: MemoryStore | None = None,
        shield: Shield | None = None,
        budget: float | None = None,
        hooks: Hooks | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`processes`: among how many the local fallback divides a limit."""
        self.store = store
        self.prefix = prefix
        self.local = MemoryStore() if local is None else local
        self.shield = shield
        self.breaker = Breaker()
        self._fallback = fallback
        self._processes = processes
        self._budget = budget
        self._hooks = Hooks() if hooks is None else hooks
        self._clock = clock

    def check(self, claims: Sequence[Claim]) -> Decision:
        """Charges all the claims if all admit, else none."""
        return drive(self._check(claims), self._answer)

    async def acheck(self, claims: Sequence[Claim]) -> Decision:
        return await adrive(self._check(claims), self._aanswer)

    def peek(self, claims: Sequence[Claim]) -> Decision:
        """What `check` would answer; charges nothing."""
        return drive(self._peek(claims), self._answer)

    async def apeek(self, claims: Sequence[Claim]) -> Decision:
        return await adrive(self._peek(claims), self._aanswer)

    def acquire(self, claims: Sequence[Claim], timeout: float | None = None) -> Decision:
        """Waits until admitted; refused if that would take longer than `timeout` seconds."""
        return drive(self._acquire(claims, timeout), self._answer)

    async def aacquire(self, claims: Sequence[Claim], timeout: float | None = None) -> Decision:
        return await adrive(self._acquire(claims, timeout), self._aanswer)

    def refund(self, decision: Decision) -> int:
        """Gives back what the decision was charged, once; the hits given back."""
        return drive(self._refund(decision), self._answer)

    async def arefund(self, decision: Decision) -> int:
        return await adrive(self._refund(decision), self._aanswer)

    def reset(self, keys: Sequence[str]) -> int:
        """Forgets windows; how many there were."""
        return drive(self._reset(keys), self._answer)

    async def areset(self, keys: Sequence[str]) -> int:
        return await adrive(self._reset(keys), self._aanswer)

    def keys(self, claim: Claim) -> tuple[str, ...]:
        """The keys of the windows that a claim meets."""
        return Plan.of([claim], self.prefix).keys

    def _answer(self, question: Call | Wait) -> Any:
        if isinstance(question, Wait):
            return time.sleep(question.seconds)
        return self.store.run(question)

    async def _aanswer(self, question: Call | Wait) -> Any:
        if isinstance(question, Wait):
            return await asyncio.sleep(question.seconds)
        return await self.store.arun(question)

    def _check(self, claims: Sequence[Claim]) -> Flow:
        plan = Plan.of(claims, self.prefix)
        question = plan.question if self.shield is not None else None
        found = self.shield.find(question) if self.shield is not None and question else None
        if found is not None:
            decision, took = aged(*found), None
        else:
            decision, took = yield from self._decide(plan, claims, writes=True)
            if (
                self.shield is not None
                and question
                and not decision.allowed
                and decision.source == self.store.source
            ):
                self.shield.remember(question, decision)
        if self._hooks.checked is not None:
            self._hooks.checked(decision, took)
        return decision

    def _peek(self, claims: Sequence[Claim]) -> Flow:
        decision, _ = yield from self._decide(
            Plan.of(claims, self.prefix), claims, writes=False
        )
        return decision

    def _acquire(self, claims: Sequence[Claim], timeout: float | None) -> Flow:
        start = self._clock()
        while True:
            decision = yield from self._check(claims)
            wait = decision.retry_after
            if decision.allowed or wait is None:
                return decision
            if timeout is not None and self._clock() - start + wait > timeout:
                return decision
            yield Wait(wait)

    def _refund(self, decision: Decision) -> Generator[Call | Wait, Any, int]:
        receipt = decision.receipt
        if receipt is None or not receipt.use():
            return 0
        taken = 0
        for charges, stamp in receipt.parts:
            self._forget(charge.key for charge in charges)
            call = Refund(charges, stamp)
            if receipt.local:
                taken += sum(self.local.run(call))
            elif self.breaker.state == CLOSED:
                try:
                    taken += sum((yield call))
                except StoreError as error:
                    # The hits stay until they expire: too many are counted, never too few.
                    if error.outage:
                        self._failed(error)
        return taken

    def _reset(self, keys: Sequence[str]) -> Generator[Call | Wait, Any, int]:
        every = tuple(dict.fromkeys(keys))
        self.local.run(Reset(every))
        found = 0
        for positions in self.store.groups(every) or [range(len(every))]:
            found += (yield Reset(tuple(every[i] for i in positions)))[0]
        self._forget(every)
        return found

    def _forget(self, keys: Any) -> None:
        if self.shield is not None:
            self.shield.forget(keys)

    def _decide(
        self, plan: Plan, claims: Sequence[Claim], *, writes: bool
    ) -> Generator[Call | Wait, Any, tuple[Decision, float | None]]:
        """The decision, and the seconds that the store took if it was asked."""
        if not plan.keys:
            return unlimited(claims), None
        if not self.breaker.permits():
            return self._fall_back(plan, writes), None
        start = self._clock()
        reported = False
        try:
            decision = yield from self._ask(plan, writes)
            took = self._clock() - start
            reported = True
            # An answer that came too late is used, but it was no good answer.
            if self._budget is not None and took > self._budget:
                self._failed(StoreError(f"the store took {took:.3f} s"))
            else:
                self._succeeded()
            return decision, took
        except StoreError as error:
            reported = True
            if error.outage:
                self._failed(error)
            else:
                self._succeeded()
            return self._fall_back(plan, writes), self._clock() - start
        finally:
            if not reported:
                self.breaker.abandoned()

    def _failed(self, error: StoreError) -> None:
        if self.breaker.failed() and self._hooks.degraded is not None:
            self._hooks.degraded(error)

    def _succeeded(self) -> None:
        open_for = self.breaker.succeeded()
        if open_for is not None:
            self.local.clear()
            if self._hooks.recovered is not None:
                self._hooks.recovered(open_for)

    def _ask(self, plan: Plan, writes: bool) -> Flow:
        groups = self.store.groups(plan.keys) if len(plan.keys) > 1 else None
        if groups is None or len(groups) == 1:
            reply = yield Evaluate(plan.keys, plan.lines, writes)
            parts = (charges_of(plan, reply),) if writes else ()
            return decision_of(plan, plan.lines, reply, self.store.source, parts)
        return (yield from self._ask_groups(plan, groups, writes))

    def _ask_groups(self, plan: Plan, groups: list[list[int]], writes: bool) -> Flow:
        """Keys that no one call can hold: peek at all, then charge all.

        Where a race refuses after all, what was charged is given back.
        """
        parts = [plan.part(positions) for positions in groups]
        replies: list[list[int]] = []
        for part in parts:
            replies.append((yield Evaluate(part.keys, part.lines, False)))
        charged: list[tuple[tuple[Charge, ...], int]] = []
        if writes:
            admitted = all(reply[0] for reply in replies)
            for i, part in enumerate(parts):
                if not admitted and not _stores_refusal(part, replies[i]):
                    continue
                try:
                    reply = yield Evaluate(part.keys, part.lines, True)
                except StoreError:
                    yield from self._give_back(charged)
                    raise
                if admitted and not reply[0]:
                    replies[i] = reply
                    yield from self._give_back(charged)
                    charged = []
                    break
                replies[i] = reply
                charged.append(charges_of(part, reply))
        merged = [int(all(reply[0] for reply in replies)), max(reply[1] for reply in replies)]
        rows = {
            position: reply[2 + 4 * i : 6 + 4 * i]
            for positions, reply in zip(groups, replies, strict=True)
            for i, position in enumerate(positions)
        }
        for position in range(len(plan.keys)):
            merged += rows[position]
        return decision_of(plan, plan.lines, merged, self.store.source, tuple(charged))

    def _give_back(
        self, charged: list[tuple[tuple[Charge, ...], int]]
    ) -> Generator[Call | Wait, Any, None]:
        for charges, stamp in charged:
            try:
                yield Refund(charges, stamp)
            except StoreError:
                continue

    def _fall_back(self, plan: Plan, writes: bool) -> Decision:
        """The decision of this process alone."""
        ways = [profile.fallback or self._fallback for profile in plan.profiles]
        denied = [
            i for i, way in enumerate(ways) if way == "deny" and not plan.profiles[i].observed
        ]
        if denied:
            return self._denied(plan, denied[0])
        local = [i for i, way in enumerate(ways) if way == "local"]
        if not local:
            return allowed_unseen(plan)
        part = plan.part(local)
        lines = tuple(
            line._replace(policy=_divided(line.policy, self._processes)) for line in part.lines
        )
        reply = self.local.run(Evaluate(part.keys, lines, writes))
        parts = (charges_of(part, reply),) if writes else ()
        return decision_of(part, lines, reply, decisions.LOCAL, parts)

    def _denied(self, plan: Plan, position: int) -> Decision:
        policy = plan.lines[position].policy
        return Decision(
            allowed=False,
            profile=plan.profiles[position].name,
            policy=policy,
            limit=policy.limit,
            remaining=0,
            retry_after=self.breaker.probe_in,
            reset_after=self.breaker.probe_in,
            reason=decisions.DENY,
            source=decisions.DENY,
        )


def _divided(policy: Policy, processes: int) -> Policy:
    """The share of one process; a limit of 0 stays 0."""
    if processes == 1 or policy.limit == 0:
        return policy
    return replace(policy, limit=max(1, policy.limit // processes))


def _stores_refusal(part: Plan, reply: list[int]) -> bool:
    return any(
        line.count_rejected and not reply[2 + 4 * i] for i, line in enumerate(part.lines)
    )
