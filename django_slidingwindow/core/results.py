"""A store's reply as a decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import truediv
from typing import Any, NamedTuple, TypeAlias

from .. import decisions
from ..decisions import NO_LIMIT, Charge, Decision, Receipt, Verdict, draft_decision, draft_verdict
from ..policies import Policy
from ..stores.protocol import Line
from .claims import Claim
from .windows import Form, Plan

Charged: TypeAlias = "tuple[tuple[Charge, ...], int]"
"""Charges that were made together, and the store's clock then."""


def charges_of(plan: Plan, reply: Sequence[int]) -> Charged:
    """What a call has charged, and when."""
    charges: dict[str, Charge] = {}
    if reply[0]:
        for key, line, admits in zip(plan.keys, plan.form.lines, reply[2::4], strict=True):
            if line.cost and admits:
                charges[key] = Charge(key, line.policy, line.cost)
    return tuple(charges.values()), reply[1]


class Answer(NamedTuple):
    """A reply and what it answers, for the parts of a decision that few ask for."""

    plan: Plan
    lines: tuple[Line, ...]
    reply: Sequence[int]
    source: str
    charged: tuple[Charged, ...] | None
    """None: what the reply says."""
    unused: list[bool]
    """One for all receipts that are made of this answer."""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        (form, keys), lines, reply = self[:3]
        found = []
        for i, line in enumerate(lines):
            admits, remaining, retry, reset = reply[2 + 4 * i : 6 + 4 * i]
            verdict = draft_verdict()
            verdict.profile, verdict.policy = form.named[i]
            verdict.key = keys[i]
            verdict.allowed = admits == 1
            verdict.observed = line.observed
            verdict.limit = line.policy.limit
            verdict.remaining = remaining
            verdict.retry_after = _retry_after(line, verdict.policy, retry) if retry else 0.0
            verdict.reset_after = reset / 1_000_000
            verdict.__class__ = Verdict
            found.append(verdict)
        return tuple(found)

    @property
    def receipt(self) -> Receipt | None:
        charged = self.charged
        if charged is None:
            charged = (charges_of(self.plan, self.reply),)
        parts = tuple(part for part in charged if part[0])
        local = self.source == decisions.LOCAL
        return Receipt(parts, local=local, unused=self.unused) if parts else None


def decision_of(
    plan: Plan,
    lines: tuple[Line, ...],
    reply: Sequence[int],
    source: str,
    charged: tuple[Charged, ...] | None = None,
) -> Decision:
    """`lines` are those that were applied; the plan's hold the configured policies.

    `charged` where that is not what this very reply says.
    """
    allowed = reply[0] == 1
    i = 0 if len(lines) == 1 else _deciding(plan, lines, reply)
    line, form = lines[i], plan[0]
    policy = form.lines[i].policy
    if allowed:
        retry_after: float | None = 0.0
        reason = decisions.OBSERVED if 0 in reply[2::4] else decisions.ALLOWED
    else:
        retry_after = _retry_after(line, policy, reply[4 + 4 * i])
        reason = decisions.FALLBACK if source == decisions.LOCAL else decisions.LIMIT
    decision = draft_decision()
    decision.allowed = allowed
    decision.profile = form.profiles[i].name
    decision.policy = policy
    decision.limit = line.policy.limit
    decision.remaining = reply[3 + 4 * i]
    decision.retry_after = retry_after
    decision.reset_after = reply[5 + 4 * i] / 1_000_000
    decision.reason = reason
    decision.source = source
    decision.key = plan[1][i]
    decision._answer = Answer, plan, lines, reply, source, charged, [True]
    decision.__class__ = Decision
    made: Decision = decision
    return made


def admission(
    form: Form, lines: tuple[Line, ...], keys: tuple[str, ...], reply: Sequence[int], source: str
) -> Decision:
    """What `decision_of` says of windows that have let a request in, in less time.

    Of several, all must be enforced.
    """
    if len(keys) == 1:
        i = 0
        _, _, admits, remaining, _, reset = reply
    else:
        assert form.limits is not None
        shares = list(map(truediv, reply[3::4], form.limits))
        i = shares.index(min(shares))
        admits, remaining, _, reset = reply[2 + 4 * i : 6 + 4 * i]
    decision = draft_decision()
    decision.allowed = True
    decision.profile, decision.policy = form.named[i]
    decision.limit = lines[i].policy.limit
    decision.remaining = remaining
    decision.retry_after = 0.0
    decision.reset_after = reset / 1_000_000
    decision.reason = decisions.ALLOWED if admits else decisions.OBSERVED
    decision.source = source
    decision.key = keys[i]
    decision._answer = _admitted, form, lines, keys, reply, source, [True]
    decision.__class__ = Decision
    made: Decision = decision
    return made


def _admitted(form: Form, lines: tuple[Line, ...], keys: tuple[str, ...], *rest: Any) -> Answer:
    reply, source, unused = rest
    return Answer(Plan(form, keys), lines, reply, source, None, unused)


def _retry_after(line: Line, policy: Policy, retry: int) -> float | None:
    if retry >= 0:
        return retry / 1_000_000
    # A cost above one process's share is not above the limit: it can pass later.
    return None if line.cost > policy.limit else policy.window


def strictest(verdicts: Sequence[Verdict], allowed: bool) -> Verdict:
    """Of refusals the longest, of admissions the one with the least left."""
    return verdicts[
        _strictest(
            allowed,
            [verdict.observed for verdict in verdicts],
            [verdict.allowed for verdict in verdicts],
            [verdict.remaining for verdict in verdicts],
            [verdict.limit for verdict in verdicts],
            [verdict.retry_after for verdict in verdicts],
        )
    ]


def _deciding(plan: Plan, lines: tuple[Line, ...], reply: Sequence[int]) -> int:
    """The position of the strictest window of a reply."""
    allowed = reply[0] == 1
    waits: list[float | None] = []
    if not allowed:
        waits = [
            _retry_after(line, told.policy, retry)
            for line, told, retry in zip(lines, plan.form.lines, reply[4::4], strict=True)
        ]
    return _strictest(
        allowed,
        [line.observed for line in lines],
        reply[2::4],
        reply[3::4],
        [line.policy.limit for line in lines],
        waits,
    )


def _strictest(
    allowed: bool,
    observed: Sequence[bool],
    admits: Sequence[int],
    remaining: Sequence[int],
    limits: Sequence[int],
    waits: Sequence[float | None],
) -> int:
    """The position of the strictest of several policies; those that observe come last."""
    if allowed:
        ranks = [
            (not watches, -left / limit if limit else 0.0)
            for watches, left, limit in zip(observed, remaining, limits, strict=True)
        ]
    else:
        ranks = [
            (not watches and not admitted, float("inf") if wait is None else wait)
            for watches, admitted, wait in zip(observed, admits, waits, strict=True)
        ]
    return ranks.index(max(ranks))


class Aged(NamedTuple):
    """What few ask for of a remembered refusal."""

    told: tuple[Verdict, ...]
    """Those that stay true."""
    age: float
    receipt: None = None

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(
            replace(
                told,
                retry_after=_less(told.retry_after, self.age),
                reset_after=max(0.0, told.reset_after - self.age),
            )
            for told in self.told
        )


def aged(refusal: Decision, verdicts: tuple[Verdict, ...], age: float) -> Decision:
    """A remembered refusal as it would be told now."""
    # In place what `_less` does: a flood of refusals comes this way.
    retry, reset = refusal.retry_after, refusal.reset_after
    decision = draft_decision()
    decision.allowed = False
    decision.profile = refusal.profile
    decision.policy = refusal.policy
    decision.limit = refusal.limit
    decision.remaining = refusal.remaining
    decision.retry_after = retry if retry is None else retry - age if retry > age else 0.0
    decision.reset_after = reset - age if reset > age else 0.0
    decision.reason = refusal.reason
    decision.source = decisions.SHIELD
    decision.key = refusal.key
    decision._answer = Aged, verdicts, age
    decision.__class__ = Decision
    made: Decision = decision
    return made


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
    policy = plan.form.lines[0].policy
    return Decision(
        allowed=True,
        profile=plan.form.profiles[0].name,
        policy=policy,
        limit=policy.limit,
        remaining=policy.limit,
        retry_after=0.0,
        reset_after=0.0,
        reason=decisions.ALLOWED,
        source=decisions.ALLOW,
    )
