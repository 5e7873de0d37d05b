"""Decisions about profiles with a penalty.

The windows of such a check include those of the penalties. Decisions show only the other windows: a
penalty that blocks makes the windows that it watches refuse.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from ..decisions import PENALTY, Answer, Decision, Receipt, Verdict
from ..stores.protocol import Fields, Reply, WindowRule, WindowRules
from .results import Charged, decision_of
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
    answer = PenalizedAnswer(decision.answer, watching)
    return decision._replace(reason=reason, answer=answer)


class PenalizedAnswer(NamedTuple):
    """The answer about the windows that a decision shows, with the check's penalties."""

    shown: Answer
    watching: Watching

    @property
    def windows(self) -> WindowSet | None:
        found: WindowSet | None = self.shown.windows
        return found

    @property
    def rules(self) -> tuple[WindowRule, ...]:
        return self.shown.rules

    @property
    def fields(self) -> Fields | None:
        return self.shown.fields

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        blocked = self.watching.blocked
        return tuple(
            [
                verdict._replace(blocked=not verdict.allowed and verdict.profile in blocked)
                for verdict in self.shown.verdicts
            ]
        )

    @property
    def receipt(self) -> Receipt | None:
        return self.shown.receipt
