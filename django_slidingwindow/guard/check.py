"""From a request and what is demanded of it to one decision, in one call of the limiter.

Decorators, the middleware and the adapters of other frameworks all come here. What
they demand is remembered on the request. `Account.missing` says what a request is charged
where several of them name one profile.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from .. import limits
from ..conf import conf
from ..decisions import Decision
from ..stores.flows import adrive, drive
from .requirements import Demand, Usage, demands_of, is_exempt, methods_from, usages
from .resolve import at_once, claims_of, decided_before
from .state import Account, account_of, decide, find_account, open_account, strictest
from .user_code import Ask, aanswer, answer

if TYPE_CHECKING:
    from django.http import HttpRequest

__all__ = [
    "Demand",
    "Usage",
    "acheck",
    "arefund",
    "check",
    "decisions",
    "demands_of",
    "find_account",
    "is_exempt",
    "methods_from",
    "refund",
    "settled",
    "usages",
]


def check(request: HttpRequest, demands: Sequence[Demand]) -> Decision | None:
    """The strictest decision over the demands; None if nothing counts this request.

    What this request was charged before is not charged again, but those decisions count.
    Either all the rest is charged, or nothing.
    """
    if not demands or not conf.enabled:
        _without_limit(request)
        return None
    limiter = limits.current or limits.get_limiter()
    found = at_once(request, demands, limiter, may_block=True)
    if found is not None:
        told, form, keys = found
        decision = limiter.charge(form, keys)
        return open_account(request, demands, told, form.alone, decision)
    before = decided_before(request, demands)
    if before is not None:
        return before
    account = account_of(request)
    claims = drive(claims_of(request, account, demands), answer)
    if claims:
        decision = limiter.check(claims)
        decide(request, account, claims, decision)
        if len(account.decisions) == 1:
            return decision
    return _strictest(account, demands)


async def acheck(request: HttpRequest, demands: Sequence[Demand]) -> Decision | None:
    """As `check`, without blocking the event loop."""
    if not demands or not conf.enabled:
        _without_limit(request)
        return None
    limiter = limits.current or limits.get_limiter()
    found = at_once(request, demands, limiter, may_block=False)
    if found is not None:
        told, form, keys = found
        decision = await limiter.acharge(form, keys)
        return open_account(request, demands, told, form.alone, decision)
    before = decided_before(request, demands)
    if before is not None:
        return before
    account = account_of(request)
    claims = await adrive(claims_of(request, account, demands), aanswer)
    if claims:
        decision = await limiter.acheck(claims)
        decide(request, account, claims, decision)
        if len(account.decisions) == 1:
            return decision
    return _strictest(account, demands)


def refund(request: HttpRequest, demand: Demand) -> None:
    """Gives back what a demand's profiles were charged for this request."""
    drive(_refund(request, demand), answer)


async def arefund(request: HttpRequest, demand: Demand) -> None:
    """As `refund`, without blocking the event loop."""
    await adrive(_refund(request, demand), aanswer)


def _refund(request: HttpRequest, demand: Demand) -> Generator[Ask, Any, None]:
    # Few views give anything back, so a start need not load it.
    from .refunds import refund

    return refund(request, demand)


def decisions(request: HttpRequest) -> tuple[Decision, ...]:
    """All the decisions of this request so far, for the headers."""
    account = find_account(request)
    return () if account is None else account.decisions


def settled(request: HttpRequest, demands: Sequence[Demand]) -> bool:
    """Whether a check has nothing left to ask, so that it cannot block."""
    if not demands or not conf.enabled:
        return True
    account = find_account(request)
    if account is None or account.exempt is None:
        return False
    if account.exempt:
        return True
    return all(id(demand) in account.met or not demand.covers(request) for demand in demands)


def _without_limit(request: HttpRequest) -> None:
    if not hasattr(request, "rate_limit"):
        request.rate_limit = None  # type: ignore[attr-defined]


def _strictest(account: Account, demands: Sequence[Demand]) -> Decision | None:
    """Of all the decisions that the demands have met."""
    # Several profiles share a decision.
    found: dict[int, Decision] = {}
    for demand in demands:
        for name in account.profiles(demand):
            known = account.decided.get(name)
            if known is not None:
                found[id(known)] = known
    return strictest([*found.values()]) if found else None
