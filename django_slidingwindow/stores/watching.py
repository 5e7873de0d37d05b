"""What penalties do to a check of windows in memory, as `lua/penalty.lua` does to one in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..algorithms.penalties import PenaltyView
from .protocol import WindowRule


class Watch:
    """The penalties of one check, and the windows that they watch."""

    def __init__(
        self,
        keys: Sequence[str],
        rules: Sequence[WindowRule],
        views: Sequence[Any],
        refuses: Sequence[bool],
    ) -> None:
        """`refuses`: which of the windows have no room."""
        self.rules = list(rules)
        """Without what a blocked window or a penalty would store."""
        self.refuses = list(refuses)
        """Windows without room, and those that are blocked."""
        self.full = list(refuses)
        """Windows without room."""
        self._by_key: dict[str, PenaltyView] = {}
        self._own: dict[int, PenaltyView] = {}
        self._over: dict[int, PenaltyView] = {}
        for i, (key, rule, view) in enumerate(zip(keys, rules, views, strict=True)):
            if isinstance(view, PenaltyView):
                if key not in self._by_key:
                    self._by_key[key] = view
                    view.report(rule.unreported)
                self._own[i] = self._by_key[key]
                self._over |= dict.fromkeys(range(i - rule.watches, i), self._by_key[key])
                self.refuses[i] = self.full[i] = False
                self.rules[i] = rule._replace(cost=0)
        self._judge()

    def row(self, position: int, answer: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
        """Return what a check says about a window, given what its hits say."""
        if position in self._own:
            return self._own[position].row()
        view, rule = self._over.get(position), self.rules[position]
        enforced = rule.cost > 0 and not rule.observed
        if view is None or not view.blocks or not (enforced or self.refuses[position]):
            return answer
        _, _, retry, reset = answer
        return 0, 0, retry if retry < 0 else max(retry, view.blocks), reset

    def store(self) -> list[Any]:
        """Write the penalties that have changed, and return them."""
        return [view.store() for view in self._by_key.values() if view.changed]

    def _judge(self) -> None:
        refused: dict[int, PenaltyView] = {}
        for position, view in self._over.items():
            rule = self.rules[position]
            if not rule.cost:
                continue
            if view.blocks:
                self.refuses[position] = True
                self.rules[position] = rule._replace(count_rejected=False)
            elif self.full[position]:
                refused[id(view)] = view
        for view in refused.values():
            view.refuse()
