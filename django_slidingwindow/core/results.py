"""Turn the reply of a store into a decision."""

from __future__ import annotations

from collections.abc import Callable
from operator import neg
from typing import Any, NamedTuple, TypeAlias

from .. import decisions
from ..decisions import NO_LIMIT, Answer, Charge, Decision, Receipt, Verdict, new_decision
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
            if rule.cost and admits and not rule.watches and key not in charges:
                # Of the policies with the same key, the store charges the first.
                policy = template.rules[keys.index(key)].policy
                charges[key] = Charge(key, policy, rule.cost)
    return tuple(charges.values()), reply.clock


class StoreAnswer(NamedTuple):
    """The reply of a store, as the basis of a decision."""

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
        template, keys = self.windows
        found = []
        for (profile, policy), key, rule, (admits, remaining, retry, reset) in zip(
            template.named, keys, self.rules, Reply(self.fields).windows(), strict=True
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


# Creates an answer without a call of a Python constructor (`python -m benchmarks library`).
_new_answer: Callable[[type[Any], tuple[Any, ...]], Answer] = tuple.__new__


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
        reply = Reply(fields)
        i = _deciding(template, rules, reply)
        _, remaining, retry, reset = reply.window(i)
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
            _new_answer(StoreAnswer, (windows, rules, fields, source, charged, [True])),
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
    answer = _new_answer(LeaseAnswer, (windows, template.rules, stamp, left, reset, [True]))
    return new_decision(
        Decision,
        (
            *(True, profile, policy, policy.limit, left, 0.0, reset),
            *(decisions.ALLOWED, decisions.LEASE, key, answer),
        ),
    )


class LeaseAnswer(NamedTuple):
    """Units of a lease in one window, as the basis of a decision."""

    windows: WindowSet
    rules: tuple[WindowRule, ...]
    stamp: int
    left: int
    reset: float
    unused: list[bool]
    """See `StoreAnswer`."""

    @property
    def fields(self) -> Fields:
        return lease_reply(self.stamp, self.left, self.reset)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self._as_reply.verdicts

    @property
    def receipt(self) -> Receipt | None:
        return self._as_reply.receipt

    @property
    def _as_reply(self) -> StoreAnswer:
        return StoreAnswer(
            self.windows, self.rules, self.fields, decisions.LEASE, None, self.unused
        )


def _deciding(template: WindowTemplate, rules: tuple[WindowRule, ...], reply: Reply) -> int:
    """Return the position of the strictest window."""
    if reply.admitted and not template.observes:
        # The order of `rank` for admissions, inlined (`python -m benchmarks views`).
        admissions = [*zip(reply.remaining, map(neg, reply.resets), strict=True)]
        return admissions.index(min(admissions))
    ranks = [
        rank(bool(admits), rule.observed, left, _retry_after(rule, configured.policy, retry), reset)
        for rule, configured, (admits, left, retry, reset) in zip(
            rules, template.rules, reply.windows(), strict=True
        )
    ]
    return ranks.index(min(ranks))


def _retry_after(rule: WindowRule, policy: Policy, retry: int) -> float | None:
    if retry >= 0:
        return retry / 1_000_000
    # A cost above this process's share may still be within the limit: it can pass later.
    return None if rule.cost > policy.limit else policy.window


class ReplayedRefusal(NamedTuple):
    """A refusal that the shield remembers, as the basis of a decision."""

    windows: WindowSet | None
    rules: tuple[WindowRule, ...]
    remembered: tuple[Verdict, ...]
    age: float
    """Seconds since the store decided."""

    @property
    def fields(self) -> None:
        """The reply is older, so its times are wrong now."""

    @property
    def receipt(self) -> None:
        """Nothing was charged."""

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
            _new_answer(ReplayedRefusal, (answer.windows, answer.rules, verdicts, age)),
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
