"""A store's reply as a decision."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, TypeAlias

from .. import decisions
from ..decisions import NO_LIMIT, Charge, Decision, Receipt, Verdict, draft_verdict, make_decision
from ..policies import Policy
from ..stores.protocol import Reply, WindowRule
from .ranking import strictest_position
from .windows import WindowSet, WindowTemplate

Charged: TypeAlias = "tuple[tuple[Charge, ...], int]"
"""Charges that were made together, and the store's clock then."""


def charges_of(windows: WindowSet, reply: Reply) -> Charged:
    """Return what a call has charged, and when."""
    charges: dict[str, Charge] = {}
    if reply.admitted:
        template, keys = windows
        for key, rule, admits in zip(keys, template.rules, reply.admits, strict=True):
            if rule.cost and admits:
                charges[key] = Charge(key, rule.policy, rule.cost)
    return tuple(charges.values()), reply.clock


class Answer(NamedTuple):
    """What makes the fields of a decision that few look at: `verdicts` and `receipt`."""

    windows: WindowSet
    rules: tuple[WindowRule, ...]
    reply: Reply
    source: str
    charged: tuple[Charged, ...] | None
    """None: what the reply says."""
    unused: list[bool]
    """Shared by all receipts that are made of this answer."""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        (template, keys), rules, reply = self[:3]
        found = []
        for i, (admits, remaining, retry, reset) in enumerate(reply.windows()):
            rule = rules[i]
            verdict = draft_verdict()
            verdict.profile, verdict.policy = template.named[i]
            verdict.key = keys[i]
            verdict.allowed = admits == 1
            verdict.observed = rule.observed
            verdict.limit = rule.policy.limit
            verdict.remaining = remaining
            verdict.retry_after = _retry_after(rule, verdict.policy, retry) if retry else 0.0
            verdict.reset_after = reset / 1_000_000
            verdict.__class__ = Verdict
            found.append(verdict)
        return tuple(found)

    @property
    def receipt(self) -> Receipt | None:
        charged = self.charged
        if charged is None:
            charged = (charges_of(self.windows, self.reply),)
        parts = tuple(part for part in charged if part[0])
        local = self.source == decisions.LOCAL
        return Receipt(parts, local=local, unused=self.unused) if parts else None


def decision_of(
    windows: WindowSet,
    rules: tuple[WindowRule, ...],
    reply: Reply,
    source: str,
    charged: tuple[Charged, ...] | None = None,
) -> Decision:
    """Return the decision that a reply means.

    `rules` are those that were applied, perhaps with this process's share of a limit; the
    template has the configured ones. `charged` if that is not what this very reply says.
    """
    template, keys = windows
    i = 0
    if len(keys) == 1:
        admitted, _, _, remaining, retry, reset = reply
    else:
        i = _deciding(template, rules, reply)
        admitted = reply.admitted
        _, remaining, retry, reset = reply.window(i)
    profile, policy = template.named[i]
    retry_after: float | None = 0.0
    if not admitted:
        retry_after = _retry_after(rules[i], policy, retry)
        reason = decisions.FALLBACK if source == decisions.LOCAL else decisions.LIMIT
    elif template.observes and 0 in reply.admits:
        reason = decisions.OBSERVED
    else:
        reason = decisions.ALLOWED
    return make_decision(
        admitted == 1,
        profile,
        policy,
        rules[i].policy.limit,
        remaining,
        retry_after,
        reset / 1_000_000,
        reason,
        source,
        keys[i],
        (Answer, windows, rules, reply, source, charged, [True]),
    )


def _deciding(template: WindowTemplate, rules: tuple[WindowRule, ...], reply: Reply) -> int:
    waits: list[float | None] = []
    if not reply.admitted:
        waits = [
            _retry_after(rule, configured.policy, retry)
            for rule, configured, retry in zip(rules, template.rules, reply.retries, strict=True)
        ]
    return strictest_position(rules, reply, waits, observes=template.observes)


def _retry_after(rule: WindowRule, policy: Policy, retry: int) -> float | None:
    if retry >= 0:
        return retry / 1_000_000
    # A cost above one process's share is not above the limit: it can pass later.
    return None if rule.cost > policy.limit else policy.window


class ReplayedRefusal(NamedTuple):
    """What makes the verdicts of a refusal that the shield answers."""

    remembered: tuple[Verdict, ...]
    age: float
    """Seconds since the store decided."""
    receipt: None = None

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(
            replace(
                verdict,
                retry_after=_less(verdict.retry_after, self.age),
                reset_after=max(0.0, verdict.reset_after - self.age),
            )
            for verdict in self.remembered
        )


def replay(refusal: Decision, verdicts: tuple[Verdict, ...], age: float) -> Decision:
    """Return a remembered refusal as it is now, `age` seconds later."""
    return make_decision(
        False,
        refusal.profile,
        refusal.policy,
        refusal.limit,
        refusal.remaining,
        _less(refusal.retry_after, age),
        max(0.0, refusal.reset_after - age),
        refusal.reason,
        decisions.SHIELD,
        refusal.key,
        (ReplayedRefusal, verdicts, age),
    )


def _less(seconds: float | None, age: float) -> float | None:
    return None if seconds is None else max(0.0, seconds - age)


def unlimited(profile: str) -> Decision:
    """Return the decision about a request that no policy counts."""
    return Decision(
        allowed=True,
        profile=profile,
        policy=None,
        limit=NO_LIMIT,
        remaining=NO_LIMIT,
        retry_after=0.0,
        reset_after=0.0,
        reason=decisions.UNLIMITED,
        source=decisions.ALLOW,
    )


def allowed_unseen(template: WindowTemplate) -> Decision:
    """Return the decision while the store is away and the profiles allow all."""
    policy = template.rules[0].policy
    return Decision(
        allowed=True,
        profile=template.profiles[0].name,
        policy=policy,
        limit=policy.limit,
        remaining=policy.limit,
        retry_after=0.0,
        reset_after=0.0,
        reason=decisions.ALLOWED,
        source=decisions.ALLOW,
    )
