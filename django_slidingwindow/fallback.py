"""What this process decides alone while the store is away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from .answers import allowed_unseen, charges_of, decision_of
from .claims import Plan
from .decisions import DENY, LOCAL, Decision
from .stores.base import Evaluate, Line
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

    def decide(self, plan: Plan, *, writes: bool, probe_in: Callable[[], float]) -> Decision:
        """The decision of this process alone; the store is asked again in `probe_in()` seconds."""
        ways = [profile.fallback or self._way for profile in plan.profiles]
        if ways.count(LOCAL) < len(ways):
            for position, way in enumerate(ways):
                if way == DENY and not plan.profiles[position].observed:
                    return _denied(plan, position, max(probe_in(), _LEAST_WAIT))
            local = [position for position, way in enumerate(ways) if way == LOCAL]
            if not local:
                return allowed_unseen(plan)
            plan = plan.part(local)
        lines = plan.lines if self._processes == 1 else _divided(plan.lines, self._processes)
        reply = self.local.run(Evaluate(plan.keys, lines, writes))
        parts = (charges_of(plan, reply),) if writes else ()
        return decision_of(plan, lines, reply, LOCAL, parts)


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
        reason=DENY,
        source=DENY,
    )


@lru_cache(maxsize=4096)
def _divided(lines: tuple[Line, ...], processes: int) -> tuple[Line, ...]:
    """The share of one process; a limit of 0 stays 0."""
    return tuple(
        line._replace(
            policy=replace(
                line.policy,
                limit=min(line.policy.limit, max(1, line.policy.limit // processes)),
            )
        )
        for line in lines
    )
