"""What this process decides alone while the store is away."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..decisions import DENY, LOCAL, Decision
from ..stores.memory import MemoryStore
from ..stores.protocol import Evaluate, WindowRule, WindowRules
from .breaker import Breakers
from .caching import BoundedCache
from .penalties import decide
from .results import allowed_unseen
from .windows import MAX_TEMPLATES, WindowSet, WindowTemplate

# The Retry-After of a refusal during an outage, in seconds.
_LEAST_WAIT = 0.1


class _Share(NamedTuple):
    """How this process decides about the windows of a template, by their positions."""

    denied: int | None
    """The position of one that denies all."""
    local: list[int]
    """The positions of those that are counted here."""
    template: WindowTemplate
    """Of those."""
    rules: WindowRules
    """With this process's share of their limits."""


class Fallback:
    """As each profile says, or else the setting: own windows, all allowed, or all denied."""

    def __init__(self, way: str, *, processes: int, local: MemoryStore) -> None:
        """`processes`: among how many a limit is divided."""
        self.local = local
        self._way = way
        self._processes = processes
        self._shares: BoundedCache[WindowTemplate, _Share] = BoundedCache(MAX_TEMPLATES)

    def decide(self, windows: WindowSet, writes: bool, breaker: Breakers) -> Decision:
        """Return the decision of this process alone; the breaker says when to ask again."""
        share = self._shares.get(windows.template) or self._share(windows.template)
        if share.denied is not None:
            return _denied(windows, share.denied, max(breaker.probe_in, _LEAST_WAIT))
        if not share.local:
            return allowed_unseen(windows.template)
        if len(share.local) < len(windows.keys):
            windows = WindowSet(share.template, tuple(windows.keys[i] for i in share.local))
        if writes:
            reply = self.local.charge(windows.keys, share.rules)
        else:
            reply = self.local.run(Evaluate(windows.keys, share.rules, writes=False))
        return decide(windows, share.rules, reply, LOCAL, None if writes else ())

    def _share(self, template: WindowTemplate) -> _Share:
        ways = [profile.fallback or self._way for profile in template.profiles]
        denied = [
            position
            for position, way in enumerate(ways)
            if way == DENY and not template.profiles[position].observed
        ]
        local = [position for position, way in enumerate(ways) if way == LOCAL]
        part = template if len(local) == len(ways) else template.part(local)
        rules = WindowRules(_divided(part.rules, self._processes))
        share = _Share(denied[0] if denied else None, local, part, rules)
        return self._shares.keep(template, share)


def _denied(windows: WindowSet, position: int, wait: float) -> Decision:
    policy = windows.template.rules[position].policy
    return Decision(
        allowed=False,
        profile=windows.template.profiles[position].name,
        policy=policy,
        limit=policy.limit,
        remaining=0,
        retry_after=wait,
        reset_after=wait,
        reason=DENY,
        source=DENY,
    )


def _divided(rules: tuple[WindowRule, ...], processes: int) -> tuple[WindowRule, ...]:
    """Return the share of one process; a limit of 0 stays 0."""
    return tuple(
        rule._replace(
            policy=replace(
                rule.policy,
                limit=min(rule.policy.limit, max(1, rule.policy.limit // processes)),
            )
        )
        for rule in rules
    )
