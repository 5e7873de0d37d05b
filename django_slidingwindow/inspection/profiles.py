"""The configured profiles, valid or not, for the command and the admin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..conf import conf
from ..core.tiers import Tiers
from ..exceptions import Text
from ..policies import Policy, Profile, slots_policies
from ..profiles.keys import IN_POLICIES, PROFILE_KEYS, ProfileKey
from ..registry import BUILT_IN, profile_problems, registry

SETTINGS, REGISTERED, BUILT = "settings", "registered", "built in"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileState:
    """A profile as it is configured."""

    name: str
    origin: str
    """Where the profile comes from: SETTINGS, REGISTERED (by an app) or BUILT (this package)."""
    profile: Profile | None = None
    """None if the configuration has problems."""
    problems: tuple[str, ...] = ()
    """Why the profile cannot be used."""

    @property
    def dynamic(self) -> bool:
        """Whether a function returns the limit for each identifier."""
        return self.profile is not None and self.profile.limit_for is not None

    @property
    def tiers(self) -> dict[str, list[str] | None] | None:
        """The rates of each tier, None for a tier without a limit; None if there are no tiers."""
        limit_for = None if self.profile is None else self.profile.limit_for
        if not isinstance(limit_for, Tiers):
            return None
        return {
            name: None if rates is None else list(rates) for name, rates in limit_for.rates.items()
        }

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The policies that do not depend on the identifier."""
        if self.profile is None:
            return ()
        return self.profile.policies or slots_policies(self.profile.inflight, self.profile.hold)

    def value(self, key: ProfileKey) -> Any:
        """Return the value of a key that applies; None if the profile cannot be used."""
        if self.profile is None:
            return None
        value = getattr(self.profile, key.field)
        return value if key.effective is None else key.effective(value)

    def record(self) -> dict[str, Any]:
        """Return the profile as a dict for JSON."""
        return {
            "name": self.name,
            "origin": self.origin,
            **{key.name: self.value(key) for key in _own_keys()},
            "dynamic": self.dynamic,
            "policies": [
                {name: getattr(policy, name) for name in ("limit", *IN_POLICIES)}
                for policy in self.policies
            ],
            "tiers": self.tiers,
            "problems": list(self.problems),
        }


def column_keys() -> list[ProfileKey]:
    """Return the keys that have a column of their own."""
    return [key for key in _own_keys() if key.heading]


def remarks(record: Mapping[str, Any]) -> list[str]:
    """Return the keys without a column that differ from their default, as "anonymous: skip"."""
    return [
        key.name if record[key.name] is True else f"{key.name}: {record[key.name]}"
        for key in _own_keys()
        if not key.heading and record[key.name] not in (None, _default(key, record))
    ]


def _default(key: ProfileKey, record: Mapping[str, Any]) -> Any:
    """Return the value that applies without the key. The default scope is the profile's name."""
    return record["name"] if key.name == "scope" else key.default


def _own_keys() -> list[ProfileKey]:
    """Return the keys that belong to the whole profile, not to each of its policies."""
    return [key for key in PROFILE_KEYS.values() if not key.in_policies]


def profiles() -> Iterator[ProfileState]:
    """Yield all profiles, sorted by name."""
    for name, config in sorted(registry.configs().items()):
        problems = tuple(
            Text("{path}: {problem}", path=path, problem=problem)
            for path, problem in profile_problems(name, config)
        )
        origin = SETTINGS if name in conf.profiles else REGISTERED
        if config is BUILT_IN.get(name):
            origin = BUILT
        profile = None if problems else registry.get(name)
        yield ProfileState(name=name, origin=origin, profile=profile, problems=problems)
