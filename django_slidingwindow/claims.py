"""What a request asks of its profiles, and the windows that this means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .algorithms import EXACT
from .keys import escape, key_ends, suffix
from .policies import Policy, Profile
from .shield import Question
from .stores.base import Line


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request asks of one profile."""

    profile: Profile
    identifier: str
    policies: tuple[Policy, ...]
    """The profile's policies for this identifier; none means no limit."""
    cost: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """The windows that a check looks at."""

    keys: tuple[str, ...]
    lines: tuple[Line, ...]
    profiles: tuple[Profile, ...]

    @classmethod
    def of(cls, claims: Sequence[Claim], prefix: str) -> Plan:
        keys: list[str] = []
        lines: list[Line] = []
        profiles: list[Profile] = []
        for claim in claims:
            profile = claim.profile
            before, after = key_ends(prefix, profile.axis, profile.scope)
            stem = before + escape(claim.identifier) + after
            for policy in claim.policies:
                keys.append(stem + suffix(policy))
                lines.append(Line(policy, claim.cost, profile.observed, profile.count_rejected))
                profiles.append(profile)
        if len(set(keys)) < len(keys):
            lines = _with_shared_costs(keys, lines)
        return cls(tuple(keys), tuple(lines), tuple(profiles))

    def part(self, positions: Sequence[int]) -> Plan:
        return Plan(
            tuple(self.keys[i] for i in positions),
            tuple(self.lines[i] for i in positions),
            tuple(self.profiles[i] for i in positions),
        )

    @property
    def question(self) -> Question | None:
        """What the shield knows this check by; None where it must not answer."""
        for line in self.lines:
            if line.observed or line.count_rejected or line.policy.algorithm not in EXACT:
                return None
        return tuple(
            (key, line.policy.limit, line.cost)
            for key, line in zip(self.keys, self.lines, strict=True)
        )


def _with_shared_costs(keys: list[str], lines: list[Line]) -> list[Line]:
    """Windows that share a key share their hits: a request costs them the most it asks."""
    most: dict[str, int] = {}
    for key, line in zip(keys, lines, strict=True):
        most[key] = max(most.get(key, 0), line.cost)
    return [line._replace(cost=most[key]) for key, line in zip(keys, lines, strict=True)]
