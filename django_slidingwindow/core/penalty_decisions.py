"""Decisions about profiles with a penalty.

The windows of such a check include those of the penalties. Decisions show only the other windows: a
penalty that blocks makes the windows that it watches refuse.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from ..decisions import PENALTY, Decision, Receipt, Verdict, new_decision
from ..stores.protocol import Fields, Reply, WindowRule, WindowRules
from .results import Answer, Charged, decision_of
from .shield import Watched, Watching
from .windows import WindowSet


def decide(
    windows: WindowSet,
    rules: tuple[WindowRule, ...],
    fields: Fields,
    source: str,
    charged: tuple[Charged, ...] | None = None,
) -> Decision:
    """Return what `decision_of` returns, also for windows with penalties."""
    template = windows.template
    if not template.penalties:
        return decision_of(windows, rules, fields, source, charged)
    rows = [*Reply(fields).windows()]
    shown = windows.part(template.shown)
    left = shown.template.rules
    if rules is not template.rules:
        left = WindowRules([rules[i] for i in template.shown])
    about = (*fields[:2], *chain.from_iterable([rows[i] for i in template.shown]))
    decision = decision_of(shown, left, about, source, charged)
    watching = Watching(
        [
            Watched(
                key=windows.keys[i],
                profile=template.named[i][0],
                refused=any(not row[0] for row in rows[i - rules[i].watches : i]),
                remaining=rows[i][1],
                blocks=rows[i][2] / 1_000_000,
            )
            for i in template.penalties
        ]
    )
    blocked = not decision.allowed and decision.profile in watching.blocked
    reason = PENALTY if blocked else decision.reason
    answer = (PenalizedAnswer, *decision.answer[1:], watching)
    return new_decision(Decision, (*decision[:7], reason, *decision[8:10], answer))


class PenalizedAnswer:
    """An `Answer` with the state of the check's penalties."""

    def __init__(self, *arguments: Any) -> None:
        """`arguments`: those of `Answer`, followed by the penalties."""
        *made, self._watching = arguments
        self._answer = Answer(*made)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        blocked = self._watching.blocked
        return tuple(
            [
                verdict._replace(blocked=not verdict.allowed and verdict.profile in blocked)
                for verdict in self._answer.verdicts
            ]
        )

    @property
    def receipt(self) -> Receipt | None:
        return self._answer.receipt
