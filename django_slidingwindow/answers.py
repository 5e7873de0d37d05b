"""A store's reply as a decision."""

from __future__ import annotations

from collections.abc import Sequence

from . import decisions
from .claims import Claim, Plan
from .decisions import (
    NO_LIMIT,
    Charge,
    Decision,
    Receipt,
    Verdict,
    new_decision,
    new_verdict,
)
from .stores.base import Line


def charges_of(plan: Plan, reply: list[int]) -> tuple[tuple[Charge, ...], int]:
    """What a call has charged, and when."""
    if len(plan.keys) == 1:
        line = plan.lines[0]
        if reply[0] and line.cost and reply[2]:
            return (Charge(plan.keys[0], line.policy, line.cost),), reply[1]
        return (), reply[1]
    charges: dict[str, Charge] = {}
    if reply[0]:
        for key, line, admits in zip(plan.keys, plan.lines, reply[2::4], strict=True):
            if line.cost and admits:
                charges[key] = Charge(key, line.policy, line.cost)
    return tuple(charges.values()), reply[1]


def decision_of(
    plan: Plan,
    lines: tuple[Line, ...],
    reply: list[int],
    source: str,
    parts: tuple[tuple[tuple[Charge, ...], int], ...],
) -> Decision:
    """`lines` are those that were applied; the plan's hold the configured policies."""
    if len(lines) == 1:
        verdicts = [_verdict(plan, 0, lines[0], *reply[2:])]
    else:
        verdicts = [
            _verdict(plan, i, line, *reply[2 + 4 * i : 6 + 4 * i]) for i, line in enumerate(lines)
        ]
    allowed = bool(reply[0])
    deciding = verdicts[0] if len(verdicts) == 1 else strictest(verdicts, allowed)
    if not allowed:
        reason = decisions.FALLBACK if source == decisions.LOCAL else decisions.LIMIT
    else:
        refused = 0 in reply[2::4]
        reason = decisions.OBSERVED if refused else decisions.ALLOWED
    charged = tuple([part for part in parts if part[0]])
    return new_decision(
        allowed,
        deciding.profile,
        deciding.policy,
        deciding.limit,
        deciding.remaining,
        0.0 if allowed else deciding.retry_after,
        deciding.reset_after,
        reason,
        source,
        tuple(verdicts),
        Receipt(charged, local=source == decisions.LOCAL) if charged else None,
    )


def _verdict(
    plan: Plan, i: int, line: Line, admits: int, remaining: int, retry: int, reset: int
) -> Verdict:
    policy = plan.lines[i].policy
    retry_after: float | None = 0.0
    if retry > 0:
        retry_after = retry / 1_000_000
    elif retry < 0:
        # A cost above one process's share is not above the limit: it can pass later.
        retry_after = None if line.cost > policy.limit else policy.window
    return new_verdict(
        plan.profiles[i].name,
        policy,
        plan.keys[i],
        admits == 1,
        line.observed,
        line.policy.limit,
        remaining,
        retry_after,
        reset / 1_000_000,
    )


def strictest(verdicts: list[Verdict], allowed: bool) -> Verdict:
    """Of refusals the longest, of admissions the one with the least left."""
    enforced = [verdict for verdict in verdicts if not verdict.observed] or verdicts
    if allowed:
        return min(enforced, key=lambda v: v.remaining / v.limit if v.limit else 0.0)
    refused = [verdict for verdict in enforced if not verdict.allowed]
    return max(refused, key=lambda v: float("inf") if v.retry_after is None else v.retry_after)


def aged(decision: Decision, age: float) -> Decision:
    """A remembered refusal as it would be told now."""
    verdicts = [
        new_verdict(
            told.profile,
            told.policy,
            told.key,
            told.allowed,
            told.observed,
            told.limit,
            told.remaining,
            _less(told.retry_after, age),
            _less(told.reset_after, age),
        )
        for told in decision.verdicts
    ]
    return new_decision(
        decision.allowed,
        decision.profile,
        decision.policy,
        decision.limit,
        decision.remaining,
        _less(decision.retry_after, age),
        _less(decision.reset_after, age),
        decision.reason,
        decisions.SHIELD,
        tuple(verdicts),
        None,
    )


def _less(seconds: float | None, age: float) -> float | None:
    if seconds is None:
        return None
    return seconds - age if seconds > age else 0.0


def unlimited(claims: Sequence[Claim]) -> Decision:
    return Decision(
        allowed=True,
        profile=claims[0].profile.name if claims else "",
        policy=None,
        limit=NO_LIMIT,
        remaining=NO_LIMIT,
        retry_after=0.0,
        reset_after=0.0,
        reason=decisions.UNLIMITED,
        source=decisions.ALLOW,
    )


def allowed_unseen(plan: Plan) -> Decision:
    """The store is away, and the profiles say: let them in."""
    policy = plan.lines[0].policy
    return Decision(
        allowed=True,
        profile=plan.profiles[0].name,
        policy=policy,
        limit=policy.limit,
        remaining=policy.limit,
        retry_after=0.0,
        reset_after=0.0,
        reason=decisions.ALLOWED,
        source=decisions.ALLOW,
    )
