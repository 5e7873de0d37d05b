"""Claims in, a decision out: the whole logic of a check, apart from settings and HTTP.

Sync and async share it. Each operation is a flow that yields what it wants of the
store (or how long to wait); `Limiter` drives it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .answers import aged, unlimited
from .asking import Asker, Hooks
from .claims import Claim, Plan
from .decisions import Decision
from .exceptions import StoreError
from .fallback import Fallback
from .flows import adrive, drive
from .shield import Shield
from .stores.base import Call, Refund, Reset, Store
from .stores.memory import MemoryStore

# The shortest pause of `acquire`, in seconds.
_LEAST_WAIT = 0.005


@dataclass(frozen=True, slots=True)
class Wait:
    """Asked by a flow: come back after so many seconds."""

    seconds: float


Flow: TypeAlias = "Generator[Call | Wait, Any, Decision]"


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
        self._hooks = Hooks() if hooks is None else hooks
        self._clock = clock
        self._fallback = Fallback(fallback, processes=processes, local=self.local)
        self._asker = Asker(
            store, hooks=self._hooks, recovered=self.local.clear, budget=budget, clock=clock
        )
        self.breaker = self._asker.breaker

    def check(self, claims: Sequence[Claim]) -> Decision:
        """Charges all the claims if all admit, else none."""
        return self._recall(claims) or drive(self._check(claims), self._answer)

    async def acheck(self, claims: Sequence[Claim]) -> Decision:
        recalled = self._recall(claims)
        if recalled is not None:
            return recalled
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

    def _recall(self, claims: Sequence[Claim]) -> Decision | None:
        """The shield's refusal of the very same claims, if it remembers one."""
        found = self.shield.find(tuple(claims)) if self.shield else None
        if found is None:
            return None
        decision = aged(*found)
        self._tell(decision, None)
        return decision

    def _check(self, claims: Sequence[Claim]) -> Flow:
        plan = Plan.of(claims, self.prefix)
        decision, took = yield from self._decide(plan, claims, writes=True)
        if (
            not decision.allowed
            and self.shield is not None
            and decision.source == self.store.source
            and plan.exact
        ):
            self.shield.remember(tuple(claims), plan.keys, decision)
        self._tell(decision, took)
        return decision

    def _tell(self, decision: Decision, took: float | None) -> None:
        if self._hooks.checked is not None:
            self._hooks.checked(decision, took)

    def _peek(self, claims: Sequence[Claim]) -> Flow:
        decision, _ = yield from self._decide(Plan.of(claims, self.prefix), claims, writes=False)
        return decision

    def _acquire(self, claims: Sequence[Claim], timeout: float | None) -> Flow:
        start = self._clock()
        while True:
            decision = self._recall(claims) or (yield from self._check(claims))
            wait = decision.retry_after
            if decision.allowed or wait is None:
                return decision
            if timeout is not None and self._clock() - start + wait > timeout:
                return decision
            yield Wait(max(wait, _LEAST_WAIT))

    def _refund(self, decision: Decision) -> Generator[Call | Wait, Any, int]:
        receipt = decision.receipt
        if receipt is None or not receipt.use():
            return 0
        taken = 0
        for charges, stamp in receipt.parts:
            self._forget(charge.key for charge in charges)
            if receipt.local:
                taken += sum(self.local.run(Refund(charges, stamp)))
            else:
                taken += yield from self._asker.refund(charges, stamp)
        return taken

    def _reset(self, keys: Sequence[str]) -> Generator[Call | Wait, Any, int]:
        every = tuple(dict.fromkeys(keys))
        if not every:
            return 0
        self.local.run(Reset(every))
        found = 0
        try:
            for positions in self.store.groups(every) or [list(range(len(every)))]:
                found += (yield Reset(tuple(every[i] for i in positions)))[0]
        finally:
            self._forget(every)
        return found

    def _forget(self, keys: Iterable[str]) -> None:
        if self.shield is not None:
            self.shield.forget(keys)

    def _decide(
        self, plan: Plan, claims: Sequence[Claim], *, writes: bool
    ) -> Generator[Call, Any, tuple[Decision, float | None]]:
        """The decision, and the seconds that the store took if it was asked."""
        if not plan.keys:
            return unlimited(claims), None
        took = None
        lanes = self._asker.lanes_for(plan, writes)
        if lanes is not None:
            start = self._clock()
            try:
                decision = yield from self._asker.ask(plan, lanes, writes=writes)
            except StoreError as error:
                if not error.outage and self._hooks.failed is not None:
                    self._hooks.failed(error)
            else:
                return decision, self._clock() - start
            took = self._clock() - start
        return self._fallback.decide(plan, writes=writes, probe_in=self._probe_in), took

    def _probe_in(self) -> float:
        return self.breaker.probe_in
