"""Search for windows, and find the configured profile that a window belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..algorithms.penalties import Penalty
from ..core.keys import (
    KeyParts,
    escape,
    escape_shortened,
    key_beside,
    key_ends,
    parse_key,
    suffix,
    unescape,
)
from ..core.limiter import Limiter
from ..core.windows import ProfileCheck
from ..exceptions import PolicyError
from ..guard import override_snapshot
from ..guard.identity import canonical
from ..policies import PENALTY, Policy, Profile
from ..rates import MAX_LIMIT, MAX_WINDOW
from ..registry import registry
from ..rejections.text import restored

_GLOB = re.compile(r"([*?\[\]\\^])")


@dataclass(frozen=True, slots=True)
class Match:
    """A key that was found, and its configured profile."""

    key: str
    parts: KeyParts
    profile: str | None
    policy: Policy
    """How to read the window. Its limit is the configured one, or MAX_LIMIT without a profile."""
    limit: int | None
    observed: bool = False
    """Whether the profile only observes, so that requests over its limit are admitted."""
    override: override_snapshot.Override | None = None
    """The override in force. It is already applied to `policy`, `limit` and `observed`."""

    @property
    def refused(self) -> bool:
        """Whether an override blocks the identifier."""
        return self.override is not None and self.override.refuses


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The filters of a search for windows. Without filters, all windows are found.

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
        """Return the filters in a query string. Empty values are ignored."""
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
    """A search for windows by filters. ImproperlyConfigured if the profile does not exist."""

    def __init__(self, filters: Filters = ALL) -> None:
        self._profile = None if filters.profile is None else registry.get(filters.profile)
        self._axis = filters.axis if self._profile is None else self._profile.axis
        # The profile has another axis.
        self._is_empty = filters.axis is not None and filters.axis != self._axis
        self._identifier = filters.identifier

    def pattern(self, prefix: str) -> str:
        """Return the MATCH pattern for SCAN."""
        stem = key_ends(prefix, self._axis or "", "")[0]
        before = _literal(stem) if self._axis else _literal(f"{prefix}:") + "*:{"
        start = restored((self._identifier or "")[:-1])
        inner = _literal(escape(start)) if start else ""
        scope = self._profile.scope if self._profile else None
        after = _literal(key_ends("", "", scope)[1]) if scope else "}:*:"
        return f"{before}{inner}*{after}*"

    def exact_keys(self, limiter: Limiter) -> list[str] | None:
        """Return the keys of a complete identifier in all profiles; None if SCAN is needed."""
        if self._is_empty:
            return []
        if self._identifier is None or self._identifier.endswith("*"):
            return None
        found: dict[str, None] = {}
        shown = restored(self._identifier)
        for profile in self._profiles:
            for identifier in self._spellings(profile):
                policies = policies_of(profile, identifier)
                found |= dict.fromkeys(
                    limiter.windows([ProfileCheck(profile, identifier, policies)]).keys
                )
            # Keys and the log show a long identifier as its beginning and a hash.
            shortened = escape_shortened(shown)
            if shortened is not None:
                before, after = key_ends(limiter.prefix, profile.axis, profile.scope)
                stem = before + shortened + after
                policies = policies_of(profile, shown)
                found |= dict.fromkeys(
                    stem + suffix(policy) for policy in _with_penalty(profile, policies)
                )
        return list(found)

    def beside(self, match: Match) -> list[str]:
        """Return the key of a match, and its identifier's keys for all policies of the profile."""
        if match.profile is None:
            return [match.key]
        profile = registry.get(match.profile)
        policies = _with_penalty(profile, self._policies(profile, match.parts))
        return [match.key, *(key_beside(match.key, policy) for policy in policies)]

    def match(self, key: str, prefix: str) -> Match | None:
        """Return the key with its profile and policy.

        Return None if the key is not one of a window, or if the filters exclude it.
        """
        parts = parse_key(key, prefix)
        if parts is None:
            return None
        for profile in self._profiles_by_scope.get((parts.axis, parts.scope), ()):
            policies = self._policies(profile, parts)
            for position, policy in enumerate(_with_penalty(profile, policies)):
                if (policy.algorithm, policy.window) == (parts.algorithm, parts.window):
                    return _configured_match(key, parts, profile, policies, position)
        if self._profile is not None:
            return None
        try:
            if parts.algorithm == PENALTY:
                # The steps of the penalty are unknown. With the longest possible step, the stored
                # end of a block is always believed.
                policy = Penalty(limit=MAX_LIMIT, window=parts.window, steps=(MAX_WINDOW,))
            else:
                policy = Policy(limit=MAX_LIMIT, window=parts.window, algorithm=parts.algorithm)
        except PolicyError:
            # A key of another application: no policy can have a window of this length.
            return None
        return Match(key, parts, None, policy, None)

    def _policies(self, profile: Profile, parts: KeyParts) -> tuple[Policy, ...]:
        """Return the policies of the identifier in a key; none if the identifier is unknown."""
        if not parts.shortened or profile.limit_for is None:
            return policies_of(profile, parts.identifier)
        # The key has only a hash of the identifier. The filters may have the whole identifier.
        for identifier in self._spellings(profile):
            if parts.identifier in (identifier, unescape(escape(identifier))):
                return policies_of(profile, identifier)
        return ()

    def _spellings(self, profile: Profile) -> tuple[str, ...]:
        """Return the identifiers that the given one may stand for.

        It may be given as a request has it, or as keys and the log show it.
        """
        given = self._identifier
        return () if given is None else (canonical(profile.axis, given), given, restored(given))

    @cached_property
    def _profiles(self) -> list[Profile]:
        if self._profile is not None:
            return [self._profile]
        return [profile for profile in configured() if self._axis in (None, profile.axis)]

    @cached_property
    def _profiles_by_scope(self) -> dict[tuple[str, str], list[Profile]]:
        """The profiles by axis and scope, which are what their keys have in common.

        Those that only observe come last: a shared window is shown with a limit that refuses.
        """
        found: dict[tuple[str, str], list[Profile]] = {}
        for profile in sorted(self._profiles, key=lambda profile: profile.observed):
            found.setdefault((profile.axis, profile.scope), []).append(profile)
        return found


def configured() -> list[Profile]:
    """Return all valid profiles. The system checks report the others."""
    profiles = []
    for name in registry.configs():
        try:
            profiles.append(registry.get(name))
        except ImproperlyConfigured:
            continue
    return profiles


def policies_of(profile: Profile, identifier: str) -> tuple[Policy, ...]:
    """Return the policies of an identifier; () if the project's limit function fails."""
    try:
        return profile.policies_for(identifier)
    except Exception:  # noqa: BLE001 -- a limit function is the project's code
        return ()


def _with_penalty(profile: Profile, policies: tuple[Policy, ...]) -> tuple[Policy, ...]:
    """Return all policies of a profile that have a key: also its penalty, which is the last."""
    return policies if profile.penalty is None else (*policies, profile.penalty)


def _configured_match(
    key: str, parts: KeyParts, profile: Profile, policies: tuple[Policy, ...], position: int
) -> Match:
    """Return the match of a key with the policy at a position, with the override in force."""
    policy = _with_penalty(profile, policies)[position]
    name, limit = profile.name, policy.limit
    override = override_snapshot.find(name, parts.identifier)
    if override is None:
        return Match(key, parts, name, policy, limit, profile.observed)
    if override.counts:
        changed, changed_policies = override.change(profile, policies)
        policy = _with_penalty(changed, changed_policies)[position]
        return Match(key, parts, name, policy, policy.limit, changed.observed, override)
    return Match(key, parts, name, policy, limit if override.refuses else None, False, override)


def _literal(text: str) -> str:
    """Escape the characters that have a meaning in a MATCH pattern."""
    return _GLOB.sub(r"\\\1", text)
