"""What is configured, right or wrong, for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from .conf import conf
from .policies import Policy
from .registry import BUILT_IN, profile_problems, registry

_OF_POLICY = ("limit", "window", "algorithm", "resolution")

SETTINGS, REGISTERED, BUILT = "settings", "registered", "built in"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileState:
    """A profile as it is configured. What a wrong one does not say is None."""

    name: str
    origin: str
    """Who wrote it: the settings, an app that registered it, or this package."""
    axis: str | None = None
    scope: str | None = None
    mode: str | None = None
    fallback: str | None = None
    count_rejected: bool = False
    dynamic: bool = False
    """A callable says the limit for each identifier."""
    policies: tuple[Policy, ...] = ()
    problems: tuple[str, ...] = ()
    """Why it cannot be used."""

    def record(self) -> dict[str, Any]:
        """The same for programs."""
        policies = [
            {name: getattr(policy, name) for name in _OF_POLICY} for policy in self.policies
        ]
        return asdict(self) | {"policies": policies}


def profiles() -> Iterator[ProfileState]:
    """All profiles by name, those that cannot be used with their problems."""
    for name, config in sorted(registry.configs().items()):
        problems = tuple(f"{path}: {problem}" for path, problem in profile_problems(name, config))
        origin = SETTINGS if name in conf.profiles else REGISTERED
        if config is BUILT_IN.get(name):
            origin = BUILT
        if problems:
            yield ProfileState(name=name, origin=origin, problems=problems)
            continue
        profile = registry.get(name)
        yield ProfileState(
            name=name,
            origin=origin,
            axis=profile.axis,
            scope=profile.scope,
            mode=profile.mode,
            fallback=profile.fallback or conf.fallback,
            count_rejected=profile.count_rejected,
            dynamic=profile.limit_for is not None,
            policies=profile.policies,
        )
