"""From a request and what is demanded of it to one decision, in one call of the limiter.

Decorators, the middleware and the adapters of other frameworks all come here. What
they demand is remembered on the request, so a profile is charged once, whoever asks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from . import decisions as reasons
from . import refunds, signals
from .account import Account, account_of, find_account, show, strictest
from .callables import Ask, aanswer, answer, ask
from .claims import Claim
from .conf import conf
from .decisions import Decision
from .demands import Choice, Demand, Usage, demands_of, is_exempt, methods_from, usages
from .exemptions import exemptions
from .flows import adrive, drive
from .identity import identify, resolvers
from .limits import get_limiter
from .policies import Policy, Profile, parse_cost
from .registry import registry

if TYPE_CHECKING:
    from django.http import HttpRequest

Flow: TypeAlias = "Generator[Ask, Any, Decision | None]"

__all__ = [
    "Demand",
    "Usage",
    "acheck",
    "arefund",
    "check",
    "decisions",
    "demands_of",
    "is_exempt",
    "methods_from",
    "refund",
    "settled",
    "usages",
]

logger = logging.getLogger("django_slidingwindow")


def check(request: HttpRequest, demands: Sequence[Demand]) -> Decision | None:
    """The strictest decision over the demands; None if nothing counts this request.

    Profiles that were charged for this request before are not charged again, but
    their decisions count. Either all the others are charged, or none.
    """
    if not demands or not conf.enabled:
        _without_limit(request)
        return None
    return drive(_check(request, demands), answer)


async def acheck(request: HttpRequest, demands: Sequence[Demand]) -> Decision | None:
    """As `check`, without blocking the event loop."""
    if not demands or not conf.enabled:
        _without_limit(request)
        return None
    return await adrive(_check(request, demands), aanswer)


def refund(request: HttpRequest, demand: Demand) -> None:
    """Gives back what a demand's profiles were charged for this request."""
    drive(refunds.refund(request, demand), answer)


async def arefund(request: HttpRequest, demand: Demand) -> None:
    """As `refund`, without blocking the event loop."""
    await adrive(refunds.refund(request, demand), aanswer)


def decisions(request: HttpRequest) -> tuple[Decision, ...]:
    """All the decisions of this request so far, for the headers."""
    account = find_account(request)
    return () if account is None else tuple(account.decisions)


def settled(request: HttpRequest, demands: Sequence[Demand]) -> bool:
    """Whether a check has nothing left to ask, so that it cannot block."""
    if not demands or not conf.enabled:
        return True
    account = find_account(request)
    if account is None or account.exempt is None:
        return False
    if account.exempt:
        return True
    for demand in demands:
        names = account.profiles(demand) if demand.covers(request) else ()
        if names is None or not all(name in account.decided for name in names):
            return False
    return True


def _without_limit(request: HttpRequest) -> None:
    if not hasattr(request, "rate_limit"):
        request.rate_limit = None  # type: ignore[attr-defined]


def _check(request: HttpRequest, demands: Sequence[Demand]) -> Flow:
    account = account_of(request)
    if account.exempt is None:
        exempt = exemptions()
        account.exempt = exempt is not None and (yield from exempt.covers(request))
    if account.exempt:
        return None
    decided = account.decided
    names: list[str] = []
    costs: dict[str, int] = {}
    claims: list[Claim] = []
    try:
        for demand in demands:
            if not demand.covers(request):
                continue
            profiles = account.profiles(demand)
            if profiles is None:
                profiles = yield from _choose(account, demand, request)
            names += profiles
            new = [name for name in profiles if name not in decided]
            if new:
                cost = demand.cost
                if not isinstance(cost, int):
                    cost = yield from _cost(cost, request)
                for name in new:
                    costs[name] = max(cost, costs.get(name, 0))
        for name, cost in costs.items():
            claim = yield from _claim(registry.get(name), cost, request)
            if claim is None:
                decided[name] = None
            else:
                claims.append(claim)
    except _UnknownError as unknown:
        return _decide(request, account, costs, _denied(unknown.profile))
    if claims:
        limiter = get_limiter()
        decision = yield Ask(limiter.check, limiter.acheck, (claims,))
        _decide(request, account, [claim.profile.name for claim in claims], decision)
    found = [decision for name in names if (decision := decided[name]) is not None]
    return strictest(found) if found else None


class _UnknownError(Exception):
    """Whom to count, or how much, could not be told; the request is denied."""

    def __init__(self, profile: str) -> None:
        self.profile = profile


def _choose(
    account: Account, demand: Demand, request: HttpRequest
) -> Generator[Ask, Any, tuple[str, ...]]:
    """The profiles that a demand's function answers."""
    choice = cast(Choice, demand.profiles)
    names: tuple[str, ...] = ()
    try:
        found = yield ask(choice, request)
        if found is not None:
            names = (found,) if isinstance(found, str) else tuple(found)
    except Exception:
        logger.exception("the choice of a rate-limit profile failed: %r", choice)
        if conf.identity_error != "allow":
            raise _UnknownError("") from None
    account.choose(choice, names)
    return names


def _cost(function: Callable[[HttpRequest], int], request: HttpRequest) -> Generator[Ask, Any, int]:
    try:
        return parse_cost((yield ask(function, request)))
    except Exception:
        logger.exception("a rate-limit cost failed, and counts as 1: %r", function)
        return 1


def _claim(profile: Profile, cost: int, request: HttpRequest) -> Generator[Ask, Any, Claim | None]:
    """What the request asks of a profile; None if the profile does not count it."""
    found = resolvers(profile.axis, profile.anonymous)
    try:
        resolve, asks = found[0]
        if asks or len(found) > 1:
            identifier = yield from identify(found, request)
        else:
            identifier = resolve(request)
        if identifier is None:
            return None
        policies: tuple[Policy, ...] = profile.policies
        if profile.limit_for is not None:
            policies = yield ask(profile.policies_for, identifier, request)
    except Exception:
        logger.exception("whom the rate-limit profile %r counts is unknown", profile.name)
        if conf.identity_error == "allow" or profile.observed:
            return None
        raise _UnknownError(profile.name) from None
    return Claim(profile, identifier, policies, cost)


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


def _decide(
    request: HttpRequest, account: Account, names: Iterable[str], decision: Decision
) -> Decision:
    """Remembers a decision, and tells of a refusal."""
    account.add(names, decision)
    show(request, account)
    if not decision.allowed or decision.reason == reasons.OBSERVED:
        signals.tell(signals.request_limited, type(request), request=request, decision=decision)
    return decision
