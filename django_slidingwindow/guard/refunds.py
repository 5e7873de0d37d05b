"""Give back the charge of one requirement, and keep what others were charged in the same call."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from ..core.ranking import strictest
from ..decisions import Decision
from .requirements import Requirement
from .state import state_of

if TYPE_CHECKING:
    from django.http import HttpRequest


def refund(request: HttpRequest, requirement: Requirement) -> Generator[Decision, int, None]:
    """Yield decisions to refund: the charges of this request in the requirement's profiles.

    The state of the request gets its decisions without these charges.
    """
    state = state_of(request)
    if state is None:
        return
    names = state.profiles(request, requirement)
    state.before_refunds += (state.decisions,)
    given_back: dict[str, int] = {}
    for position, checked in enumerate(state):
        decision = checked.decision
        if decision is None:
            continue
        profiles = {verdict.profile for verdict in decision.verdicts}.intersection(names)
        receipt = decision.receipt
        if not profiles or receipt is None or not receipt.use():
            continue
        # Not the windows that another profile counts in as well, and not the slots: the request is
        # still in flight.
        kept_keys = {
            verdict.key
            for verdict in decision.verdicts
            if verdict.profile not in profiles or verdict.policy.inflight
        }
        refunded = receipt.part({verdict.key for verdict in decision.verdicts} - kept_keys)
        for charges, _ in refunded.parts:
            for charge in charges:
                given_back[charge.key] = given_back.get(charge.key, 0) + charge.cost
        after = _without(decision, given_back).replace(receipt=receipt.part(kept_keys))
        # Before the refund, because an async request may be cancelled meanwhile: then the slots are
        # freed by this receipt.
        state[position] = checked._replace(decision=after)
        state.show(request)
        yield decision.replace(receipt=refunded)


def _without(decision: Decision, costs: dict[str, int]) -> Decision:
    """Return the decision as it is after a refund; `costs` has the refunded hits by key."""
    verdicts = []
    for verdict in decision.verdicts:
        left = min(verdict.limit, verdict.remaining + costs.get(verdict.key, 0))
        # The refunded hit was the newest, so the oldest stays, unless the window is empty now.
        reset = 0.0 if left == verdict.limit else verdict.reset_after
        verdicts.append(verdict._replace(remaining=left, reset_after=reset))
    deciding = strictest(verdicts)
    return decision.replace(
        profile=deciding.profile,
        policy=deciding.policy,
        limit=deciding.limit,
        remaining=deciding.remaining,
        reset_after=deciding.reset_after,
        verdicts=tuple(verdicts),
    )
