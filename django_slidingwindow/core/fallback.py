"""What this process decides alone while the store is away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ..decisions import DENY, LOCAL, Decision
from ..stores.memory import MemoryStore
from ..stores.protocol import Evaluate, Line
from .caching import BoundedCache
from .results import admission, allowed_unseen, decision_of
from .windows import MAX_FORMS, Form, Plan

# Seconds until somebody who was refused for an outage may ask again.
_LEAST_WAIT = 0.1


class _Share(NamedTuple):
    """What this process decides of a form's windows."""

    denied: int | None
    """The position of one that denies all."""
    local: list[int]
    """The positions of those that are counted here."""
    form: Form
    """Of those."""
    lines: tuple[Line, ...]
    """With this process's share of their limits."""


class Fallback:
    """As each profile says, or else the setting: own windows, all allowed, or all denied."""

    def __init__(self, way: str, *, processes: int, local: MemoryStore) -> None:
        """`processes`: among how many a limit is divided."""
        self.local = local
        self._way = way
        self._processes = processes
        self._shares: BoundedCache[Form, _Share] = BoundedCache(MAX_FORMS)

    def decide(self, plan: Plan, writes: bool, probe_in: Callable[[], float]) -> Decision:
        """The decision of this process alone; the store is asked again in `probe_in()` seconds."""
        share = self._shares.get(plan.form) or self._share(plan.form)
        if share.denied is not None:
            return _denied(plan, share.denied, max(probe_in(), _LEAST_WAIT))
        if not share.local:
            return allowed_unseen(plan)
        if len(share.local) < len(plan.keys):
            plan = Plan(share.form, tuple(plan.keys[i] for i in share.local))
        keys = plan.keys
        if writes:
            reply = self.local.hit(keys, share.lines)
            if reply[0] and len(keys) == 1:
                return admission(plan.form, share.lines, keys, reply, LOCAL)
        else:
            reply = self.local.run(Evaluate(keys, share.lines, writes=False))
        return decision_of(plan, share.lines, reply, LOCAL, None if writes else ())

    def _share(self, form: Form) -> _Share:
        ways = [profile.fallback or self._way for profile in form.profiles]
        denied = [
            position
            for position, way in enumerate(ways)
            if way == DENY and not form.profiles[position].observed
        ]
        local = [position for position, way in enumerate(ways) if way == LOCAL]
        part = form if len(local) == len(ways) else form.part(local)
        lines = _divided(part.lines, self._processes)
        share = _Share(denied[0] if denied else None, local, part, lines)
        return self._shares.keep(form, share)


def _denied(plan: Plan, position: int, wait: float) -> Decision:
    policy = plan.form.lines[position].policy
    return Decision(
        allowed=False,
        profile=plan.form.profiles[position].name,
        policy=policy,
        limit=policy.limit,
        remaining=0,
        retry_after=wait,
        reset_after=wait,
        reason=DENY,
        source=DENY,
    )


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
