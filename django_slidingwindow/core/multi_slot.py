"""A check whose windows are in several slots of a cluster, so that it needs several calls.

It peeks at all windows, then charges all. The group with the fewest hits left is charged first: if
another check takes the last hit in between, nothing was charged in the other groups yet. If one
group refuses later, the others are refunded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import compress
from typing import Any

from ..exceptions import StoreError
from ..stores.protocol import Batch, Evaluate, Refund, Reply
from .health import Health, StoreCall
from .near_limit import NearLimit
from .results import Charged, charges_of
from .windows import WindowSet

# The share of the time budget that is kept for refunds.
_GIVE_BACK = 0.25
# Time limit in seconds of refunds after the budget is used up.
_LEAST = 0.005


class MultiSlotCheck:
    """One check over several groups of windows."""

    def __init__(
        self,
        windows: WindowSet,
        groups: list[list[int]],
        nodes: list[str],
        *,
        health: Health,
        freed: Callable[[Iterable[str]], None],
        near: NearLimit,
        budget: float | None,
        clock: Callable[[], float],
    ) -> None:
        """`freed` is called with the keys of windows that were refunded."""
        self._slots = SlotGroups(windows, groups)
        self._nodes = nodes
        self._health = health
        self._freed = freed
        self._near = near
        self._budget = budget
        self._clock = clock
        self._start = clock()
        self._charged: dict[int, Charged] = {}
        # The nodes that have answered a peek, until they are asked to write.
        self._only_read: set[str] = set()

    def ask(self, *, writes: bool) -> Generator[StoreCall, Any, tuple[Reply, tuple[Charged, ...]]]:
        """Return one reply for all windows, and what was charged; charge only if `writes`."""
        slots, charging = self._slots, False
        try:
            slots.answered((yield from self._ask(slots.sets, charge=False)))
            charging = writes and slots.admitted
            if charging:
                for some in slots.in_turns():
                    slots.answered((yield from self._ask(some, charge=True)))
                    if not slots.admitted:
                        break
            elif writes:
                refusing = slots.refusals_to_store()
                if refusing:
                    sets = {n: slots.sets[n].part(where) for n, where in refusing.items()}
                    # The refusal is certain, even if it cannot be stored.
                    with suppress(StoreError):
                        slots.stored(refusing, (yield from self._ask(sets, charge=True)))
        except GeneratorExit:
            # The flow is not driven any more, so it cannot send refunds.
            raise
        except BaseException:
            yield from self._give_back()
            raise
        finally:
            if charging:
                # Whether they can be charged is not known. Another check may probe them.
                self._health.breakers.abandoned(self._only_read)
            elif writes:
                for node in self._only_read:
                    self._health.answered(node, charged=False)
        if not slots.admitted:
            yield from self._give_back()
        return slots.reply(), tuple(self._charged.values())

    def _ask(
        self, sets: dict[int, WindowSet], *, charge: bool
    ) -> Generator[StoreCall, Any, dict[int, Reply]]:
        """Return the replies of some groups; raise the first error."""
        within = self._left(1 - _GIVE_BACK)
        if charge and within is not None and within <= 0:
            raise StoreError("several calls took too long together", outage=False)
        calls = [Evaluate(keys, template.rules, charge, within) for template, keys in sets.values()]
        batch = Batch(tuple(calls), [])
        nodes = [self._nodes[number] for number in sets]
        self._only_read.difference_update(nodes)
        try:
            yield from self._health.ask_all(nodes, batch, charges=charge)
        finally:
            # Also for a check that was cancelled: its calls were sent.
            for number, answer in zip(sets, batch.answers, strict=False):
                if charge and not isinstance(answer, StoreError) and answer.admitted:
                    self._charged[number] = charges_of(sets[number], answer)
                    if self._near.listeners.receivers:
                        self._near.charged(sets[number], answer)
        if not charge:
            away = [isinstance(answer, StoreError) and answer.outage for answer in batch.answers]
            self._only_read = set(nodes).difference(compress(nodes, away))
        for answer in batch.answers:
            if isinstance(answer, StoreError):
                raise answer
        return dict(zip(sets, batch.answers, strict=True))

    def _give_back(self) -> Generator[StoreCall, Any, None]:
        left = self._left(1)
        within = None if left is None else max(left, _LEAST)
        nodes, calls = [], []
        for number, (charges, stamp) in self._charged.items():
            if charges:
                nodes.append(self._nodes[number])
                calls.append(Refund(charges, stamp, within))
        self._charged.clear()
        if calls:
            try:
                yield from self._health.ask_all(nodes, Batch(tuple(calls), []), charges=False)
            finally:
                self._freed([charge.key for call in calls for charge in call.charges])

    def _left(self, share: float) -> float | None:
        """Return the seconds left of a share of the budget."""
        if self._budget is None:
            return None
        return self._start + share * self._budget - self._clock()


class SlotGroups:
    """The windows of a check in groups, one for each slot, with the reply for each window."""

    def __init__(self, windows: WindowSet, groups: list[list[int]]) -> None:
        self.windows = windows
        self.sets = {number: windows.part(where) for number, where in enumerate(groups)}
        """The windows of each group, by its number."""
        self._groups = groups
        # For each window: whether its call was admitted, then the fields of its `WindowReply`.
        self._rows: list[tuple[int, ...]] = [()] * len(windows.keys)
        self._admits = [1] * len(groups)
        self._stamp = 0

    @property
    def admitted(self) -> bool:
        """Whether all groups that were asked admit the request."""
        return all(self._admits)

    def answered(self, replies: Mapping[int, Reply]) -> None:
        """Store the replies of groups."""
        for number, reply in replies.items():
            self._admits[number] = reply.admitted
            self._take(number, range(len(self._groups[number])), reply)

    def in_turns(self) -> list[dict[int, WindowSet]]:
        """Return the groups in two steps: the one with the fewest hits left, then the rest."""
        first = min(self.sets, key=self._left)
        rest = {number: windows for number, windows in self.sets.items() if number != first}
        return [{first: self.sets[first]}, rest]

    def refusals_to_store(self) -> dict[int, list[int]]:
        """Return the positions of windows that refuse and store their refusals, by group.

        A penalty that counts a refusal is included with all windows that it watches.
        """
        found = {}
        for number, (template, _) in self.sets.items():
            rules = template.rules
            refused = [i for i in template.shown if not self._row(number, i)[1]]
            positions = {i for i in refused if rules[i].count_rejected}
            for i in template.penalties:
                watched = range(i - rules[i].watches, i)
                if any(j in watched for j in refused):
                    positions.update((*watched, i))
            if positions:
                found[number] = sorted(positions)
        return found

    def stored(self, refusing: Mapping[int, list[int]], replies: Mapping[int, Reply]) -> None:
        """Store the replies of windows that have stored a refusal."""
        for number, reply in replies.items():
            self._take(number, refusing[number], reply)

    def reply(self) -> Reply:
        """Return all replies as the reply of one call."""
        reply = [int(self.admitted), self._stamp]
        for row, rule in zip(self._rows, self.windows.template.rules, strict=True):
            called, admits, remaining, retry, reset = row
            if called and admits and not self.admitted:
                # This call counted the cost, but another call refused the request.
                remaining = min(remaining + rule.cost, rule.policy.limit)
                reset = 0 if remaining == rule.policy.limit else reset
            reply += [admits, remaining, retry, reset]
        return Reply(reply)

    def _left(self, number: int) -> tuple[float, tuple[str, ...]]:
        """Return the fewest hits left in a group, and its keys.

        By the keys, checks that race choose the same group even if the hits are equal.
        """
        template, keys = self.sets[number]
        left = [self._row(number, i)[2] for i in template.shown if not template.rules[i].observed]
        return min(left, default=float("inf")), keys

    def _row(self, number: int, position: int) -> tuple[int, ...]:
        return self._rows[self._groups[number][position]]

    def _take(self, number: int, positions: Sequence[int], reply: Reply) -> None:
        self._stamp = max(self._stamp, reply.clock)
        for position, window in zip(positions, reply.windows(), strict=True):
            self._rows[self._groups[number][position]] = (reply.admitted, *window)
