"""Search for windows, and find the configured profile that a window belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..algorithms.penalties import Penalty
from ..core.keys import KeyParts, escape, escape_shortened, key_beside, key_ends, parse_key, suffix
from ..core.limiter import Limiter
from ..core.windows import ProfileCheck
from ..exceptions import PolicyError
from ..guard import overriding
from ..guard.identity import canonical
from ..policies import PENALTY, Policy, Profile
from ..rates import MAX_LIMIT, MAX_WINDOW
from ..registry import registry

_GLOB = re.compile(r"([*?\[\]\\^])")


@dataclass(frozen=True, slots=True)
class Match:
    """A key that was found, and its configured profile."""

    key: str
    parts: KeyParts
    profile: str | None
    policy: Policy
    """How to read the window. It has the configured limit, or a very high one without a profile."""
    limit: int | None
    observed: bool = False
    """Whether the profile only observes, so that requests over its limit are admitted."""
    override: overriding.Override | None = None
    """The override in force; `policy`, `limit` and `observed` are as it has changed them."""

    @property
    def refused(self) -> bool:
        """Return whether an override blocks the identifier."""
        return self.override is not None and self.override.refuses


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The filters of a search for windows. Without any, all windows are found.

    Each field is an option of the commands and a parameter of the admin page.
    """

    profile: str | None = None
    axis: str | None = None
    identifier: str | None = None
    """A complete identifier, or a prefix and "*"."""
    blocked: bool = False
    """Only windows that would refuse a request of cost 1 now."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Filters:
        """Return the filters among the options of a command."""
        return cls(**{field.name: options[field.name] for field in fields(cls)})

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Filters:
        """Return the filters in a query string; empty values do not filter."""
        given: dict[str, Any] = {
            field.name: query.get(field.name, "").strip() or None for field in fields(cls)
        }
        given["blocked"] = given["blocked"] is not None
        return cls(**given)

    def query(self) -> dict[str, str]:
        """Return the filters as a query string for `from_query`."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: "1" if value is True else value for name, value in given.items() if value}


ALL = Filters()


class Search:
    """Find windows by filters. Raise ImproperlyConfigured if the profile does not exist."""

    def __init__(self, filters: Filters = ALL) -> None:
        self._profile = None if filters.profile is None else registry.get(filters.profile)
        self._axis = filters.axis if self._profile is None else self._profile.axis
        self._nothing = filters.axis is not None and filters.axis != self._axis
        self._identifier = filters.identifier

    def pattern(self, prefix: str) -> str:
        """Return the MATCH pattern for SCAN."""
        stem = key_ends(prefix, self._axis or "", "")[0]
        before = _literal(stem) if self._axis else _literal(f"{prefix}:") + "*:{"
        inner = (
            _literal(escape(self._identifier[:-1])) if self._identifier not in (None, "*") else ""
        )
        scope = self._profile.scope if self._profile else None
        after = _literal(key_ends("", "", scope)[1]) if scope else "}:*:"
        return f"{before}{inner}*{after}*"

    def exact_keys(self, limiter: Limiter) -> list[str] | None:
        """Return the keys of a complete identifier in all profiles; None if SCAN is needed."""
        if self._nothing:
            return []
        if self._identifier is None or self._identifier.endswith("*"):
            return None
        found: dict[str, None] = {}
        for profile in self._profiles:
            # Both as a request resolves it, and as keys and the log show it.
            for identifier in (canonical(profile.axis, self._identifier), self._identifier):
                policies = policies_of(profile, identifier)
                found |= dict.fromkeys(
                    limiter.windows([ProfileCheck(profile, identifier, policies)]).keys
                )
            # Keys and the log show a long identifier as its beginning and a hash.
            shortened = escape_shortened(self._identifier)
            if shortened is not None:
                before, after = key_ends(limiter.prefix, profile.axis, profile.scope)
                stem = before + shortened + after
                found |= dict.fromkeys(stem + suffix(one) for one in _kept(profile, policies))
        return list(found)

    def beside(self, match: Match) -> list[str]:
        """Return the keys of a match's identifier for all policies of its profile."""
        if match.profile is None:
            return [match.key]
        profile = registry.get(match.profile)
        kept = _kept(profile, self._policies(profile, match.parts))
        return [match.key, *(key_beside(match.key, policy) for policy in kept)]

    def match(self, key: str, prefix: str) -> Match | None:
        """Return the key with its profile and policy; None if the filters exclude it."""
        parts = parse_key(key, prefix)
        if parts is None:
            return None
        for profile in self._profiles_of.get((parts.axis, parts.scope), ()):
            policies = self._policies(profile, parts)
            for position, policy in enumerate(_kept(profile, policies)):
                if (policy.algorithm, policy.window) == (parts.algorithm, parts.window):
                    return _overridden(key, parts, profile, policies, position)
        if self._profile is not None:
            return None
        try:
            if parts.algorithm == PENALTY:
                # Without a profile its block ends as it began: no step is longer than this one.
                policy = Penalty(limit=MAX_LIMIT, window=parts.window, steps=(MAX_WINDOW,))
            else:
                policy = Policy(limit=MAX_LIMIT, window=parts.window, algorithm=parts.algorithm)
        except PolicyError:
            # A key of another application: the length of this window is not valid.
            return None
        return Match(key, parts, None, policy, None)

    def _policies(self, profile: Profile, parts: KeyParts) -> tuple[Policy, ...]:
        if not parts.shortened or profile.limit_for is None:
            return policies_of(profile, parts.identifier)
        # The key has only a hash. The identifier is known if it was given completely.
        return () if self._identifier is None else policies_of(profile, self._identifier)

    @cached_property
    def _profiles(self) -> list[Profile]:
        if self._profile is not None:
            return [self._profile]
        return [p for p in configured() if self._axis in (None, p.axis)]

    @cached_property
    def _profiles_of(self) -> dict[tuple[str, str], list[Profile]]:
        found: dict[tuple[str, str], list[Profile]] = {}
        for profile in self._profiles:
            found.setdefault((profile.axis, profile.scope), []).append(profile)
        return found


def configured() -> list[Profile]:
    """Return all valid profiles; the system checks report the others."""
    profiles = []
    for name in registry.configs():
        try:
            profiles.append(registry.get(name))
        except ImproperlyConfigured:
            continue
    return profiles


def policies_of(profile: Profile, identifier: str) -> tuple[Policy, ...]:
    """Return the policies of an identifier; none if the project's function fails."""
    try:
        return profile.policies_for(identifier)
    except Exception:  # noqa: BLE001 -- a limit callable is the project's code
        return ()


def _kept(profile: Profile, policies: tuple[Policy, ...]) -> tuple[Policy, ...]:
    """Return what has a key for an identifier with these policies: they, and the penalty."""
    return policies if profile.penalty is None else (*policies, profile.penalty)


def _overridden(
    key: str, parts: KeyParts, profile: Profile, policies: tuple[Policy, ...], position: int
) -> Match:
    """Return the match of a key with one of its profile's policies, as an override changes it."""
    policy = _kept(profile, policies)[position]
    name, limit = profile.name, policy.limit
    override = overriding.find(name, parts.identifier)
    if override is None:
        return Match(key, parts, name, policy, limit, profile.observed)
    if override.counts:
        changed, others = override.change(profile, policies)
        policy = _kept(changed, others)[position]
        return Match(key, parts, name, policy, policy.limit, changed.observed, override)
    return Match(key, parts, name, policy, limit if override.refuses else None, False, override)


def _literal(text: str) -> str:
    return _GLOB.sub(r"\\\1", text)
