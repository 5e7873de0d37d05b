"""Find the windows that a request is charged in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import decisions as reasons
from ..conf import conf
from ..decisions import Decision
from ..policies import parse_cost
from . import override_snapshot
from .binding import Binding, BoundProfile
from .requirements import Choice
from .state import Counted, RequestState, Resolved, new_resolved

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..core.windows import WindowSet
    from ..policies import Policy, Profile

logger = logging.getLogger("django_slidingwindow")

_NO_CHOICES: dict[int, tuple[str, ...]] = {}


def resolve(request: HttpRequest, binding: Binding, state: RequestState | None) -> Resolved:
    """Return the windows to charge for the requirements of a binding. This may block.

    `state` has the earlier checks of the request: what they charged is not charged again.
    """
    if binding.exempt is not None and binding.exempt.covers(request):
        return Resolved(None, {}, _NO_CHOICES, exempt=True)
    chosen = _NO_CHOICES
    if binding.asks_functions:
        chosen = {}
        try:
            profiles = _choose_all(request, binding, chosen)
        except _ChoiceError as error:
            return _denied(error.profiles, "", chosen)
    else:
        profiles = binding.by_method[request.method].profiles
    counted: dict[str, Counted | None] = {}
    windows: WindowSet | None = None
    more: list[WindowSet] = []
    overrides = override_snapshot.current
    for profile, find, cost, template, _, _ in profiles:
        override: override_snapshot.Override | None = None
        policies: tuple[Policy, ...] = ()
        try:
            identifier = find(request)
            if identifier is not None and (template is None or overrides is not None):
                override, policies = limits_for(profile, identifier, request, overrides)
        except Exception:
            logger.exception(
                "could not resolve the identity or the limit of profile %r", profile.name
            )
            if conf.identity_error != "allow" and not profile.observed:
                names = [bound.profile.name for bound in profiles]
                return _denied(names, profile.name, chosen)
            identifier = None
        if identifier is None:
            counted[profile.name] = None
            continue
        if state is not None:
            missing = state.missing(profile.name, identifier, cost)
            if missing is None:
                continue
            if missing != cost:
                cost = missing
                template = template and binding.limiter.template(profile, profile.policies, cost)
        if override is not None:
            found = override.windows(binding.limiter, profile, policies, identifier, cost)
            if override.refuses:
                names = [bound.profile.name for bound in profiles]
                return Resolved(found, dict.fromkeys(names, ("", 0)), chosen)
        else:
            if template is None:
                template = binding.limiter.template(profile, policies, cost)
            found = template.windows(identifier)
        counted[profile.name] = identifier, cost
        if windows is None:
            windows = found
        else:
            more.append(found)
    if more and windows is not None:
        windows = binding.limiter.join([windows, *more])
    return new_resolved(Resolved, (windows, counted, chosen, None, False))


def limits_for(
    profile: Profile,
    identifier: str,
    request: HttpRequest | None,
    overrides: override_snapshot.Snapshot | None,
) -> tuple[override_snapshot.Override | None, tuple[Policy, ...]]:
    """Return the override in force for an identifier, if any, and the policies before it."""
    override = None if overrides is None else overrides.find(profile.name, identifier)
    if profile.limit_for is None or (override is not None and not override.counts):
        return override, profile.policies
    return override, profile.policies_for(identifier, request)


class _ChoiceError(Exception):
    """A function that chooses profiles failed, so the request is denied."""

    def __init__(self, profiles: Sequence[str]) -> None:
        self.profiles = profiles
        """The profiles that were found before."""


def _choose_all(
    request: HttpRequest,
    binding: Binding,
    chosen: dict[int, tuple[str, ...]],
) -> tuple[BoundProfile, ...]:
    """Return the profiles that names and functions choose, each at the highest of its costs.

    `chosen` gets the choices of functions, by the requirement's id.
    """
    costs: dict[str, int] = {}
    for requirement in binding.requirements:
        if not requirement.covers(request):
            continue
        names, cost = requirement.profiles, requirement.cost
        if not isinstance(names, tuple):
            # In case the choice fails: `_denied` counts the request in a profile without a name.
            chosen[id(requirement)] = ("",)
            names = _choose(names, request, costs)
            chosen[id(requirement)] = names
        for name in names:
            if not isinstance(cost, int):
                cost = _cost(cost, request)
            costs[name] = max(cost, costs.get(name, 0))
    return tuple([binding.profile(name, cost) for name, cost in costs.items()])


def _choose(choice: Choice, request: HttpRequest, costs: dict[str, int]) -> tuple[str, ...]:
    try:
        found = choice(request)
        if found is None:
            return ()
        return (found,) if isinstance(found, str) else tuple(found)
    except Exception:
        logger.exception("the function that chooses a rate-limit profile failed: %r", choice)
        if conf.identity_error != "allow":
            raise _ChoiceError([*costs]) from None
        return ()


def _cost(function: Callable[[HttpRequest], Any], request: HttpRequest) -> int:
    try:
        return parse_cost(function(request))
    except Exception:
        logger.exception("the cost function of a rate limit failed, so the cost is 1: %r", function)
        return 1


def _denied(names: Sequence[str], profile: str, chosen: dict[int, tuple[str, ...]]) -> Resolved:
    denied = Decision(
        allowed=False,
        profile=profile,
        policy=None,
        limit=0,
        remaining=0,
        retry_after=None,
        reset_after=0.0,
        reason=reasons.IDENTITY_ERROR,
        source=reasons.DENY,
    )
    counted = dict.fromkeys((*names, profile), ("", 0))
    return Resolved(None, counted, chosen, denied)
