"""What is known of one request: what was decided about it so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from .. import signals
from ..core.claims import Claim
from ..decisions import ALLOW, DENY, OBSERVED, Decision
from ..policies import ENFORCE, Policy
from .requirements import Demand

if TYPE_CHECKING:
    from django.http import HttpRequest

ACCOUNT = "_rate_limit_account"
"""The request's attribute that holds it."""

Told: TypeAlias = "str | tuple[str | None, tuple[Policy, ...]] | Exception | None"
"""Whom a profile counts; the same and by which policies, if those were asked for; or why that is
unknown."""

# Sources that have looked at no policy.
_UNSEEN = (ALLOW, DENY)


class Account:
    """Kept on the request, so that whoever asks next finds what was charged."""

    exempt: bool | None = None
    """None until somebody has asked."""
    decisions: tuple[Decision, ...] = ()
    alone = False
    """Whether one policy was looked at and no other, so that the decision says all of it."""
    told: dict[str, Told] | None = None
    """What was found out of profiles before claims are made of it."""

    def __init__(self) -> None:
        self.met: dict[int, tuple[Demand, tuple[str, ...]]] = {}
        """The demands that were charged or refused, with their profiles, by the demand's id. The
        demand is kept, so that no other one gets its id."""
        self.asked: dict[str, dict[str, int]] = {}
        """By profile and identifier: the hits that this request has asked for."""
        self.decided: dict[str, Decision | None] = {}
        """By profile; None for one that does not count this request."""

    def profiles(self, demand: Demand) -> tuple[str, ...]:
        """Return the profiles of a demand; none where it was not met."""
        return self.met[id(demand)][1] if id(demand) in self.met else ()

    def missing(self, profile: str, identifier: str, cost: int) -> int | None:
        """Return the hits to ask for where a profile is named again; None if there are none.

        A request costs a profile what the dearest place that names it says: the difference to
        what was asked before is asked now. Where the identifier has changed meanwhile, the new
        one is asked for all of it, and the old one stays charged.
        """
        asked = self.asked[profile]
        most = max(cost, *asked.values())
        if identifier not in asked:
            return most
        return most - asked[identifier] or None

    def record(self, claim: Claim, decision: Decision) -> None:
        """Remember what a claim asked for, and the stricter of its profile's decisions."""
        name, identifier = claim.profile.name, claim.identifier
        asked = self.asked.setdefault(name, {})
        asked[identifier] = asked.get(identifier, 0) + claim.cost
        before = self.decided.get(name)
        self.decided[name] = decision if before is None else strictest((before, decision))

    def replace(self, old: Decision, new: Decision) -> None:
        """Remembers one decision in the place of another."""
        self.decided |= {name: new for name, found in self.decided.items() if found is old}
        self.decisions = tuple(new if found is old else found for found in self.decisions)


class First(NamedTuple):
    """In the place of an account until somebody wants more: most requests are checked once."""

    demands: Any
    """The `Demands` that were met."""
    told: dict[str, Told]
    """By profile: whom it counts."""
    decision: Decision
    alone: bool


def find_account(request: HttpRequest) -> Account | None:
    """The request's account, if it was ever checked."""
    found: Account | First | None = getattr(request, ACCOUNT, None)
    if not isinstance(found, First):
        return found
    account = Account()
    account.exempt = False
    for demand in found.demands:
        # All of it is fixed, or there would be an account.
        account.met[id(demand)] = demand, demand.profiles
        for name in demand.profiles:
            told: Any = found.told[name]
            identifier = told[0] if isinstance(told, tuple) else told
            asked = account.asked.setdefault(name, {identifier: 0})
            asked[identifier] = max(asked[identifier], demand.cost)
    account.decided = dict.fromkeys(found.told, found.decision)
    account.decisions = (found.decision,)
    account.alone = found.alone
    setattr(request, ACCOUNT, account)
    return account


def account_of(request: HttpRequest) -> Account:
    """The request's account."""
    account = find_account(request)
    if account is None:
        account = Account()
        setattr(request, ACCOUNT, account)
        request.rate_limit = None  # type: ignore[attr-defined]
    return account


def open_account(
    request: HttpRequest,
    demands: Sequence[Demand],
    told: dict[str, Told],
    alone: bool,
    decision: Decision,
) -> Decision:
    """What `account_of` and `decide` do, for the first decision of a request.

    `alone`: of one policy, which is enforced.
    """
    alone = alone and decision.source not in _UNSEEN
    setattr(request, ACCOUNT, First(demands, told, decision, alone))
    request.rate_limit = decision  # type: ignore[attr-defined]
    if not decision.allowed or decision.reason == OBSERVED:
        signals.tell_refusal(request, decision)
    return decision


def decide(
    request: HttpRequest, account: Account, claims: Sequence[Claim], decision: Decision
) -> None:
    """Remembers what was decided of the claims, and tells of a refusal."""
    for claim in claims:
        account.record(claim, decision)
    if account.decisions:
        account.decisions += (decision,)
        account.alone = False
        show(request, account)
    else:
        account.decisions = (decision,)
        if len(claims) == 1:
            profile, _, policies, _ = claims[0]
            account.alone = (
                len(policies) == 1 and profile.mode == ENFORCE and decision.source not in _UNSEEN
            )
        request.rate_limit = decision  # type: ignore[attr-defined]
    if not decision.allowed or decision.reason == OBSERVED:
        signals.tell_refusal(request, decision)


def show(request: HttpRequest, account: Account) -> None:
    """Lets the view see the strictest decision, at `request.rate_limit`."""
    request.rate_limit = strictest(account.decisions)  # type: ignore[attr-defined]


def strictest(decisions: Sequence[Decision]) -> Decision:
    """Of refusals the longest, of admissions the one with the least left."""
    if len(decisions) == 1:
        return decisions[0]
    refused = [decision for decision in decisions if not decision.allowed]
    if refused:
        return max(refused, key=lambda d: float("inf") if d.retry_after is None else d.retry_after)
    return min(decisions, key=lambda d: d.remaining / d.limit if d.limit else 0.0)
