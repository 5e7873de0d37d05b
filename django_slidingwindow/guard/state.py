"""What was decided about one request so far, kept on the request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..core.ranking import strictest
from ..decisions import Decision
from .requirements import Requirement, Requirements

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..core.windows import WindowSet

STATE = "_rate_limit_state"
"""The request's attribute that holds it."""

Counted: TypeAlias = "tuple[str, int]"
"""The identifier that a profile counts, and how many hits were asked for."""


class Resolved(NamedTuple):
    """What requirements ask of one request."""

    windows: WindowSet | None
    """What is to be charged; None for nothing."""
    counted: Mapping[str, Counted | None]
    """By profile; None for one that does not count this request."""
    chosen: Mapping[int, tuple[str, ...]]
    """The profiles that functions chose, by the requirement's id."""
    decision: Decision | None = None
    """What is decided without the store."""
    exempt: bool = False


class Check(NamedTuple):
    """One check of a request: `Resolved`, and what came of it."""

    requirements: Requirements
    windows: WindowSet | None
    counted: Mapping[str, Counted | None]
    chosen: Mapping[int, tuple[str, ...]]
    decision: Decision | None
    """None if nothing counts the request."""
    exempt: bool = False


# They make these tuples without a call of a Python constructor (`python -m benchmarks views`).
new_resolved: Callable[[type[Resolved], tuple[Any, ...]], Resolved] = tuple.__new__
new_check: Callable[[type[Check], tuple[Any, ...]], Check] = tuple.__new__


class RequestState(list[Check]):
    """The checks of one request. All that is asked of it is read from them."""

    __slots__ = ()

    def unmet(self, requirements: Requirements) -> list[Requirement]:
        """Return the requirements that are left to check."""
        if self[0].exempt:
            return []
        ids = requirements.ids
        for check in self:
            ids = ids - check.requirements.ids
        return [each for each in requirements if id(each) in ids] if ids else []

    def missing(self, profile: str, identifier: str, cost: int) -> int | None:
        """Return the hits to ask for if a profile is named again; None if there are none.

        A request costs a profile what the dearest place that names it says: the difference to
        what was asked before is asked now. If the identifier has changed meanwhile, the new one
        is asked for all of it, and the old one stays charged.
        """
        asked: dict[str, int] = {}
        for check in self:
            before = check.counted.get(profile)
            if before is not None:
                asked[before[0]] = asked.get(before[0], 0) + before[1]
        most = max(cost, *asked.values()) if asked else cost
        if identifier not in asked:
            return most
        return most - asked[identifier] or None

    def profiles(self, request: HttpRequest, requirement: Requirement) -> tuple[str, ...]:
        """Return the profiles of a requirement; none if it was not checked."""
        for check in self:
            if id(requirement) in check.requirements.ids and requirement.covers(request):
                names = requirement.profiles
                if isinstance(names, tuple):
                    return names
                # Nothing was chosen if an earlier choice failed, which denied the request.
                return check.chosen.get(id(requirement), ("",))
        return ()

    def decision(
        self, request: HttpRequest, requirements: Iterable[Requirement]
    ) -> Decision | None:
        """Return the strictest decision about the profiles of requirements."""
        names = {name for each in requirements for name in self.profiles(request, each)}
        found = [
            check.decision
            for check in self
            if check.decision is not None
            and any(check.counted.get(name) is not None for name in names)
        ]
        return strictest(found) if found else None

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """All decisions, in the order in which they were made."""
        return tuple([check.decision for check in self if check.decision is not None])

    def show(self, request: HttpRequest) -> None:
        """Let the view see the strictest decision, at `request.rate_limit`."""
        decisions = self.decisions
        request.rate_limit = strictest(decisions) if decisions else None  # type: ignore[attr-defined]


def state_of(request: HttpRequest) -> RequestState | None:
    """Return the state of a request; None if it was never checked."""
    found: RequestState | None = getattr(request, STATE, None)
    return found
