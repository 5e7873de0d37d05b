"""From what is demanded of a request to what it is charged: whom to count, and how much."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import decisions as reasons
from ..conf import conf
from ..core.claims import Claim
from ..decisions import Decision
from ..policies import Policy, Profile, parse_cost
from ..registry import registry
from .binding import Binding, bind
from .exemptions import exemptions
from .identity import Resolver, identify, resolvers
from .requirements import Choice, Demand, Demands
from .state import ACCOUNT, Account, First, Told, account_of, decide
from .user_code import Ask, ask, in_thread

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..core.limiter import Limiter
    from ..core.windows import Form

logger = logging.getLogger("django_slidingwindow")


Claims: TypeAlias = "Generator[Ask, Any, list[Claim]]"
_Found: TypeAlias = "dict[str, Told]"
AtOnce: TypeAlias = "tuple[_Found, Form, tuple[str, ...]]"
"""Whom each profile counts, the form of all the windows, and the windows' keys."""
Counted: TypeAlias = "Generator[Ask, Any, tuple[str | None, tuple[Policy, ...]]]"


class _UnknownError(Exception):
    """Whom to count, or by what, could not be told; the request is denied."""

    def __init__(self, profile: str) -> None:
        self.profile = profile


def at_once(
    request: HttpRequest, demands: Sequence[Demand], limiter: Limiter, *, may_block: bool
) -> AtOnce | None:
    """The windows of most requests: nothing was charged yet, and all is known but whom they count,
    and perhaps the limits.

    None for all others, and where somebody is not counted or cannot be told: then the account
    holds what was found, and `claims_of` goes on from there.
    """
    if type(demands) is not Demands:
        return None
    ready: Binding | None = demands.ready
    if ready is None or ready.limiter is not limiter or ready.edition is not registry.edition:
        ready = demands.ready = bind(demands, limiter)
    if (ready.blocks and not may_block) or hasattr(request, ACCOUNT):
        return None
    if ready.methods is not None and request.method not in ready.methods:
        return None
    if ready.exempt is not None and ready.exempt.covers_address(request):
        return None
    if ready.form is None:
        return _asked(request, ready, limiter) if ready.questions else None
    keys: tuple[str, ...] = ()
    told: dict[str, Told] = {}
    for name, find, form in ready.steps:
        identifier: str | None = None
        try:
            told[name] = identifier = find(request)
        except Exception as error:  # noqa: BLE001 -- `claims_of` tells of it
            told[name] = error
        if identifier is None:
            account_of(request).told = told
            return None
        keys += form.keys(identifier)
    return told, ready.form, keys


def _asked(request: HttpRequest, ready: Binding, limiter: Limiter) -> AtOnce | None:
    """The same where functions say the limits, and which windows there are."""
    keys: tuple[str, ...] = ()
    forms: list[Form] = []
    told: dict[str, Told] = {}
    for profile, find, cost in ready.questions:
        identifier: str | None = None
        try:
            identifier = find(request)
            policies = () if identifier is None else profile.policies_for(identifier, request)
            told[profile.name] = identifier, policies
        except Exception as error:  # noqa: BLE001 -- `claims_of` tells of it
            told[profile.name] = error
            identifier = None
        if identifier is None:
            break
        form = limiter.form(Claim(profile, identifier, policies, cost))
        forms.append(form)
        keys += form.keys(identifier)
    else:
        joined = limiter.join(tuple(forms)) if keys else None
        if joined is not None:
            return told, joined, keys
    account_of(request).told = told
    return None


def decided_before(request: HttpRequest, demands: Sequence[Demand]) -> Decision | None:
    """Return the decision of the only check so far, if it has met all these demands."""
    first = getattr(request, ACCOUNT, None)
    if type(first) is not First or type(demands) is not Demands:
        return None
    return first.decision if demands.ids <= first.demands.ids else None


def claims_of(request: HttpRequest, account: Account, demands: Sequence[Demand]) -> Claims:
    """The flow that finds what the request has to be charged; nothing if it is denied already.

    A demand is asked once. Another one that names the same profile is asked as well, because
    it may cost more, and because more may be known of the request by now: who the user is, for
    example. What the request was charged before is not charged again.
    """
    told, account.told = account.told, None
    if account.exempt is None:
        exempt = exemptions()
        account.exempt = exempt is not None and (yield from exempt.covers(request))
    claims: list[Claim] = []
    if account.exempt:
        return claims
    decided = account.decided
    costs: dict[str, int] = {}
    try:
        for demand in demands:
            # Asked in place, where a call of its own would be a good part of the time.
            if demand.methods is not None and not demand.covers(request):
                continue
            key = id(demand)
            if key in account.met:
                continue
            names = demand.profiles
            if not isinstance(names, tuple):
                # What stands here if the choice fails.
                account.met[key] = demand, ("",)
                names = yield from _choose(names, request)
            account.met[key] = demand, names
            cost = demand.cost
            for name in names:
                if not isinstance(cost, int):
                    cost = yield from _cost(cost, request)
                if cost > costs.get(name, -1):
                    costs[name] = cost
        for name, units in costs.items():
            profile = registry.get(name)
            # Outside of what an unknown identity forgives: one that is not configured is an error.
            known_by = resolvers(profile.axis, profile.anonymous)
            try:
                identifier, policies = yield from _counted(profile, known_by, request, told)
            except Exception:
                logger.exception("whom the rate-limit profile %r counts is unknown", name)
                if conf.identity_error != "allow" and not profile.observed:
                    raise _UnknownError(name) from None
                identifier = None
            if identifier is None:
                decided.setdefault(name, None)
                continue
            missing: int | None = units
            if name in account.asked:
                missing = account.missing(name, identifier, units)
            if missing is not None:
                claims.append(Claim(profile, identifier, policies, missing))
    except _UnknownError as unknown:
        denied = _denied(unknown.profile)
        decided |= dict.fromkeys((*costs, unknown.profile), denied)
        decide(request, account, (), denied)
        return []
    return claims


def _choose(choice: Choice, request: HttpRequest) -> Generator[Ask, Any, tuple[str, ...]]:
    """The profiles that a demand's function answers."""
    try:
        found = yield ask(choice, request)
        if found is None:
            return ()
        return (found,) if isinstance(found, str) else tuple(found)
    except Exception:
        logger.exception("the choice of a rate-limit profile failed: %r", choice)
        if conf.identity_error != "allow":
            raise _UnknownError("") from None
        return ()


def _cost(function: Callable[[HttpRequest], Any], request: HttpRequest) -> Generator[Ask, Any, int]:
    try:
        return parse_cost((yield ask(function, request)))
    except Exception:
        logger.exception("a rate-limit cost failed, and counts as 1: %r", function)
        return 1


def _counted(
    profile: Profile, known_by: Sequence[Resolver], request: HttpRequest, told: _Found | None
) -> Counted:
    """Whom the profile counts, None for nobody, and by which policies; asks for both."""
    if told is not None and profile.name in told:
        # Taken out: an error that stays would keep the request, which keeps the error.
        known = told.pop(profile.name)
        if isinstance(known, Exception):
            raise known
        if isinstance(known, tuple):
            return known
        identifier = known
    else:
        identifier = yield from identify(known_by, request)
    policies: tuple[Policy, ...] = profile.policies
    if identifier is not None and profile.limit_for is not None:
        limit_for = profile.policies_for
        policies = yield Ask(limit_for, partial(in_thread, limit_for), (identifier, request))
    return identifier, policies


def _denied(profile: str) -> Decision:
    return Decision(
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
