"""Turn the reply of a store into a decision."""

from __future__ import annotations

from operator import neg
from typing import NamedTuple, TypeAlias

from .. import decisions
from ..decisions import NO_LIMIT, Charge, Decision, Receipt, Verdict, new_decision
from ..policies import Policy
from ..stores.protocol import Fields, Reply, WindowRule
from .ranking import rank, strictest
from .windows import WindowSet, WindowTemplate

Charged: TypeAlias = "tuple[tuple[Charge, ...], int]"
"""Charges that one call made, and the store's clock at that time."""


def charges_of(windows: WindowSet, reply: Reply) -> Charged:
    """Return the charges of a call, and the store's clock."""
    charges: dict[str, Charge] = {}
    if reply.admitted:
        template, keys = windows
        for key, rule, admits in zip(keys, template.rules, reply.admits, strict=True):
            if rule.cost and admits and not rule.watches:
                charges[key] = Charge(key, rule.policy, rule.cost)
    return tuple(charges.values()), reply.clock


class Answer(NamedTuple):
    """Makes `verdicts` and `receipt` of a decision when they are read for the first time."""

    windows: WindowSet
    rules: tuple[WindowRule, ...]
    fields: Fields
    source: str
    charged: tuple[Charged, ...] | None
    """None if the reply itself says what was charged."""
    unused: list[bool]
    """Shared by all receipts made from this answer: see `Receipt`."""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        (template, keys), rules, fields = self[:3]
        found = []
        for (profile, policy), key, rule, (admits, remaining, retry, reset) in zip(
            template.named, keys, rules, Reply(fields).windows(), strict=True
        ):
            wait = _retry_after(rule, policy, retry) if retry else 0.0
            limit, after = rule.policy.limit, reset / 1_000_000
            found.append(
                Verdict(
                    profile, policy, key, admits == 1, rule.observed, limit, remaining, wait, after
                )
            )
        return tuple(found)

    @property
    def receipt(self) -> Receipt | None:
        charged = self.charged
        if charged is None:
            charged = (charges_of(self.windows, Reply(self.fields)),)
        parts = tuple(part for part in charged if part[0])
        local = self.source == decisions.LOCAL
        return Receipt(parts, local=local, unused=self.unused) if parts else None


def decision_of(
    windows: WindowSet,
    rules: tuple[WindowRule, ...],
    fields: Fields,
    source: str,
    charged: tuple[Charged, ...] | None = None,
) -> Decision:
    """Return the decision for a reply.

    `rules` are the rules that were applied: in the fallback, with this process's share of a limit.
    The template has the configured rules. `charged`: what was charged, if the reply does not say
    it.
    """
    template, keys = windows
    admitted, i = fields[0], 0
    if len(keys) == 1:
        _, _, _, remaining, retry, reset = fields
    else:
        i = _deciding(template, rules, fields)
        _, remaining, retry, reset = fields[2 + 4 * i : 6 + 4 * i]
    profile, policy = template.named[i]
    retry_after: float | None = 0.0
    if not admitted:
        retry_after = _retry_after(rules[i], policy, retry)
        reason = decisions.FALLBACK if source == decisions.LOCAL else decisions.LIMIT
    elif template.observes and 0 in Reply(fields).admits:
        reason = decisions.OBSERVED
    else:
        reason = decisions.ALLOWED
    return new_decision(
        Decision,
        (
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
            (Answer, windows, rules, fields, source, charged, [True]),
        ),
    )


def lease_reply(stamp: int, left: int, reset: float) -> Reply:
    """Return the reply for one window whose units came from a lease."""
    return Reply((1, stamp, 1, left, 0, round(reset * 1_000_000)))


def leased(windows: WindowSet, stamp: int, left: int, reset: float) -> Decision:
    """Return `decision_of(windows, rules, lease_reply(...), LEASE)` for one window.

    Takes half the time, because most checks of leased windows come here
    (`python -m benchmarks leases`).
    """
    template, (key,) = windows
    profile, policy = template.named[0]
    answer = (_lease_answer, windows, template.rules, stamp, left, reset, [True])
    return new_decision(
        Decision,
        (
            *(True, profile, policy, policy.limit, left, 0.0, reset),
            *(decisions.ALLOWED, decisions.LEASE, key, answer),
        ),
    )


def _lease_answer(
    windows: WindowSet,
    rules: tuple[WindowRule, ...],
    stamp: int,
    left: int,
    reset: float,
    unused: list[bool],
) -> Answer:
    reply = lease_reply(stamp, left, reset)
    return Answer(windows, rules, reply, decisions.LEASE, None, unused)


def _deciding(template: WindowTemplate, rules: tuple[WindowRule, ...], fields: Fields) -> int:
    """Return the position of the strictest window."""
    if fields[0] and not template.observes:
        # The order of `rank` for admissions, inlined (`python -m benchmarks views`).
        admissions = [*zip(fields[3::4], map(neg, fields[5::4]), strict=True)]
        return admissions.index(min(admissions))
    ranks = [
        rank(bool(admits), rule.observed, left, _retry_after(rule, configured.policy, retry), reset)
        for rule, configured, (admits, left, retry, reset) in zip(
            rules, template.rules, Reply(fields).windows(), strict=True
        )
    ]
    return ranks.index(min(ranks))


def _retry_after(rule: WindowRule, policy: Policy, retry: int) -> float | None:
    if retry >= 0:
        return retry / 1_000_000
    # A cost above this process's share may still be within the limit: it can pass later.
    return None if rule.cost > policy.limit else policy.window


class ReplayedRefusal(NamedTuple):
    """Makes the verdicts of a refusal that the shield answers."""

    windows: WindowSet
    rules: tuple[WindowRule, ...]
    remembered: tuple[Verdict, ...]
    age: float
    """Seconds since the store decided."""
    receipt: None = None

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(
            verdict._replace(
                retry_after=_less(verdict.retry_after, self.age),
                reset_after=max(0.0, verdict.reset_after - self.age),
            )
            for verdict in self.remembered
        )


def replay(refusal: Decision, verdicts: tuple[Verdict, ...], age: float) -> Decision:
    """Return a remembered refusal as the store would decide it now, `age` seconds later."""
    _, profile, policy, limit, remaining, retry_after, reset_after, reason, _, key, answer = refusal
    return new_decision(
        Decision,
        (
            False,
            profile,
            policy,
            limit,
            remaining,
            _less(retry_after, age),
            reset_after - age if reset_after > age else 0.0,
            reason,
            decisions.SHIELD,
            key,
            (ReplayedRefusal, answer[1], answer[2], verdicts, age),
        ),
    )


def _less(seconds: float | None, age: float) -> float | None:
    if seconds is None:
        return None
    return seconds - age if seconds > age else 0.0


def together(one: Decision, other: Decision) -> Decision:
    """Return one decision for two that admit a request: the stricter, with all windows."""
    receipts = [receipt for receipt in (one.receipt, other.receipt) if receipt is not None]
    parts = tuple(part for receipt in receipts for part in receipt.parts)
    local = any(receipt.local for receipt in receipts)
    observed = decisions.OBSERVED in (one.reason, other.reason)
    return strictest((one, other)).replace(
        reason=decisions.OBSERVED if observed else decisions.ALLOWED,
        verdicts=one.verdicts + other.verdicts,
        receipt=Receipt(parts, local=local) if parts else None,
    )


def unlimited(template: WindowTemplate) -> Decision:
    """Return the decision about a request that no window counts."""
    if template.decide is not None:
        return template.decide()
    return Decision(
        allowed=True,
        profile=template.name,
        policy=None,
        limit=NO_LIMIT,
        remaining=NO_LIMIT,
        retry_after=0.0,
        reset_after=0.0,
        reason=decisions.UNLIMITED,
        source=decisions.ALLOW,
    )


def allowed_unseen(template: WindowTemplate) -> Decision:
    """Return the decision during an outage if the profiles allow all requests."""
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
