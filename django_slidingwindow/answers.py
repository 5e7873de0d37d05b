"""A store's reply as a decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from . import decisions
from .claims import Claim, Plan
from .decisions import NO_LIMIT, Charge, Decision, Receipt, Verdict
from .stores.base import Line


def charges_of(plan: Plan, reply: list[int]) -> tuple[tuple[Charge, ...], int]:
    """What a call has charged, and when."""
    charges: dict[str, Charge] = {}
    if reply[0]:
        for i, (key, line) in enumerate(zip(plan.keys, plan.lines, strict=True)):
            if line.cost and reply[2 + 4 * i]:
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
    verdicts = []
    for i, (key, line) in enumerate(zip(plan.keys, lines, strict=True)):
        admits, remaining, retry, reset = reply[2 + 4 * i : 6 + 4 * i]
        configured = plan.lines[i].policy
        retry_after: float | None = retry / 1_000_000
        if retry < 0:
            # A cost above one process's share is not above the limit: it can pass later.
            retry_after = None if line.cost > configured.limit else configured.window
        verdicts.append(
            Verdict(
                profile=plan.profiles[i].name,
                policy=configured,
                key=key,
                allowed=bool(admits),
                observed=line.observed,
                limit=line.policy.limit,
                remaining=remaining,
                retry_after=retry_after,
                reset_after=reset / 1_000_000,
            )
        )
    allowed = bool(reply[0])
    deciding = strictest(verdicts, allowed)
    if not allowed:
        reason = decisions.FALLBACK if source == decisions.LOCAL else decisions.LIMIT
    elif all(verdict.allowed for verdict in verdicts):
        reason = decisions.ALLOWED
    else:
        reason = decisions.OBSERVED
    charged = tuple(part for part in parts if part[0])
    return Decision(
        allowed=allowed,
        profile=deciding.profile,
        policy=deciding.policy,
        limit=deciding.limit,
        remaining=deciding.remaining,
        retry_after=0.0 if allowed else deciding.retry_after,
        reset_after=deciding.reset_after,
        reason=reason,
        source=source,
        verdicts=tuple(verdicts),
        receipt=Receipt(charged, local=source == decisions.LOCAL) if charged else None,
    )


def strictest(verdicts: list[Verdict], allowed: bool) -> Verdict:
    """Of refusals the longest, of admissions the one with the least left."""
    if len(verdicts) == 1:
        return verdicts[0]
    enforced = [verdict for verdict in verdicts if not verdict.observed] or verdicts
    if allowed:
        return min(enforced, key=lambda v: v.remaining / v.limit if v.limit else 0.0)
    refused = [verdict for verdict in enforced if not verdict.allowed]
    return max(refused, key=lambda v: float("inf") if v.retry_after is None else v.retry_after)


def aged(decision: Decision, age: float) -> Decision:
    """A remembered refusal as it would be told now."""

    def less(seconds: float) -> float:
        return max(0.0, seconds - age)

    def retry(seconds: float | None) -> float | None:
        return None if seconds is None else less(seconds)

    return replace(
        decision,
        retry_after=retry(decision.retry_after),
        reset_after=less(decision.reset_after),
        source=decisions.SHIELD,
        verdicts=tuple(
            replace(
                verdict,
                retry_after=retry(verdict.retry_after),
                reset_after=less(verdict.reset_after),
            )
            for verdict in decision.verdicts
        ),
    )


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
