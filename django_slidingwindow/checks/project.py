"""The input of all checks, collected once. Every check is a pure function of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.cache import caches
from django.urls import get_resolver

from ..conf import Conf, conf
from ..guard.installation import middleware_like
from ..guard.rules import Rule, read_rule, rule_problems
from ..guard.usages import Usage, usages
from ..policies import SLOTS, Profile
from ..registry import BUILT_IN, profile_problems, read_profile, registry
from .values import valid
from .views import view_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The settings and the code of a project that concern rate limits."""

    conf: Conf
    """The settings; invalid values are replaced by the default."""
    given: frozenset[str]
    """The keys of SLIDING_WINDOW that the project sets."""
    configs: Mapping[str, Any]
    """All profiles by name as they are written, valid or not."""
    usages: Sequence[Usage]
    middleware: Sequence[str]
    session_engine: str
    caches: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, user: Mapping[str, Any]) -> Project:
        """Read the current settings and import all views."""
        own = Conf()
        vars(own)["user"] = valid(user)
        configs = (
            registry.configs() if isinstance(conf.user.get("PROFILES", {}), Mapping) else BUILT_IN
        )
        return cls(
            conf=own,
            given=frozenset(user),
            configs=configs,
            usages=_usages(),
            middleware=conf.middleware,
            session_engine=conf.session_engine,
            caches=caches.settings,
        )

    def profiles(self) -> Iterator[Profile]:
        """Yield the valid profiles that are in use."""
        used = self._used()
        for name, config in self.configs.items():
            if name in used and not any(profile_problems(name, config)):
                yield read_profile(name, config)

    def _used(self) -> set[str]:
        """Return the names of the profiles in use: all but built-in ones that nothing names."""
        used = {name for name, config in self.configs.items() if config is not BUILT_IN.get(name)}
        for usage in self.usages:
            used.update(named_by(usage))
        for _, rule in self.rules():
            used.update(profiles_of(rule))
        return used

    def rules(self) -> Iterator[tuple[int, Rule]]:
        """Yield the valid rules with their index in the list."""
        for number, config in enumerate(self.conf.rules):
            if not any(rule_problems(number, config)):
                yield number, read_rule(number, config)

    def algorithms(self) -> set[str]:
        """Return the algorithms and penalties of the profiles in use, and always `compact`."""
        found = {"compact"}
        for profile in self.profiles():
            found |= {policy.algorithm for policy in profile.policies} or {profile.algorithm}
            if profile.penalty is not None:
                found.add(profile.penalty.algorithm)
            if profile.inflight:
                found.add(SLOTS)
        return found

    def middleware_like(self, path: str) -> int:
        """Return how often MIDDLEWARE lists the class at `path`, or a class derived from it."""
        return middleware_like(self.middleware, path)


def _usages() -> list[Usage]:
    """Import all views, and return the places that require profiles."""
    # A view registers the profiles that it uses when it is imported.
    names = view_names()
    # Not imported here, because DRF may not be installed. Views with its throttle import it.
    drf = sys.modules.get("django_slidingwindow.contrib.drf")
    if drf is None or names is None:
        return usages()
    return [*usages(), *drf.usages_in(get_resolver().url_patterns)]


def named_by(usage: Usage) -> tuple[str, ...]:
    """Return the profiles that a view names; an empty tuple if a function chooses them."""
    return usage.profiles if isinstance(usage.profiles, tuple) else ()


def profiles_of(rule: Rule) -> tuple[str, ...]:
    """Return the profiles that a rule names. Unlike a decorator, it cannot have a function."""
    profiles = rule.requirement.profiles
    assert isinstance(profiles, tuple)
    return profiles
