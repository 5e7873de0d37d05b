"""The units that a request took from leases, while the store is asked for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from ..decisions import Charge, Decision
from ..stores.protocol import Reply
from .penalty_decisions import decide
from .results import Charged
from .windows import WindowSet


class TakenUnits(dict[int, Reply]):
    """For each window that a lease covers, by its position, the reply of the lease."""

    def rest(self, windows: WindowSet) -> list[int]:
        """Return the positions of the windows that no lease covers."""
        return [i for i in range(len(windows.keys)) if i not in self]

    def charges(self, windows: WindowSet) -> tuple[Charged, ...]:
        """Return the charges, each with the store's clock when it granted the units."""
        rules, keys = windows.template.rules, windows.keys
        return tuple(
            [
                ((Charge(keys[i], rules[i].policy, rules[i].cost),), own.clock)
                for i, own in self.items()
                if own.window(0).admits
            ]
        )

    def decision(
        self,
        windows: WindowSet,
        rest: Sequence[int],
        reply: Reply,
        charged: tuple[Charged, ...] | None,
        source: str,
    ) -> Decision:
        """Return one decision about all windows. `reply` is about those at the positions `rest`.

        `charged` is that of `decision_of`; it is not None if units were taken from leases.
        """
        rules = windows.template.rules
        if charged is None or not self:
            return decide(windows, rules, reply, source, charged)
        rows = dict(zip(rest, reply.windows(), strict=True))
        for i, own in self.items():
            window = own.window(0)
            if window.admits and not reply.admitted:
                # The units were put back.
                window = window._replace(remaining=window.remaining + rules[i].cost)
            rows[i] = window
        fields = chain.from_iterable(rows[i] for i in range(len(rules)))
        if reply.admitted:
            charged += self.charges(windows)
        whole = Reply((reply.admitted, reply.clock, *fields))
        return decide(windows, rules, whole, source, charged)
