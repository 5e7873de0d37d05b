"""From a request and what is demanded of it to one decision, in one call of the limiter.

Decorators, the middleware and the adapters of other frameworks all come here. What
they demand is remembered on the request, so a profile is charged once, whoever asks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from . import decisions as reasons
from . import signals
from .answers import strictest
from .callables import Ask, aanswer, answer, ask
from .claims import Claim
from .conf import conf
from .decisions import Decision, Receipt
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

_STATE = "_rate_limit_state"
_UNKNOWN = ("",)


class _State:
    """What is known of one request."""

    __slots__ = ("chosen", "decided", "decisions", "exempt")

    def __init__(self) -> None:
        self.exempt: bool | None = None
        self.decided: dict[str, Decision | None] = {}
        """By profile; None for one that does not count this request."""
        self.decisions: list[Decision] = []
        self.chosen: dict[int, tuple[Choice, tuple[str, ...]]] = {}
        """What a choice answered, by its id; the choice is kept, so that the id stays its own."""


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
    drive(_refund(request, demand), answer)


async def arefund(request: HttpRequest, demand: Demand) -> None:
    """As `refund`, without blocking the event loop."""
    await adrive(_refund(request, demand), aanswer)


def decisions(request: HttpRequest) -> tuple[Decision, ...]:
    """All the decisions of this request so far, for the headers."""
    state: _State | None = getattr(request, _STATE, None)
    return () if state is None else tuple(state.decisions)


def settled(request: HttpRequest, demands: Sequence[Demand]) -> bool:
    """Whether a check has nothing left to ask, so that it cannot block."""
    if not demands or not conf.enabled:
        return True
    state: _State | None = getattr(request, _STATE, None)
    if state is None or state.exempt is None:
        return False
    for demand in demands:
        names = demand.profiles
        if not isinstance(names, tuple):
            _, names = state.chosen.get(id(names), (None, _UNKNOWN))
        if demand.covers(request) and not all(name in state.decided for name in names):
            return state.exempt
    return True


def _without_limit(request: HttpRequest) -> None:
    if not hasattr(request, "rate_limit"):
        request.rate_limit = None  # type: ignore[attr-defined]


def _state(request: HttpRequest) -> _State:
    state: _State | None = getattr(request, _STATE, None)
    if state is None:
        state = _State()
        setattr(request, _STATE, state)
        request.rate_limit = None  # type: ignore[attr-defined]
    return state


def _check(request: HttpRequest, demands: Sequence[Demand]) -> Flow:
    state = _state(request)
    if state.exempt is None:
        exempt = exemptions()
        state.exempt = exempt is not None and (yield from exempt.covers(request))
    if state.exempt:
        return None
    names: dict[str, None] = {}
    costs: dict[str, int] = {}
    claims: list[Claim] = []
    try:
        for demand in demands:
            if not demand.covers(request):
                continue
            chosen = yield from _chosen(state, demand, request)
            names.update(dict.fromkeys(chosen))
            new = [name for name in chosen if name not in state.decided]
            if new:
                cost = demand.cost
                if not isinstance(cost, int):
                    cost = yield from _cost(cost, request)
                for name in new:
                    costs[name] = max(cost, costs.get(name, 0))
        for name, cost in costs.items():
            claim = yield from _claim(registry.get(name), cost, request)
            if claim is None:
                state.decided[name] = None
            else:
                claims.append(claim)
    except _UnknownError as unknown:
        return _decide(request, state, costs, _denied(unknown.profile))
    if claims:
        limiter = get_limiter()
        decision = yield Ask(limiter.check, limiter.acheck, (claims,))
        _decide(request, state, [claim.profile.name for claim in claims], decision)
    found = [decision for name in names if (decision := state.decided[name]) is not None]
    return _strictest(found) if found else None


class _UnknownError(Exception):
    """Whom to count, or how much, could not be told; the request is denied."""

    def __init__(self, profile: str) -> None:
        self.profile = profile


def _chosen(
    state: _State, demand: Demand, request: HttpRequest
) -> Generator[Ask, Any, tuple[str, ...]]:
    """The profiles of a demand; a choice is made once a request."""
    profiles = demand.profiles
    if isinstance(profiles, tuple):
        return profiles
    if id(profiles) in state.chosen:
        return state.chosen[id(profiles)][1]
    names: tuple[str, ...] = ()
    try:
        found = yield ask(profiles, request)
        if found is not None:
            names = (found,) if isinstance(found, str) else tuple(found)
    except Exception:
        logger.exception("the choice of a rate-limit profile failed: %r", profiles)
        if conf.identity_error != "allow":
            raise _UnknownError("") from None
    state.chosen[id(profiles)] = profiles, names
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
        identifier = yield from identify(found, request)
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
    request: HttpRequest, state: _State, names: Iterable[str], decision: Decision
) -> Decision:
    """Remembers a decision, and tells of a refusal."""
    state.decided.update(dict.fromkeys(names, decision))
    state.decisions.append(decision)
    request.rate_limit = _strictest(state.decisions)  # type: ignore[attr-defined]
    if not decision.allowed or decision.reason == reasons.OBSERVED:
        signals.tell(signals.request_limited, type(request), request=request, decision=decision)
    return decision


def _strictest(decisions: Sequence[Decision]) -> Decision:
    """Of refusals the longest, of admissions the one with the least left."""
    if len(decisions) == 1:
        return decisions[0]
    refused = [decision for decision in decisions if not decision.allowed]
    if refused:
        return max(refused, key=lambda d: float("inf") if d.retry_after is None else d.retry_after)
    return min(decisions, key=lambda d: d.remaining / d.limit if d.limit else 0.0)


def _refund(request: HttpRequest, demand: Demand) -> Generator[Ask, Any, None]:
    state = _state(request)
    if not demand.covers(request):
        return
    names = yield from _chosen(state, demand, request)
    for position, decision in enumerate(state.decisions):
        mine = {name for name in names if state.decided.get(name) is decision}
        receipt = decision.receipt
        if not mine or receipt is None or not receipt.use():
            continue
        # A window that another profile counts in as well stays charged.
        kept = {verdict.key for verdict in decision.verdicts if verdict.profile not in mine}
        taken = _part(receipt, {verdict.key for verdict in decision.verdicts} - kept)
        limiter = get_limiter()
        yield Ask(limiter.refund, limiter.arefund, (replace(decision, receipt=taken),))
        after = replace(_without(decision, taken), receipt=_part(receipt, kept))
        state.decisions[position] = after
        state.decided |= {name: after for name, d in state.decided.items() if d is decision}
        request.rate_limit = _strictest(state.decisions)  # type: ignore[attr-defined]


def _part(receipt: Receipt, keys: set[str]) -> Receipt:
    parts = (
        (tuple(charge for charge in charges if charge.key in keys), stamp)
        for charges, stamp in receipt.parts
    )
    return Receipt(tuple(part for part in parts if part[0]), local=receipt.local)


def _without(decision: Decision, taken: Receipt) -> Decision:
    """The decision as the headers have to tell it once the charges are given back."""
    costs = {charge.key: charge.cost for charges, _ in taken.parts for charge in charges}
    verdicts = []
    for verdict in decision.verdicts:
        left = min(verdict.limit, verdict.remaining + costs.get(verdict.key, 0))
        # The hit given back was the newest: the oldest one is another, if there is any.
        reset = 0.0 if left == verdict.limit else verdict.reset_after
        verdicts.append(replace(verdict, remaining=left, reset_after=reset))
    deciding = strictest(verdicts, decision.allowed)
    return replace(
        decision,
        profile=deciding.profile,
        policy=deciding.policy,
        limit=deciding.limit,
        remaining=deciding.remaining,
        reset_after=deciding.reset_after,
        verdicts=tuple(verdicts),
    )
