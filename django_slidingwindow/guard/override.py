"""An override, and the windows that are charged while it is in force."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..core.caching import BoundedCache
from ..core.keys import any_key
from ..core.windows import WindowSet, WindowTemplate, logged
from ..decisions import BLOCK, EXEMPT, LIMIT, NO_LIMIT, OBSERVED, OVERRIDE, Decision
from ..policies import IN_FLIGHT, OBSERVE, Policy, Profile
from . import override_snapshot

if TYPE_CHECKING:
    from ..core.limiter import Limiter

Limits: TypeAlias = "tuple[tuple[int, float | None], ...]"
"""Pairs of a new limit and the window that it is for: seconds, `IN_FLIGHT` for requests in flight,
or None for the only window of a profile."""


class Override(NamedTuple):
    """An override of one profile, ready to be applied."""

    action: str
    limits: Limits = ()
    until: float | None = None
    """When it ends, in seconds since the epoch; None for never."""

    @property
    def counts(self) -> bool:
        """Whether the profile's policies still count the identifier."""
        return self.action in (LIMIT, OBSERVED)

    @property
    def refuses(self) -> bool:
        return self.action == BLOCK

    def windows(
        self,
        limiter: Limiter,
        profile: Profile,
        policies: tuple[Policy, ...],
        identifier: str,
        cost: int,
    ) -> WindowSet:
        """Return the windows that an identifier is charged in.

        To block or exempt, the set is empty, and its template decides.
        """
        if self.action == BLOCK:
            key = any_key(limiter.prefix, profile, identifier)
            decide = partial(_blocked, profile.name, key, self.until)
            return WindowSet(_template(profile, decide), ())
        if self.action == EXEMPT:
            return WindowSet(_exempt_template(profile), ())
        profile, policies = self.change(profile, policies)
        return limiter.template(profile, policies, cost).windows(identifier)

    def change(
        self, profile: Profile, policies: tuple[Policy, ...]
    ) -> tuple[Profile, tuple[Policy, ...]]:
        """Return profile and policies with the changes of this override, which must count."""
        key = self.action, self.limits, id(profile), id(policies)
        found = _changed.get(key)
        if found is None:
            if self.action == LIMIT:
                made = profile, tuple([_limited(one, self.limits, policies) for one in policies])
            else:
                made = (
                    replace(profile, mode=OBSERVE),
                    tuple([replace(policy, override=OBSERVED) for policy in policies]),
                )
            # Keeps the profile and the policies alive, so that their ids are not reused.
            found = _changed.keep(key, (profile, policies, made))
        return found[2]


_changed: BoundedCache[
    tuple[str, Limits, int, int],
    tuple[Profile, tuple[Policy, ...], tuple[Profile, tuple[Policy, ...]]],
] = BoundedCache(4_096)


def _limited(policy: Policy, limits: Limits, policies: tuple[Policy, ...]) -> Policy:
    """Return the policy with the limit for its window; unchanged if there is none."""
    policy_window = IN_FLIGHT if policy.inflight else policy.window
    for limit, window in limits:
        if window == policy_window or (window is None and len(policies) == 1):
            return replace(policy, limit=limit, override=LIMIT)
    return policy


def _blocked(profile: str, key: str, until: float | None) -> Decision:
    wait = None if until is None else max(0.0, until - override_snapshot.clock())
    return Decision(
        allowed=False,
        profile=profile,
        policy=None,
        limit=0,
        remaining=0,
        retry_after=wait,
        reset_after=wait or 0.0,
        reason=BLOCK,
        source=OVERRIDE,
        key=key,
    )


@lru_cache(maxsize=1_024)
def _exempt_template(profile: Profile) -> WindowTemplate:
    return _template(profile, partial(_exempt, profile.name))


def _template(profile: Profile, decide: Callable[[], Decision]) -> WindowTemplate:
    """Return a template without windows, which calls `decide` for its decision."""
    logs = logged(profile, None)
    return WindowTemplate((), (), name=profile.name, decide=decide, logged=logs)


def _exempt(profile: str) -> Decision:
    return Decision(
        allowed=True,
        profile=profile,
        policy=None,
        limit=NO_LIMIT,
        remaining=NO_LIMIT,
        retry_after=0.0,
        reset_after=0.0,
        reason=EXEMPT,
        source=OVERRIDE,
    )
