"""Which of several outcomes is the strictest: one order for decisions, headers and refunds.

Among refusals it is the one that lasts longest, among admissions the one with the fewest hits
left, and then the one that stays so for longer. A window that only observes comes last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from ..decisions import Decision, Verdict

Outcome = TypeVar("Outcome", Decision, Verdict)


def strictest(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the strictest of several decisions, or of several verdicts."""
    if len(outcomes) == 1:
        return outcomes[0]
    ranks = [
        rank(
            one.allowed,
            getattr(one, "observed", False),
            one.remaining,
            one.retry_after,
            one.reset_after,
        )
        for one in outcomes
    ]
    return outcomes[ranks.index(min(ranks))]


def rank(
    allowed: bool, observed: bool, remaining: int, retry: float | None, reset: float
) -> tuple[int, float, float]:
    """Return the place in the order; the strictest has the least."""
    if observed:
        return 2, remaining, -reset
    if allowed:
        return 1, remaining, -reset
    return 0, -math.inf if retry is None else -retry, remaining
