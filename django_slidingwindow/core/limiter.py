"""A whole check: takes windows and returns a decision, without settings or HTTP.

A check has three steps: what this process can decide by itself, the call to the store, and what
follows from the reply. Rare operations are flows, which sync and async code share: generators that
yield calls for the store, or times to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from ..decisions import Decision
from ..exceptions import StoreError
from ..stores.flows import adrive, drive
from ..stores.memory import MemoryStore
from ..stores.protocol import Batch, Call, DividedStore, Evaluate, Store
from .callbacks import Callbacks
from .cancellation import charge_whole
from .deferred import Deferred
from .fallback import Fallback
from .health import Health
from .leases import Leases, steady_clock
from .lender import Lender
from .outcomes import Outcomes
from .penalizer import Penalizer
from .penalty_decisions import decide
from .release import Release
from .results import decision_of, replay, unlimited
from .shield import Shield
from .waiting_lines import Ask, Pause, Step, Turn, WaitingLines, atake, take
from .windows import ProfileCheck, WindowCache, WindowSet

LEAST_SHARE = 8
"""A lease takes at most 1/8 of the hits left in a window; with more than four processes, at most
1 / (2 x processes)."""

Question: TypeAlias = "Call | Batch | Step"
Flow: TypeAlias = "Generator[Question, Any, Decision]"


class Limiter:
    """Exact limits in a store, with a fallback for outages of the store."""

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
        callbacks: Callbacks | None = None,
        deferred_seconds: float = 0.05,
        clock: Callable[[], float] = steady_clock,
        background: bool = True,
    ) -> None:
        """`processes`: how many processes share a limit when the local fallback decides.

        `background`: a thread returns unused units of leases; without it, call `return_leases`.
        `deferred_seconds`: how long charges of deferred profiles are collected.
        """
        self.store = store
        self._source = store.source
        self.prefix = prefix
        self.local = MemoryStore() if local is None else local
        self.shield = Shield(0) if shield is None else shield
        # Usually empty, and then a check does not ask the shield.
        self._refusals: Mapping[Any, object] = self.shield.refusals
        callbacks = Callbacks() if callbacks is None else callbacks
        self._listeners = callbacks.listeners
        self._near = callbacks.near
        self._near_listeners = callbacks.near.listeners
        self._clock = clock
        self._windows = WindowCache(prefix)
        self.template = self._windows.template
        self.join = self._windows.join
        self._lines = WaitingLines(clock)
        self._fallback = Fallback(fallback, processes=processes, local=self.local)
        self._health = Health(store, callbacks=callbacks, recovered=self.local.clear, budget=budget)
        self.breaker = self._health.breakers
        self._outcomes = Outcomes(
            store,
            health=self._health,
            shield=self.shield,
            fallback=self._fallback,
            callbacks=callbacks,
            clock=clock,
        )
        self._lender = Lender(
            store,
            Leases(share=max(LEAST_SHARE, 2 * processes), clock=clock),
            outcomes=self._outcomes,
            health=self._health,
            shield=self.shield,
            callbacks=callbacks,
            budget=budget,
            clock=clock,
            background=background,
        )
        self._charge_leased = self._lender.charge if store.remote else None
        self.deferred = Deferred(
            store,
            self._health,
            without_store=self._outcomes.without_store,
            report=self._outcomes.report,
            sent=callbacks.sent,
            near=callbacks.near,
            interval=deferred_seconds,
            clock=clock,
        )
        self._penalizer = Penalizer(
            store, self._outcomes, self._health, self.shield, callbacks.near
        )
        self._release = Release(
            *(store, self.local, self.shield, self._health, self._lender, self.deferred),
            freed=callbacks.freed,
        )

    def windows(self, checks: Sequence[ProfileCheck]) -> WindowSet:
        """Return the windows of several profiles, each with its identifier."""
        return self._windows.windows(checks)

    def charge(self, windows: WindowSet) -> Decision:
        """Charge all windows if all admit, else none."""
        template, keys = windows
        if self._refusals or self.breaker.open or not template.plain:
            begun = self._before(windows)
            if begun is not None:
                return begun if isinstance(begun, Decision) else drive(begun, self._answer)
        start = self._clock() if self._listeners.receivers else None
        forgotten = self.shield.forgotten
        try:
            reply = self.store.charge(keys, template.rules)
        except BaseException as error:  # noqa: BLE001 -- raised again unless it is a StoreError
            return self._outcomes.unanswered(windows, error, start, keys[0])
        if self._near_listeners.receivers:
            self._near.charged(windows, reply)
        decision = decision_of(windows, template.rules, reply, self._source)
        if reply[0] and start is None and self.breaker.is_healthy and not self._refusals:
            return decision
        return self._outcomes.answered(windows, decision, start, forgotten, keys[0])

    async def acharge(self, windows: WindowSet, whole: bool = False) -> Decision:
        """Do what `charge` does, without blocking the event loop.

        `whole`: the caller makes sure that this call is not cancelled.
        """
        template, keys = windows
        if self._refusals or self.breaker.open or not template.plain:
            if template.inflight and not whole:
                return await charge_whole(self.acharge(windows, True), self.arefund)
            begun = self._before(windows)
            if begun is not None:
                return begun if isinstance(begun, Decision) else await adrive(begun, self._aanswer)
        start = self._clock() if self._listeners.receivers else None
        forgotten = self.shield.forgotten
        try:
            reply = await self.store.acharge(keys, template.rules)
        except BaseException as error:  # noqa: BLE001 -- raised again unless it is a StoreError
            return self._outcomes.unanswered(windows, error, start, keys[0])
        if self._near_listeners.receivers:
            self._near.charged(windows, reply)
        decision = decision_of(windows, template.rules, reply, self._source)
        if reply[0] and start is None and self.breaker.is_healthy and not self._refusals:
            return decision
        return self._outcomes.answered(windows, decision, start, forgotten, keys[0])

    def peek(self, windows: WindowSet) -> Decision:
        """Return what `charge` would decide; charge nothing."""
        return drive(self._peek(windows), self._answer)

    async def apeek(self, windows: WindowSet) -> Decision:
        """Do what `peek` does, without blocking the event loop."""
        return await adrive(self._peek(windows), self._aanswer)

    def acquire(self, windows: WindowSet, timeout: float | None = None) -> Decision:
        """Wait until admitted; refuse if that takes longer than `timeout` seconds."""
        return drive(self._lines.acquire(windows, timeout), self._answer)

    async def aacquire(self, windows: WindowSet, timeout: float | None = None) -> Decision:
        """Do what `acquire` does, without blocking the event loop."""
        return await adrive(self._lines.acquire(windows, timeout), self._aanswer)

    def refund(self, decision: Decision) -> int:
        """Give back the hits of a decision, only once; return the number given back."""
        return drive(self._release.refund(decision), self._answer)

    async def arefund(self, decision: Decision) -> int:
        """Do what `refund` does, without blocking the event loop."""
        return await adrive(self._release.refund(decision), self._aanswer)

    def release(self, decision: Decision) -> int:
        """Give back the slots of a decision, only once; its hits stay charged."""
        return drive(self._release.release(decision), self._answer)

    async def arelease(self, decision: Decision) -> int:
        """Do what `release` does, without blocking the event loop."""
        return await adrive(self._release.release(decision), self._aanswer)

    def reset(self, keys: Sequence[str]) -> int:
        """Delete windows; return how many there were."""
        return drive(self._release.reset(keys), self._answer)

    async def areset(self, keys: Sequence[str]) -> int:
        """Do what `reset` does, without blocking the event loop."""
        return await adrive(self._release.reset(keys), self._aanswer)

    def return_leases(self) -> None:
        """Return the unused units of leases that have ended."""
        self._lender.return_ended()

    def close(self) -> None:
        """Settle leases and deferred charges, and close idle connections.

        The limiter can still be used: it opens new connections.
        """
        self._lender.close()
        self.deferred.flush()
        self.store.close()

    def _answer(self, question: Question) -> Any:
        if isinstance(question, Ask):
            return self.charge(question.windows)
        if isinstance(question, (Pause, Turn)):
            return take(question)
        if isinstance(question, Batch):
            question.answers.extend(cast(DividedStore, self.store).run_together(question.calls))
            return None
        return self.store.run(question)

    async def _aanswer(self, question: Question) -> Any:
        if isinstance(question, Ask):
            return await self.acharge(question.windows)
        if isinstance(question, (Pause, Turn)):
            return await atake(question)
        if isinstance(question, Batch):
            return await self._aanswer_batch(question)
        return await self.store.arun(question)

    async def _aanswer_batch(self, batch: Batch) -> None:
        """Wait for the answers, even if the check is cancelled: the calls were sent."""
        asking = asyncio.ensure_future(cast(DividedStore, self.store).arun_together(batch.calls))
        try:
            batch.answers.extend(await asyncio.shield(asking))
        except asyncio.CancelledError:
            batch.answers.extend(await asking)
            raise

    def _before(self, windows: WindowSet) -> Decision | Flow | None:
        """Return the decision if this process can make it; None to charge the store.

        Return a flow if the check needs more than one plain call to the store.
        """
        if self._refusals:
            found = self.shield.find(windows)
            if found is not None:
                return self._outcomes.report(replay(*found), None)
        template = windows.template
        if template.penalties and not self.breaker.open:
            reporting = self._penalizer.report_before(windows)
            if reporting is not None:
                return reporting
        if template.deferred and self.store.remote:
            return self.deferred.check(windows)
        if template.leased and self._charge_leased is not None:
            return self._charge_leased(windows)
        if template.joined:
            groups = self.store.groups(windows.keys)
            if groups is not None:
                return self._lender.charge_slots(windows, groups)
        if not windows.keys:
            return self._outcomes.report(unlimited(template), None)
        if self.breaker.open and not self.breaker.permit([self.store.node(windows.keys[0])]):
            return self._outcomes.without_store(windows, None)
        return self._penalizer.charge(windows) if template.penalties else None

    def _peek(self, windows: WindowSet) -> Flow:
        seen = self._lender.seen_from_here(windows)
        template, keys = seen
        if not keys:
            return unlimited(template)
        groups = self.store.groups(keys)
        nodes = [self.store.node(keys[group[0]]) for group in groups or [[0]]]
        if self._health.all_closed(nodes):
            try:
                if groups is not None:
                    check = self._lender.multi_slot(seen, groups, nodes)
                    reply, _ = yield from check.ask(writes=False)
                else:
                    call = Evaluate(keys, template.rules, writes=False)
                    reply = yield from self._health.look(nodes[0], call)
                return decide(seen, template.rules, reply, self.store.source, ())
            except StoreError as error:
                self._health.failed(error)
        return self._fallback.decide(windows, False, self.breaker)
