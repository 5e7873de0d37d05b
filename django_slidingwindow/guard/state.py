"""What was decided about one request so far, kept on the request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from .. import signals
from ..core.ranking import strictest
from ..decisions import OBSERVED, Decision
from .requirements import Requirement, Requirements

if TYPE_CHECKING:
    from django.http import HttpRequest

STATE = "_rate_limit_state"
"""The request's attribute that holds it."""

Counted: TypeAlias = "tuple[str, int]"
"""Whom a profile counts, and how many hits were asked for."""


class Checked(NamedTuple):
    """One check of a request."""

    requirements: Requirements
    """Those that it looked at."""
    counted: Mapping[str, Counted | None]
    """By profile; None for one that does not count this request."""
    chosen: Mapping[int, tuple[str, ...]]
    """The profiles that functions chose, by the requirement's id."""
    decision: Decision | None
    """None if nothing counts the request."""
    single: bool
    """Whether one policy was looked at and no other, so that the decision says all about it."""


class RequestState:
    """The checks of one request. All that is asked of it is read from them."""

    __slots__ = ("checks", "exempt")

    def __init__(self, checked: Checked, exempt: bool) -> None:
        self.checks = [checked]
        self.exempt = exempt

    def has_met(self, requirements: Requirements) -> bool:
        """Whether nothing is left to check."""
        return self.exempt or not self.unmet(requirements)

    def unmet(self, requirements: Requirements) -> list[Requirement]:
        """Return the requirements that no check has looked at."""
        ids = requirements.ids
        for checked in self.checks:
            ids = ids - checked.requirements.ids
        return [each for each in requirements if id(each) in ids] if ids else []

    def missing(self, profile: str, identifier: str, cost: int) -> int | None:
        """Return the hits to ask for if a profile is named again; None if there are none.

        A request costs a profile what the dearest place that names it says: the difference to
        what was asked before is asked now. If the identifier has changed meanwhile, the new one
        is asked for all of it, and the old one stays charged.
        """
        asked: dict[str, int] = {}
        for checked in self.checks:
            before = checked.counted.get(profile)
            if before is not None:
                asked[before[0]] = asked.get(before[0], 0) + before[1]
        most = max(cost, *asked.values()) if asked else cost
        if identifier not in asked:
            return most
        return most - asked[identifier] or None

    def profiles(self, request: HttpRequest, requirement: Requirement) -> tuple[str, ...]:
        """Return the profiles of a requirement; none if it was not checked."""
        for checked in self.checks:
            if id(requirement) in checked.requirements.ids and requirement.covers(request):
                names = requirement.profiles
                return names if isinstance(names, tuple) else checked.chosen[id(requirement)]
        return ()

    def decision(
        self, request: HttpRequest, requirements: Iterable[Requirement]
    ) -> Decision | None:
        """Return the strictest decision about the profiles of requirements."""
        names = {name for each in requirements for name in self.profiles(request, each)}
        found = [
            checked.decision
            for checked in self.checks
            if checked.decision is not None
            and any(checked.counted.get(name) is not None for name in names)
        ]
        return strictest(found) if found else None

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """All decisions, in the order in which they were made."""
        return tuple([each.decision for each in self.checks if each.decision is not None])

    def show(self, request: HttpRequest) -> None:
        """Let the view see the strictest decision, at `request.rate_limit`."""
        decisions = self.decisions
        request.rate_limit = strictest(decisions) if decisions else None  # type: ignore[attr-defined]


def state_of(request: HttpRequest) -> RequestState | None:
    """Return the state of a request; None if it was never checked."""
    found: RequestState | None = getattr(request, STATE, None)
    return found


def record(
    request: HttpRequest, state: RequestState | None, checked: Checked, *, exempt: bool = False
) -> None:
    """Add a check to the request's state, and tell the log of a refusal."""
    decision = checked.decision
    if state is None:
        setattr(request, STATE, RequestState(checked, exempt))
        request.rate_limit = decision  # type: ignore[attr-defined]
    else:
        state.checks.append(checked)
        state.show(request)
    if decision is not None and (not decision.allowed or decision.reason == OBSERVED):
        signals.tell_refusal(request, decision)
