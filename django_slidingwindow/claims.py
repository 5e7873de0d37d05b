"""What a request asks of its profiles, and the windows that this means."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from .algorithms import EXACT
from .keys import escape, key_ends, suffix
from .policies import OBSERVE, Policy, Profile
from .stores.base import Line


class Claim(NamedTuple):
    """What a request asks of one profile."""

    profile: Profile
    identifier: str
    policies: tuple[Policy, ...]
    """The profile's policies for this identifier; none means no limit."""
    cost: int = 1


class Plan(NamedTuple):
    """The windows that a check looks at."""

    keys: tuple[str, ...]
    lines: tuple[Line, ...]
    profiles: tuple[Profile, ...]

    @classmethod
    def of(cls, claims: Sequence[Claim], prefix: str) -> Plan:
        if len(claims) == 1:
            return cls._of_one(claims[0], prefix)
        keys: list[str] = []
        lines: list[Line] = []
        profiles: list[Profile] = []
        for claim in claims:
            one = cls._of_one(claim, prefix)
            keys += one.keys
            lines += one.lines
            profiles += one.profiles
        return cls(tuple(keys), _with_shared_costs(keys, lines), tuple(profiles))

    @classmethod
    def _of_one(cls, claim: Claim, prefix: str) -> Plan:
        profile = claim.profile
        before, afters, lines = _prepared(
            prefix,
            profile.axis,
            profile.scope,
            claim.policies,
            claim.cost,
            profile.mode,
            profile.count_rejected,
        )
        stem = before + escape(claim.identifier)
        if len(afters) == 1:
            return cls((stem + afters[0],), lines, (profile,))
        return cls(tuple([stem + after for after in afters]), lines, (profile,) * len(afters))

    def part(self, positions: Sequence[int]) -> Plan:
        return Plan(
            tuple(self.keys[i] for i in positions),
            tuple(self.lines[i] for i in positions),
            tuple(self.profiles[i] for i in positions),
        )

    @property
    def exact(self) -> bool:
        """Whether a refusal holds until its time, whatever else happens."""
        return not any(
            line.observed or line.count_rejected or line.policy.algorithm not in EXACT
            for line in self.lines
        )


@lru_cache(maxsize=4096)
def _prepared(
    prefix: str,
    axis: str,
    scope: str,
    policies: tuple[Policy, ...],
    cost: int,
    mode: str,
    count_rejected: bool,
) -> tuple[str, tuple[str, ...], tuple[Line, ...]]:
    """What a claim's keys begin with, what each ends with, and their lines."""
    before, after = key_ends(prefix, axis, scope)
    lines = tuple(Line(policy, cost, mode == OBSERVE, count_rejected) for policy in policies)
    return before, tuple(after + suffix(policy) for policy in policies), lines


def _with_shared_costs(keys: list[str], lines: list[Line]) -> tuple[Line, ...]:
    """Windows that share a key share their hits: a request costs them the most it asks."""
    if len(set(keys)) == len(keys):
        return tuple(lines)
    most: dict[str, int] = {}
    for key, line in zip(keys, lines, strict=True):
        most[key] = max(most.get(key, 0), line.cost)
    return tuple(line._replace(cost=most[key]) for key, line in zip(keys, lines, strict=True))
