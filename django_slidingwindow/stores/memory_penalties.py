"""Penalties in a check of windows in memory, with the rules of `lua/penalty.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..algorithms.penalties import PenaltyView
from .protocol import WindowRule


class PenaltyWatch:
    """Apply the penalties of one check to the windows that they watch."""

    def __init__(
        self,
        keys: Sequence[str],
        rules: Sequence[WindowRule],
        views: Sequence[Any],
        refuses: Sequence[bool],
    ) -> None:
        """`refuses` says which windows have no room for the request."""
        self.rules = list(rules)
        """The rules, changed so that penalties and blocked windows store no hits."""
        self.refuses = list(refuses)
        """Whether each window refuses, because it is full or because a penalty blocks it."""
        self.full = list(refuses)
        """Whether each window is full."""
        self._by_key: dict[str, PenaltyView] = {}
        self._penalties: dict[int, PenaltyView] = {}
        """The penalties, by their positions among the keys."""
        self._watchers: dict[int, PenaltyView] = {}
        """The penalty that watches each window, by the window's position."""
        for i, (key, rule, view) in enumerate(zip(keys, rules, views, strict=True)):
            if isinstance(view, PenaltyView):
                if key not in self._by_key:
                    self._by_key[key] = view
                    view.report(rule.unreported)
                self._penalties[i] = self._by_key[key]
                self._watchers |= dict.fromkeys(range(i - rule.watches, i), self._by_key[key])
                self.refuses[i] = self.full[i] = False
                self.rules[i] = rule._replace(cost=0)
        self._apply()

    def row(
        self, position: int, reply: tuple[int, int, int, int], admitted: bool
    ) -> tuple[int, int, int, int]:
        """Return the fields of a window's reply. `reply` has the fields without penalties."""
        if position in self._penalties:
            return self._penalties[position].row()
        view, rule = self._watchers.get(position), self.rules[position]
        # A block that begins now concerns windows with room only if the request is refused.
        enforced = rule.cost > 0 and not rule.observed and not admitted
        if view is None or not view.blocks or not (enforced or self.refuses[position]):
            return reply
        _, _, retry, reset = reply
        return 0, 0, retry if retry < 0 else max(retry, view.blocks), reset

    def store(self) -> list[Any]:
        """Store the penalties that have changed, and return their windows."""
        return [view.store() for view in self._by_key.values() if view.changed]

    def _apply(self) -> None:
        """Refuse in blocked windows, and count one refusal for each penalty of a full window."""
        refused: dict[int, PenaltyView] = {}
        for position, view in self._watchers.items():
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
