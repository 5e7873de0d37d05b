"""One override, and the windows that are charged while it is in force."""

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
from . import overriding

if TYPE_CHECKING:
    from ..core.limiter import Limiter

Limits: TypeAlias = "tuple[tuple[int, float | None], ...]"
"""New limits, each with the window in seconds that it belongs to: None for the only window,
`IN_FLIGHT` for requests in flight."""


class Override(NamedTuple):
    """One override, ready to be applied."""

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
        """Return what an identifier is charged in. Without windows, the template decides."""
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
        """Return profile and policies as this override, which counts, has changed them."""
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
            # With what the ids belong to, so that they stay its own.
            found = _changed.keep(key, (profile, policies, made))
        return found[2]


_changed: BoundedCache[
    tuple[str, Limits, int, int],
    tuple[Profile, tuple[Policy, ...], tuple[Profile, tuple[Policy, ...]]],
] = BoundedCache(4_096)


def _limited(policy: Policy, limits: Limits, policies: tuple[Policy, ...]) -> Policy:
    """Return the policy with its new limit; as it is if none is meant for its window."""
    own = IN_FLIGHT if policy.inflight else policy.window
    for limit, window in limits:
        if window == own or (window is None and len(policies) == 1):
            return replace(policy, limit=limit, override=LIMIT)
    return policy


def _blocked(profile: str, key: str, until: float | None) -> Decision:
    wait = None if until is None else max(0.0, until - overriding.clock())
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
    """Return a template without windows, which decides itself."""
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
