"""What the checks look at, gathered once: every check is a function of it alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.cache import caches
from django.utils.module_loading import import_string

from ..conf import Conf, conf
from ..guard.rules import Rule, read_rule, rule_problems
from ..guard.usages import Usage, usages
from ..policies import Profile
from ..registry import BUILT_IN, profile_problems, read_profile, registry
from .values import valid
from .views import view_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project's settings and code, as far as they concern the limits."""

    conf: Conf
    """Of valid values alone; the default stands for a value that is not."""
    given: frozenset[str]
    """The keys of SLIDING_WINDOW that the project writes."""
    configs: Mapping[str, Any]
    """All profiles by name as they are written, right or wrong."""
    usages: Sequence[Usage]
    middleware: Sequence[str]
    session_engine: str
    caches: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, user: Mapping[str, Any]) -> Project:
        """The project as it is now, its views loaded."""
        # A view says which profiles it uses when it is imported.
        view_names()
        own = Conf()
        vars(own)["user"] = valid(user)
        configs = (
            registry.configs() if isinstance(conf.user.get("PROFILES", {}), Mapping) else BUILT_IN
        )
        return cls(
            conf=own,
            given=frozenset(user),
            configs=configs,
            usages=usages(),
            middleware=conf.middleware,
            session_engine=conf.session_engine,
            caches=caches.settings,
        )

    def profiles(self) -> Iterator[Profile]:
        """Those in use that have no problem of their own."""
        used = self._used()
        for name, config in self.configs.items():
            if name in used and not any(profile_problems(name, config)):
                yield read_profile(name, config)

    def _used(self) -> set[str]:
        """A built-in profile counts when something names it; whoever writes one, uses it."""
        used = {name for name in self.configs if self.configs[name] is not BUILT_IN.get(name)}
        for usage in self.usages:
            used.update(named_by(usage))
        for _, rule in self.rules():
            used.update(profiles_of(rule))
        return used

    def rules(self) -> Iterator[tuple[int, Rule]]:
        """The rules that have no problem of their own, with their place in the list."""
        for number, config in enumerate(self.conf.rules):
            if not any(rule_problems(number, config)):
                yield number, read_rule(number, config)

    def algorithms(self) -> set[str]:
        """Those that the profiles in use count with; `compact` always."""
        found = {"compact"}
        for profile in self.profiles():
            found |= {policy.algorithm for policy in profile.policies} or {profile.algorithm}
        return found

    def middleware_like(self, path: str) -> int:
        """How often MIDDLEWARE lists that class, or one derived from it."""
        return sum(entry == path or _derives(entry, path) for entry in self.middleware)


def named_by(usage: Usage) -> tuple[str, ...]:
    """The profiles that a place in the code names; none if it chooses at each request."""
    return usage.profiles if isinstance(usage.profiles, tuple) else ()


def profiles_of(rule: Rule) -> tuple[str, ...]:
    """The profiles that a rule names; unlike a decorator, it cannot leave the choice open."""
    profiles = rule.requirement.profiles
    assert isinstance(profiles, tuple)
    return profiles


def _derives(entry: str, path: str) -> bool:
    try:
        middleware, base = import_string(entry), import_string(path)
    except Exception:  # noqa: BLE001 -- Django itself tells of what cannot be imported
        return False
    return isinstance(middleware, type) and issubclass(middleware, base)
