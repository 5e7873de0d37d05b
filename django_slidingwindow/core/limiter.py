"""Windows in, a decision out: a whole check, without settings or HTTP.

A check has three steps: what this process decides by itself, the call to the store, and what
follows from the reply. Rare operations are flows, which sync and async share: generators that
yield what they want from the store, or how long to wait.
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
from ..stores.protocol import Batch, Call, DividedStore, Evaluate, Refund, Reset, Store
from .fallback import Fallback
from .health import Callbacks, Health
from .multi_slot import MultiSlotCheck
from .results import decision_of, replay, unlimited
from .shield import Shield
from .waiting import Ask, Pause, Step, Turn, WaitingLines, atake, take
from .windows import ProfileCheck, WindowCache, WindowSet

Question: TypeAlias = "Call | Batch | Step"
Flow: TypeAlias = "Generator[Question, Any, Decision]"


class Limiter:
    """Exact limits over a store, and what happens while the store is away."""

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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`processes`: among how many the local fallback divides a limit."""
        self.store = store
        self.prefix = prefix
        self.local = MemoryStore() if local is None else local
        self.shield = Shield(0) if shield is None else shield
        # Most checks find it empty, and so need not ask the shield.
        self._refusals: Mapping[Any, object] = self.shield.refusals
        self._callbacks = Callbacks() if callbacks is None else callbacks
        self._listeners = self._callbacks.listeners
        self._budget = budget
        self._clock = clock
        self._windows = WindowCache(prefix)
        self.template = self._windows.template
        self.join = self._windows.join
        self._lines = WaitingLines(clock)
        self._fallback = Fallback(fallback, processes=processes, local=self.local)
        self._health = Health(store, callbacks=self._callbacks, recovered=self.local.clear)
        self.breaker = self._health.breakers

    def windows(self, checks: Sequence[ProfileCheck]) -> WindowSet:
        """Return the windows of several profiles, each with its identifier."""
        return self._windows.windows(checks)

    def charge(self, windows: WindowSet) -> Decision:
        """Charge all windows if all admit, else none."""
        if self._refusals or self.breaker.open or not windows.template.plain:
            begun = self._before(windows)
            if begun is not None:
                return begun if isinstance(begun, Decision) else drive(begun, self._answer)
        start = self._clock() if self._listeners.receivers else None
        forgotten = self.shield.forgotten
        try:
            reply = self.store.charge(windows.keys, windows.template.rules)
        except BaseException as error:  # noqa: BLE001 -- raised again unless it is a StoreError
            return self._unanswered(windows, error, start)
        decision = decision_of(windows, windows.template.rules, reply, self.store.source)
        if reply[0] and start is None and self.breaker.is_healthy and not self._refusals:
            return decision
        return self._after(windows, decision, start, forgotten)

    async def acharge(self, windows: WindowSet) -> Decision:
        """Do what `charge` does, without blocking the event loop."""
        if self._refusals or self.breaker.open or not windows.template.plain:
            begun = self._before(windows)
            if begun is not None:
                return begun if isinstance(begun, Decision) else await adrive(begun, self._aanswer)
        start = self._clock() if self._listeners.receivers else None
        forgotten = self.shield.forgotten
        try:
            reply = await self.store.acharge(windows.keys, windows.template.rules)
        except BaseException as error:  # noqa: BLE001 -- raised again unless it is a StoreError
            return self._unanswered(windows, error, start)
        decision = decision_of(windows, windows.template.rules, reply, self.store.source)
        if reply[0] and start is None and self.breaker.is_healthy and not self._refusals:
            return decision
        return self._after(windows, decision, start, forgotten)

    def peek(self, windows: WindowSet) -> Decision:
        """Return what `charge` would decide; charge nothing."""
        return drive(self._peek(windows), self._answer)

    async def apeek(self, windows: WindowSet) -> Decision:
        """Do what `peek` does, without blocking the event loop."""
        return await adrive(self._peek(windows), self._aanswer)

    def acquire(self, windows: WindowSet, timeout: float | None = None) -> Decision:
        """Wait until admitted; refuse if that would take longer than `timeout` seconds."""
        return drive(self._lines.acquire(windows, timeout), self._answer)

    async def aacquire(self, windows: WindowSet, timeout: float | None = None) -> Decision:
        """Do what `acquire` does, without blocking the event loop."""
        return await adrive(self._lines.acquire(windows, timeout), self._aanswer)

    def refund(self, decision: Decision) -> int:
        """Give back what the decision was charged, once; return the hits given back."""
        return drive(self._refund(decision), self._answer)

    async def arefund(self, decision: Decision) -> int:
        """Do what `refund` does, without blocking the event loop."""
        return await adrive(self._refund(decision), self._aanswer)

    def reset(self, keys: Sequence[str]) -> int:
        """Forget windows; return how many there were."""
        return drive(self._reset(keys), self._answer)

    async def areset(self, keys: Sequence[str]) -> int:
        """Do what `reset` does, without blocking the event loop."""
        return await adrive(self._reset(keys), self._aanswer)

    def close(self) -> None:
        """Close idle connections; the next call makes new ones."""
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
        """Wait for the answers, even if the check is cancelled: the calls are on their way."""
        asking = asyncio.ensure_future(cast(DividedStore, self.store).arun_together(batch.calls))
        try:
            batch.answers.extend(await asyncio.shield(asking))
        except asyncio.CancelledError:
            batch.answers.extend(await asking)
            raise

    def _before(self, windows: WindowSet) -> Decision | Flow | None:
        """Return what this process decides by itself; None if the store is to be charged.

        A flow if no one call to the store can hold all windows.
        """
        if self._refusals:
            found = self.shield.find(windows)
            if found is not None:
                return self._report(replay(*found), None)
        if windows.template.joined:
            groups = self.store.groups(windows.keys)
            if groups is not None:
                return self._charge_groups(windows, groups)
        if not windows.keys:
            return self._report(unlimited(windows.template.name), None)
        if self.breaker.open and not self.breaker.permit([self.store.node(windows.keys[0])]):
            return self._without_store(windows, None)
        return None

    def _after(
        self, windows: WindowSet, decision: Decision, start: float | None, forgotten: int
    ) -> Decision:
        """Keep breaker and shield up to date with what the store has decided."""
        if not self.breaker.is_healthy:
            self._health.answered(self.store.node(windows.keys[0]))
        if decision.allowed:
            if self._refusals:
                self.shield.charged(windows.keys)
        elif windows.template.exact:
            self.shield.remember(windows, decision, forgotten)
        return self._report(decision, start) if self._listeners.receivers else decision

    def _unanswered(
        self, windows: WindowSet, error: BaseException, start: float | None
    ) -> Decision:
        """Return the fallback's decision; raise what is not an error of the store."""
        self._health.unanswered(self.store.node(windows.keys[0]), error, charges=True)
        if not isinstance(error, StoreError):
            raise error
        return self._without_store(windows, start, error)

    def _without_store(
        self, windows: WindowSet, start: float | None, error: StoreError | None = None
    ) -> Decision:
        if error is not None:
            self._health.failed(error)
        return self._report(self._fallback.decide(windows, True, self.breaker), start)

    def _report(self, decision: Decision, start: float | None) -> Decision:
        """Return the decision, after the callback was called with it."""
        if self._listeners.receivers and self._callbacks.checked is not None:
            self._callbacks.checked(decision, None if start is None else self._clock() - start)
        return decision

    def _multi_slot(
        self, windows: WindowSet, groups: list[list[int]], nodes: list[str]
    ) -> MultiSlotCheck:
        return MultiSlotCheck(
            windows,
            groups,
            nodes,
            source=self.store.source,
            health=self._health,
            freed=self.shield.forget,
            budget=self._budget,
            clock=self._clock,
        )

    def _charge_groups(self, windows: WindowSet, groups: list[list[int]]) -> Flow:
        nodes = [self.store.node(windows.keys[group[0]]) for group in groups]
        if not self.breaker.permit([*dict.fromkeys(nodes)]):
            return self._without_store(windows, None)
        start = self._clock() if self._listeners.receivers else None
        forgotten = self.shield.forgotten
        try:
            decision = yield from self._multi_slot(windows, groups, nodes).ask(writes=True)
        except StoreError as error:
            return self._without_store(windows, start, error)
        return self._after(windows, decision, start, forgotten)

    def _peek(self, windows: WindowSet) -> Flow:
        template, keys = windows
        if not keys:
            return unlimited(template.name)
        groups = self.store.groups(keys)
        nodes = [self.store.node(keys[group[0]]) for group in groups or [[0]]]
        if self._health.all_closed(nodes):
            try:
                if groups is not None:
                    multi_slot = self._multi_slot(windows, groups, nodes)
                    return (yield from multi_slot.ask(writes=False))
                call = Evaluate(keys, template.rules, writes=False)
                reply = yield from self._health.look(nodes[0], call)
                return decision_of(windows, template.rules, reply, self.store.source, ())
            except StoreError as error:
                self._health.failed(error)
        return self._fallback.decide(windows, False, self.breaker)

    def _refund(self, decision: Decision) -> Generator[Question, Any, int]:
        receipt = decision.receipt
        if receipt is None or not receipt.use():
            return 0
        taken = 0
        for charges, stamp in receipt.parts:
            call = Refund(charges, stamp)
            if receipt.local:
                taken += sum(self.local.run(call))
                continue
            node = self.store.node(charges[0].key)
            if self._health.all_closed([node]):
                # While the store is away, hits stay until they expire: too many are counted,
                # never too few.
                try:
                    taken += sum((yield from self._health.look(node, call)))
                except StoreError:
                    pass
                finally:
                    self.shield.forget([charge.key for charge in charges])
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
