"""Refunds and resets: give back some hits, or all hits of a window."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from ..decisions import Charge, Decision, Receipt
from ..exceptions import StoreError
from ..stores.memory import MemoryStore
from ..stores.protocol import Call, Refund, Reset, Store
from .deferred import Deferred
from .health import Health, StoreCall
from .lender import Lender
from .outbox import PendingCharge
from .shield import Shield


class Release:
    """Refunds, releases of slots, and resets, as flows that sync and async share."""

    def __init__(
        self,
        store: Store,
        local: MemoryStore,
        shield: Shield,
        health: Health,
        lender: Lender,
        deferred: Deferred,
        freed: Callable[[Decision, str, int], None] | None,
    ) -> None:
        """`freed` is called when slots are given back: see `Callbacks`."""
        self._store = store
        self._leases = lender.leases
        self._local = local
        self._shield = shield
        self._health = health
        self._deferred = deferred
        self._freed = freed

    def refund(self, decision: Decision) -> Generator[StoreCall, Any, int]:
        """Give back what a decision was charged, once; return the hits."""
        receipt = decision.receipt
        if receipt is None or not receipt.use():
            return 0
        return (yield from self._give_back(decision, receipt))

    def release(self, decision: Decision) -> Generator[StoreCall, Any, int]:
        """Give back the slots of a decision, once; return them. Its hits stay charged."""
        receipt = decision.receipt
        if receipt is None or not receipt.holds_slots or not receipt.use():
            return 0
        return (yield from self._give_back(decision, receipt.part(receipt.slots)))

    def _give_back(self, decision: Decision, receipt: Receipt) -> Generator[StoreCall, Any, int]:
        taken = 0
        for charges, stamp in receipt.parts:
            if isinstance(stamp, PendingCharge):
                taken += self._deferred.give_back(charges, stamp)
                continue
            if receipt.local:
                taken += self._count(decision, charges, self._local.run(Refund(charges, stamp)))
                continue
            node = self._store.node(charges[0].key)
            left = self._leases.give_back(charges, stamp)
            taken += sum([charge.cost for charge in charges if charge not in left])
            try:
                # During an outage the hits stay charged until they expire: that counts too many
                # hits, never too few.
                if left and self._health.all_closed([node]):
                    hits = yield from self._health.look(node, Refund(left, stamp))
                    taken += self._count(decision, left, hits)
            except StoreError:
                pass
            finally:
                self._shield.forget([charge.key for charge in charges])
        return taken

    def _count(self, decision: Decision, charges: Iterable[Charge], hits: Sequence[int]) -> int:
        """Return the number of hits given back, and report the slots among them."""
        if self._freed is not None:
            for charge, number in zip(charges, hits, strict=True):
                if number and charge.policy.inflight:
                    self._freed(decision, charge.key, number)
        return sum(hits)

    def reset(self, keys: Sequence[str]) -> Generator[Call, Any, int]:
        """Forget whole windows; return how many there were."""
        every = tuple(dict.fromkeys(keys))
        if not every:
            return 0
        self._local.run(Reset(every))
        self._leases.forget(every)
        found = 0
        try:
            for positions in self._store.groups(every) or [list(range(len(every)))]:
                found += (yield Reset(tuple(every[i] for i in positions)))[0]
        finally:
            # Once more: a check may have leased units just before the window was reset.
            self._leases.forget(every)
            self._shield.reset(every)
            self._deferred.forget(every)
        return found
