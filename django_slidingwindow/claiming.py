"""From what is demanded of a request to what it is charged: whom to count, and how much."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from . import decisions as reasons
from .account import Account, decide
from .callables import Ask, ask
from .claims import Claim
from .conf import conf
from .decisions import Decision
from .demands import Choice, Demand, Demands
from .exemptions import exemptions
from .identity import identify, quick_resolver, resolvers
from .policies import ENFORCE, Policy, Profile, parse_cost
from .quick import new
from .registry import registry

if TYPE_CHECKING:
    from django.http import HttpRequest

    from .limiter import Limiter
    from .planning import Form

logger = logging.getLogger("django_slidingwindow")


Claims: TypeAlias = "Generator[Ask, Any, list[Claim]]"
_Step: TypeAlias = "tuple[Profile, Callable[[HttpRequest], Any], tuple[Policy, ...], int]"
Counted: TypeAlias = "Generator[Ask, Any, tuple[str | None, tuple[Policy, ...]]]"


class _UnknownError(Exception):
    """Whom to count, or by what, could not be told; the request is denied."""

    def __init__(self, profile: str) -> None:
        self.profile = profile


class _Prepared:
    """What is known of demands before any request."""

    __slots__ = ("edition", "names", "steps")

    def __init__(
        self, edition: object, names: frozenset[str] | None, steps: Sequence[_Step] = ()
    ) -> None:
        self.edition = edition
        """Of the profiles."""
        self.names = names
        """None where the request has a say in that."""
        self.steps = steps
        """How each claim is made; none where somebody has to be asked."""


class Single(NamedTuple):
    """The usual demand: one profile, and whom it counts is known at once."""

    limiter: Limiter
    """Whose the form is."""
    edition: object
    """Of the profiles."""
    form: Form | None
    """None for every other demand."""
    resolve: Callable[[HttpRequest], Any]
    profile: str
    alone: bool
    """Whether it has one policy, which is enforced."""


def single_of(demands: Sequence[Demand], limiter: Limiter) -> Single | None:
    """What is demanded, as far as it is that; None for demands that few requests meet."""
    prepared = _prepared(demands)
    if prepared is None:
        return None
    form: Form | None = None
    resolve: Callable[[HttpRequest], Any] = _nobody
    name, alone = "", False
    if len(prepared.steps) == 1:
        ((profile, resolve, policies, cost),) = prepared.steps
        form = limiter.form(Claim(profile, "", policies, cost))
        name, alone = profile.name, len(policies) == 1 and profile.mode == ENFORCE
    single = Single(limiter, prepared.edition, form, resolve, name, alone)
    assert isinstance(demands, Demands)
    demands.single = single
    return single


def _nobody(request: HttpRequest) -> None:
    """Whom those count who are asked otherwise."""


def claims_at_once(
    request: HttpRequest, account: Account, demands: Sequence[Demand]
) -> list[Claim] | None:
    """What `claims_of` would find, where nobody has to be asked for it.

    None for all others, and where something is wrong: `claims_of` finds out what.
    """
    prepared = _prepared(demands)
    if prepared is None:
        return None
    claims: list[Claim] = []
    if account.exempt is not None:
        names = prepared.names
        return claims if names is not None and account.decided.keys() >= names else None
    try:
        for profile, resolve, policies, cost in prepared.steps:
            identifier = resolve(request)
            if identifier is None:
                return None
            claims.append(new(Claim, (profile, identifier, policies, cost)))
    except Exception:  # noqa: BLE001 -- the flow meets it as well
        return None
    if not claims:
        return None
    account.exempt = False
    return claims


def _prepared(demands: Sequence[Demand]) -> _Prepared | None:
    """What many requests have in common; None for demands that few meet."""
    if type(demands) is not Demands:
        return None
    prepared: _Prepared | None = demands.prepared
    if prepared is None or prepared.edition is not registry.edition:
        prepared = demands.prepared = _prepare(demands)
    return prepared


def _prepare(demands: Demands) -> _Prepared:
    # Before the profiles are read: they may change meanwhile.
    edition = registry.edition
    costs: dict[str, int] = {}
    at_once = exemptions() is None
    for demand in demands:
        names, cost = demand.profiles, demand.cost
        if demand.methods is not None or not isinstance(names, tuple):
            return _Prepared(edition, None)
        for name in names:
            if isinstance(cost, int):
                costs[name] = max(cost, costs.get(name, 0))
            else:
                costs[name], at_once = 0, False
    steps: list[_Step] = []
    # Who is exempt, or pays nothing, must not meet an error of the others' profiles.
    for name, units in costs.items() if at_once else ():
        profile = registry.get(name)
        resolve = quick_resolver(profile.axis, profile.anonymous)
        if resolve is None or profile.limit_for is not None:
            steps = []
            break
        steps.append((profile, resolve, profile.policies, units))
    return _Prepared(edition, frozenset(costs), steps)


def claims_of(request: HttpRequest, account: Account, demands: Sequence[Demand]) -> Claims:
    """The flow that finds what the request has to be charged; nothing if it is denied already."""
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
            names = demand.profiles
            if not isinstance(names, tuple):
                names = yield from _choose(account, names, request)
            cost = demand.cost
            for name in names:
                if name not in decided:
                    if not isinstance(cost, int):
                        cost = yield from _cost(cost, request)
                    if cost > costs.get(name, -1):
                        costs[name] = cost
        for name, units in costs.items():
            profile = registry.get(name)
            quick = quick_resolver(profile.axis, profile.anonymous)
            try:
                if quick is not None and profile.limit_for is None:
                    identifier, policies = quick(request), profile.policies
                else:
                    identifier, policies = yield from _counted(profile, request)
            except Exception:
                logger.exception("whom the rate-limit profile %r counts is unknown", name)
                if conf.identity_error != "allow" and not profile.observed:
                    raise _UnknownError(name) from None
                identifier = None
            if identifier is None:
                decided[name] = None
            else:
                claims.append(new(Claim, (profile, identifier, policies, units)))
    except _UnknownError as unknown:
        denied = _denied(unknown.profile)
        decided |= dict.fromkeys((*costs, unknown.profile), denied)
        decide(request, account, (), denied)
        return []
    return claims


def _choose(
    account: Account, choice: Choice, request: HttpRequest
) -> Generator[Ask, Any, tuple[str, ...]]:
    """The profiles that a demand's function answers, or has answered for this request."""
    chosen = account.chosen(choice)
    if chosen is not None:
        return chosen
    names: tuple[str, ...] = ()
    try:
        found = yield ask(choice, request)
        if found is not None:
            names = (found,) if isinstance(found, str) else tuple(found)
    except Exception:
        logger.exception("the choice of a rate-limit profile failed: %r", choice)
        if conf.identity_error != "allow":
            account.choose(choice, ("",))
            raise _UnknownError("") from None
    account.choose(choice, names)
    return names


def _cost(function: Callable[[HttpRequest], Any], request: HttpRequest) -> Generator[Ask, Any, int]:
    try:
        return parse_cost((yield ask(function, request)))
    except Exception:
        logger.exception("a rate-limit cost failed, and counts as 1: %r", function)
        return 1


def _counted(profile: Profile, request: HttpRequest) -> Counted:
    """Whom the profile counts, None for nobody, and by which policies; asks for both."""
    identifier = yield from identify(resolvers(profile.axis, profile.anonymous), request)
    policies: tuple[Policy, ...] = profile.policies
    if identifier is not None and profile.limit_for is not None:
        policies = yield ask(profile.policies_for, identifier, request)
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
