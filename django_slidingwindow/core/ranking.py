"""Which of several outcomes is the strictest: one order for decisions, headers and refunds.

Among refusals it is the one that lasts longest, among admissions the one with the fewest hits
left, and then the one that stays so for longer. A window that only observes comes last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from ..decisions import Decision, Verdict

if TYPE_CHECKING:
    from ..stores.protocol import Reply, WindowRule

Outcome = TypeVar("Outcome", Decision, Verdict)


def strictest(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the strictest of several decisions, or of several verdicts."""
    if len(outcomes) == 1:
        return outcomes[0]
    ranks = [
        _rank(
            one.allowed,
            getattr(one, "observed", False),
            one.remaining,
            one.retry_after,
            one.reset_after,
        )
        for one in outcomes
    ]
    return outcomes[ranks.index(min(ranks))]


def strictest_position(
    rules: Sequence[WindowRule], reply: Reply, waits: Sequence[float | None], *, observes: bool
) -> int:
    """Return the position of the window that decides a reply.

    `waits`: for each window, the seconds until a retry; not needed if the reply admits.
    `observes`: some of the windows only observe.
    """
    if reply.admitted and not observes:
        # In a third of the time (`python -m benchmarks views`), unless two have as many left.
        remaining: tuple[int, ...] = reply.remaining
        least = min(remaining)
        if remaining.count(least) == 1:
            return remaining.index(least)
    ranks = [
        _rank(bool(admits), rule.observed, remaining, wait, reset)
        for rule, wait, (admits, remaining, _, reset) in zip(
            rules, waits or [0.0] * len(rules), reply.windows(), strict=True
        )
    ]
    return ranks.index(min(ranks))


def _rank(
    allowed: bool, observed: bool, remaining: int, retry: float | None, reset: float
) -> tuple[int, float, float]:
    """Return the place in the order; the strictest has the least."""
    if observed:
        return 2, remaining, -reset
    if allowed:
        return 1, remaining, -reset
    return 0, -math.inf if retry is None else -retry, remaining
