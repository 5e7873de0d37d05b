"""What this process decides alone while the store is away."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from . import decisions
from .answers import allowed_unseen, charges_of, decision_of
from .claims import Plan
from .decisions import Decision
from .policies import Policy
from .stores.base import Evaluate
from .stores.memory import MemoryStore

# Seconds until somebody who was refused for an outage may ask again.
_LEAST_WAIT = 0.1


class Fallback:
    """As each profile says, or else the setting: own windows, all allowed, or all denied."""

    def __init__(self, way: str, *, processes: int, local: MemoryStore) -> None:
        """`processes`: among how many a limit is divided."""
        self.local = local
        self._way = way
        self._processes = processes

    def decide(self, plan: Plan, *, writes: bool, probe_in: float) -> Decision:
        """The decision of this process alone; `probe_in` seconds the store is asked again."""
        ways = [profile.fallback or self._way for profile in plan.profiles]
        for position, way in enumerate(ways):
            if way == "deny" and not plan.profiles[position].observed:
                return _denied(plan, position, max(probe_in, _LEAST_WAIT))
        local = [position for position, way in enumerate(ways) if way == "local"]
        if not local:
            return allowed_unseen(plan)
        part = plan.part(local)
        lines = tuple(
            line._replace(policy=_divided(line.policy, self._processes)) for line in part.lines
        )
        reply = self.local.run(Evaluate(part.keys, lines, writes))
        parts = (charges_of(part, reply),) if writes else ()
        return decision_of(part, lines, reply, decisions.LOCAL, parts)


def _denied(plan: Plan, position: int, wait: float) -> Decision:
    policy = plan.lines[position].policy
    return Decision(
        allowed=False,
        profile=plan.profiles[position].name,
        policy=policy,
        limit=policy.limit,
        remaining=0,
        retry_after=wait,
        reset_after=wait,
        reason=decisions.DENY,
        source=decisions.DENY,
    )


@lru_cache(maxsize=1024)
def _divided(policy: Policy, processes: int) -> Policy:
    """The share of one process; a limit of 0 stays 0."""
    if processes == 1 or policy.limit == 0:
        return policy
    return replace(policy, limit=max(1, policy.limit // processes))
