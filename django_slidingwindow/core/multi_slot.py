"""A check whose windows no one call can hold, put together from the answers to several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .windows import Plan


class Parts:
    """One plan in several groups of windows, each with the lane that holds it."""

    def __init__(self, plan: Plan, groups: list[list[int]], lanes: list[str]) -> None:
        self.plan = plan
        self.lanes = lanes
        self.plans = {number: plan.part(where) for number, where in enumerate(groups)}
        """By their numbers."""
        self._groups = groups
        # Of each window: whether its call admits, whether it does, remaining, retry, reset.
        self._rows: list[list[int]] = [[] for _ in plan.keys]
        self._admits = [True] * len(groups)
        self._stamp = 0

    @property
    def admitted(self) -> bool:
        """All parts admit, as far as they were asked."""
        return all(self._admits)

    def answered(self, replies: Mapping[int, list[int]]) -> None:
        """Takes over what parts answered: whether they admit, and what their windows say."""
        for number, reply in replies.items():
            self._admits[number] = bool(reply[0])
            self._take(number, range(len(self._groups[number])), reply)

    def in_turns(self) -> list[dict[int, Plan]]:
        """The parts in the order in which they are charged: the one with the least left alone."""
        first = min(self.plans, key=self._left)
        rest = {number: plan for number, plan in self.plans.items() if number != first}
        return [{first: self.plans[first]}, rest]

    def refusals_to_store(self) -> dict[int, list[int]]:
        """Parts with windows that refuse and count what they refuse, and these windows' places."""
        found = {}
        for number, part in self.plans.items():
            positions = [
                i
                for i, line in enumerate(part.form.lines)
                if line.count_rejected and not self._row(number, i)[1]
            ]
            if positions:
                found[number] = positions
        return found

    def stored(self, refusing: Mapping[int, list[int]], replies: Mapping[int, list[int]]) -> None:
        """Takes over what windows say after they have stored a refusal."""
        for number, reply in replies.items():
            self._take(number, refusing[number], reply)

    def reply(self) -> list[int]:
        """The answers as that of one call."""
        reply = [int(self.admitted), self._stamp]
        for row, line in zip(self._rows, self.plan.form.lines, strict=True):
            called, admits, remaining, retry, reset = row
            if called and admits and not self.admitted:
                # Its call has counted the cost in, but another call has refused.
                remaining = min(remaining + line.cost, line.policy.limit)
                reset = 0 if remaining == line.policy.limit else reset
            reply += [admits, remaining, retry, reset]
        return reply

    def _left(self, number: int) -> tuple[float, tuple[str, ...]]:
        """What the part has left, and its keys: all who race for the same begin with the same."""
        part = self.plans[number]
        left = [
            self._row(number, i)[2] for i, line in enumerate(part.form.lines) if not line.observed
        ]
        return min(left, default=float("inf")), part.keys

    def _row(self, number: int, position: int) -> list[int]:
        return self._rows[self._groups[number][position]]

    def _take(self, number: int, positions: Sequence[int], reply: list[int]) -> None:
        self._stamp = max(self._stamp, reply[1])
        for i, position in enumerate(positions):
            row = [reply[0], *reply[2 + 4 * i : 6 + 4 * i]]
            self._rows[self._groups[number][position]] = row
