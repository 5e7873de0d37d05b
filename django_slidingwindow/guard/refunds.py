"""Gives back what one requirement was charged, and leaves what others were charged with it."""

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
    """Yield decisions to refund: what the requirement's profiles were charged for this request."""
    state = state_of(request)
    if state is None:
        return
    names = state.profiles(request, requirement)
    given: dict[str, int] = {}
    for position, checked in enumerate(state):
        decision = checked.decision
        if decision is None:
            continue
        mine = {verdict.profile for verdict in decision.verdicts}.intersection(names)
        receipt = decision.receipt
        if not mine or receipt is None or not receipt.use():
            continue
        # A window that another profile counts in as well stays charged, and so does a slot: the
        # request is still in flight.
        kept = {
            verdict.key
            for verdict in decision.verdicts
            if verdict.profile not in mine or verdict.policy.inflight
        }
        taken = receipt.part({verdict.key for verdict in decision.verdicts} - kept)
        yield decision.replace(receipt=taken)
        for charges, _ in taken.parts:
            for charge in charges:
                given[charge.key] = given.get(charge.key, 0) + charge.cost
        after = _without(decision, given).replace(receipt=receipt.part(kept))
        state[position] = checked._replace(decision=after)
        state.show(request)


def _without(decision: Decision, costs: dict[str, int]) -> Decision:
    """Return the decision as it is after hits were given back; `costs` has their number by key."""
    verdicts = []
    for verdict in decision.verdicts:
        left = min(verdict.limit, verdict.remaining + costs.get(verdict.key, 0))
        # The hit given back was the newest: the oldest one is another, if there is any.
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
