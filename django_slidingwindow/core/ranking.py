"""The strictest of several outcomes: one order for decisions, headers and refunds.

Refusals come first, the one with the longest wait before the others. Then come admissions, by the
hits left, and among equal ones the latest reset first. Windows that only observe come last.
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
            one.observed if isinstance(one, Verdict) else _observed(one),
            one.remaining,
            one.retry_after,
            one.reset_after,
        )
        for one in outcomes
    ]
    return outcomes[ranks.index(min(ranks))]


def _observed(decision: Decision) -> bool:
    """Return whether nothing but observing profiles has admitted a request."""
    return decision.allowed and all(verdict.observed for verdict in decision.verdicts)


def rank(
    allowed: bool, observed: bool, remaining: int, retry: float | None, reset: float
) -> tuple[int, float, float]:
    """Return the sort key of an outcome; the strictest has the smallest."""
    if observed:
        return 2, remaining, -reset
    if allowed:
        return 1, remaining, -reset
    return 0, -math.inf if retry is None else -retry, remaining
