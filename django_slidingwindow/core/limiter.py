"""Claims in, a decision out: the whole logic of a check, apart from settings and HTTP.

Sync and async share it. Each operation is a flow that yields what it wants of the
store (or how long to wait); `Limiter` drives it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from ..decisions import Decision
from ..exceptions import StoreError
from ..stores.flows import adrive, drive
from ..stores.memory import MemoryStore
from ..stores.protocol import Call, DividedStore, Evaluate, Refund, Reset, Store, Together
from .asking import Asker, Hooks, Lanes
from .claims import Claim
from .fallback import Fallback
from .results import admission, aged, decision_of, unlimited
from .shield import Shield
from .waiting import Ask, Lines, Pause, Step, Turn, atake, take
from .windows import Form, Plan, Planner

Question: TypeAlias = "Call | Together | Step"
Flow: TypeAlias = "Generator[Question, Any, Decision]"
Begun: TypeAlias = "Decision | Flow | None"


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
        self.shield = Shield(0) if shield is None else shield
        # Most checks meet none of them, and so need not ask the shield.
        self._refusals: Mapping[Any, object] = self.shield.refusals
        self._hooks = Hooks() if hooks is None else hooks
        self._audience = self._hooks.audience
        self._clock = clock
        self._planner = Planner(prefix)
        self._lines = Lines(clock)
        self._fallback = Fallback(fallback, processes=processes, local=self.local)
        self._asker = Asker(
            store,
            hooks=self._hooks,
            recovered=self.local.clear,
            freed=self.shield.forget,
            budget=budget,
            clock=clock,
        )
        self.breaker = self._asker.breaker

    def check(self, claims: Sequence[Claim]) -> Decision:
        """Charges all the claims if all admit, else none."""
        form, keys = self._planner.plan(claims)
        return self.charge(form, keys) if keys else self._told(unlimited(claims), None)

    async def acheck(self, claims: Sequence[Claim]) -> Decision:
        form, keys = self._planner.plan(claims)
        return await self.acharge(form, keys) if keys else self._told(unlimited(claims), None)

    def form(self, claim: Claim) -> Form:
        """What is known of a claim's windows, whoever makes it."""
        return self._planner.form(claim)

    def join(self, forms: tuple[Form, ...]) -> Form | None:
        """What `charge` needs of claims; None where `check` has to look at them first."""
        return self._planner.join(forms)

    def charge(self, form: Form, keys: tuple[str, ...]) -> Decision:
        """What `check` decides of claims whose windows are known."""
        if self._refusals or form.joined or not self.breaker.quiet:
            begun = self._begin(Plan(form, keys))
            if begun is not None:
                return begun if isinstance(begun, Decision) else drive(begun, self._answer)
        start = self._clock() if self._audience.receivers else None
        store, forgotten = self.store, self.shield.forgotten
        try:
            reply = store.hit(keys, form.lines)
        except BaseException as error:  # noqa: BLE001 -- it is raised again, if it is no StoreError
            return self._unanswered(Plan(form, keys), error, start)
        if reply[0] and start is None and (form.after or form.limits):
            if self._refusals:
                self.shield.charged(keys)
            return admission(form, form.lines, keys, reply, store.source)
        return self._answered(Plan(form, keys), reply, start, forgotten)

    async def acharge(self, form: Form, keys: tuple[str, ...]) -> Decision:
        plan = Plan(form, keys)
        begun = self._begin(plan)
        if begun is not None:
            return begun if isinstance(begun, Decision) else await adrive(begun, self._aanswer)
        start, forgotten = self._started(), self.shield.forgotten
        try:
            reply = await self.store.arun(Evaluate(keys, form.lines, writes=True))
        except BaseException as error:  # noqa: BLE001 -- it is raised again, if it is no StoreError
            return self._unanswered(plan, error, start)
        return self._answered(plan, reply, start, forgotten)

    def peek(self, claims: Sequence[Claim]) -> Decision:
        """What `check` would answer; charges nothing."""
        return drive(self._peek(claims), self._answer)

    async def apeek(self, claims: Sequence[Claim]) -> Decision:
        return await adrive(self._peek(claims), self._aanswer)

    def acquire(self, claims: Sequence[Claim], timeout: float | None = None) -> Decision:
        """Wait until admitted; refused if that would take longer than `timeout` seconds."""
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

    def close(self) -> None:
        """Closes idle connections; whoever asks again makes new ones."""
        self.store.close()

    def keys(self, claim: Claim) -> tuple[str, ...]:
        """The keys of the windows that a claim meets."""
        return self._planner.plan([claim]).keys

    def _answer(self, question: Question) -> Any:
        if isinstance(question, Ask):
            return self.check(question.claims)
        if isinstance(question, (Pause, Turn)):
            return take(question)
        if isinstance(question, Together):
            question.answers.extend(cast(DividedStore, self.store).run_together(question.calls))
            return None
        return self.store.run(question)

    async def _aanswer(self, question: Question) -> Any:
        if isinstance(question, Ask):
            return await self.acheck(question.claims)
        if isinstance(question, (Pause, Turn)):
            return await atake(question)
        if isinstance(question, Together):
            return await self._aanswer_together(question)
        return await self.store.arun(question)

    async def _aanswer_together(self, together: Together) -> None:
        """Wait for the answers, also where the check is cancelled: the calls are on their way."""
        asking = asyncio.ensure_future(cast(DividedStore, self.store).arun_together(together.calls))
        try:
            together.answers.extend(await asyncio.shield(asking))
        except asyncio.CancelledError:
            together.answers.extend(await asking)
            raise

    def _begin(self, plan: Plan) -> Begun:
        """What this process knows by itself; else the flow to drive.

        None for the usual case, where one call of the store asks all.
        """
        if self._refusals:
            found = self.shield.find(plan)
            if found is not None:
                refusal = aged(*found)
                return self._told(refusal, None) if self._audience.receivers else refusal
        alone = len(plan.keys) == 1
        if self.breaker.quiet and (alone or self.store.groups(plan.keys) is None):
            return None
        lanes = None
        if not (alone and self.breaker.rests(self.store.lane(plan.keys[0]))):
            lanes = self._asker.lanes_for(plan, True)
        if lanes is not None:
            return self._check(plan, lanes)
        decision = self._fallback.decide(plan, True, self._probe_in)
        return self._told(decision, None) if self._audience.receivers else decision

    def _check(self, plan: Plan, lanes: Lanes) -> Flow:
        start, forgotten = self._started(), self.shield.forgotten
        try:
            decision = yield from self._asker.ask(plan, lanes, writes=True)
        except StoreError as error:
            return self._without_store(plan, error, start)
        return self._decided(plan, decision, start, forgotten)

    def _answered(
        self, plan: Plan, reply: Sequence[int], start: float | None, forgotten: int
    ) -> Decision:
        decision = decision_of(plan, plan.form.lines, reply, self.store.source)
        return self._decided(plan, decision, start, forgotten)

    def _decided(
        self, plan: Plan, decision: Decision, start: float | None, forgotten: int
    ) -> Decision:
        """Keep the shield up to date with what the store has decided."""
        if decision.allowed:
            if self._refusals:
                self.shield.charged(plan.keys)
        elif plan.form.exact:
            self.shield.remember(plan, decision, forgotten)
        return self._told(decision, start)

    def _unanswered(self, plan: Plan, error: BaseException, start: float | None) -> Decision:
        self._asker.unanswered(plan, error)
        if not isinstance(error, StoreError):
            raise error
        return self._without_store(plan, error, start)

    def _without_store(self, plan: Plan, error: StoreError, start: float | None) -> Decision:
        if not error.outage and self._hooks.failed is not None:
            self._hooks.failed(error)
        return self._told(self._fallback.decide(plan, True, self._probe_in), start)

    def _told(self, decision: Decision, start: float | None) -> Decision:
        """The decision, of which whoever listens was told."""
        if self._audience.receivers and self._hooks.checked is not None:
            self._hooks.checked(decision, None if start is None else self._clock() - start)
        return decision

    def _started(self) -> float | None:
        """The time, for whoever wants to know how long the store takes."""
        return self._clock() if self._audience.receivers else None

    def _peek(self, claims: Sequence[Claim]) -> Flow:
        plan = self._planner.plan(claims)
        if not plan.keys:
            return unlimited(claims)
        lanes = self._asker.lanes_for(plan, False)
        if lanes is not None:
            try:
                return (yield from self._asker.ask(plan, lanes, writes=False))
            except StoreError as error:
                if not error.outage and self._hooks.failed is not None:
                    self._hooks.failed(error)
        return self._fallback.decide(plan, False, self._probe_in)

    def _acquire(self, claims: Sequence[Claim], timeout: float | None) -> Flow:
        return self._lines.acquire(self._planner.plan(claims), claims, timeout)

    def _refund(self, decision: Decision) -> Generator[Question, Any, int]:
        receipt = decision.receipt
        if receipt is None or not receipt.use():
            return 0
        taken = 0
        for charges, stamp in receipt.parts:
            if receipt.local:
                taken += sum(self.local.run(Refund(charges, stamp)))
            else:
                taken += yield from self._asker.refund(charges, stamp)
        return taken

    def _reset(self, keys: Sequence[str]) -> Generator[Question, Any, int]:
        every = tuple(dict.fromkeys(keys))
        if not every:
            return 0
        self.local.run(Reset(every))
        found = 0
        try:
            for positions in self.store.groups(every) or [list(range(len(every)))]:
                found += (yield Reset(tuple(every[i] for i in positions)))[0]
        finally:
            self.shield.forget(every)
        return found

    def _probe_in(self) -> float:
        return self.breaker.probe_in
