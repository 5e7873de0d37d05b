"""Decisions without the store, during an outage."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..decisions import DENY, LOCAL, Decision
from ..stores.memory import MemoryStore
from ..stores.protocol import Evaluate, WindowRule, WindowRules
from .breaker import Breakers
from .caching import BoundedCache
from .penalty_decisions import decide
from .results import allowed_unseen
from .windows import MAX_TEMPLATES, WindowSet, WindowTemplate

# The Retry-After of a refusal during an outage, in seconds.
_LEAST_WAIT = 0.1


class _Share(NamedTuple):
    """How the fallback treats the windows of a template."""

    denied: int | None
    """The position of a window whose profile denies all requests, if there is one."""
    local: list[int]
    """The positions of windows that are counted in this process."""
    template: WindowTemplate
    """The template of the local windows."""
    rules: WindowRules
    """The rules of the local windows, with this process's share of the limits."""


class Fallback:
    """Decides as each profile, or else the setting, says: by local windows, allow, or deny."""

    def __init__(self, way: str, *, processes: int, local: MemoryStore) -> None:
        """`processes`: how many processes share a limit."""
        self.local = local
        self._way = way
        self._processes = processes
        self._shares: BoundedCache[WindowTemplate, _Share] = BoundedCache(MAX_TEMPLATES)

    def decide(self, windows: WindowSet, writes: bool, breaker: Breakers) -> Decision:
        """Return the decision; the breaker knows when the store will be asked again."""
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
        key=windows.keys[position],
    )


def _divided(rules: tuple[WindowRule, ...], processes: int) -> tuple[WindowRule, ...]:
    """Return the rules with one process's share of the limits; a limit of 0 stays 0."""
    return tuple(
        rule._replace(
            policy=replace(
                rule.policy,
                limit=min(rule.policy.limit, max(1, rule.policy.limit // processes)),
            )
        )
        for rule in rules
    )
