"""A check whose windows no one call can hold, put together from the answers to several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .planning import Plan


class Parts:
    """One plan in several groups of windows, each with the lane that holds it."""

    def __init__(self, plan: Plan, groups: list[list[int]], lanes: list[str]) -> None:
        self.plan = plan
        self.lanes = lanes
        self.plans = [plan.part(positions) for positions in groups]
        self._groups = groups
        self._rows: list[list[int]] = [[] for _ in plan.keys]
        self._admits = [True] * len(groups)
        self._stamp = 0

    @property
    def admitted(self) -> bool:
        """All parts admit, as far as they were asked."""
        return all(self._admits)

    def answered(self, number: int, reply: list[int]) -> None:
        """Takes over what a part answered: whether it admits, and what its windows say."""
        self._admits[number] = bool(reply[0])
        self._take(number, range(len(self._groups[number])), reply)

    def stored(self, number: int, positions: list[int], reply: list[int]) -> None:
        """Takes over what some of a part's windows say after they have stored a refusal."""
        self._take(number, positions, reply)

    def refusals_to_store(self) -> Iterator[tuple[int, list[int]]]:
        """Parts with windows that refuse and count what they refuse: number and positions."""
        for number, part in enumerate(self.plans):
            positions = [
                i
                for i, line in enumerate(part.form.lines)
                if line.count_rejected and not self._row(number, i)[0]
            ]
            if positions:
                yield number, positions

    def reply(self) -> list[int]:
        """The answers as that of one call."""
        reply = [int(self.admitted), self._stamp]
        for row, line in zip(self._rows, self.plan.form.lines, strict=True):
            admits, remaining, retry, reset = row
            if admits and not self.admitted:
                # Its part would have charged it, but another has refused.
                remaining = min(remaining + line.cost, line.policy.limit)
                reset = 0 if remaining == line.policy.limit else reset
            reply += [admits, remaining, retry, reset]
        return reply

    def _row(self, number: int, position: int) -> list[int]:
        return self._rows[self._groups[number][position]]

    def _take(self, number: int, positions: Sequence[int], reply: list[int]) -> None:
        self._stamp = max(self._stamp, reply[1])
        for i, position in enumerate(positions):
            self._rows[self._groups[number][position]] = reply[2 + 4 * i : 6 + 4 * i]
