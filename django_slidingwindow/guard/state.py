"""The checks of one request so far, kept in an attribute of the request."""

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
"""The attribute of the request that has its `RequestState`."""

Counted: TypeAlias = "tuple[str, int]"
"""The identifier that a profile counts, and the number of hits."""


class Resolved(NamedTuple):
    """The requirements of one request, resolved to windows."""

    windows: WindowSet | None
    """The windows to charge; None if there are none."""
    counted: Mapping[str, Counted | None]
    """Identifier and hits by profile; None for a profile that does not count this request."""
    chosen: Mapping[int, tuple[str, ...]]
    """The profiles that functions chose, by the requirement's id."""
    decision: Decision | None = None
    """A decision that was made without the store."""
    exempt: bool = False
    """Whether the setting EXEMPT exempts the request."""


class Check(NamedTuple):
    """One check of a request: the fields of `Resolved`, the requirements, and the decision."""

    requirements: Requirements
    windows: WindowSet | None
    counted: Mapping[str, Counted | None]
    chosen: Mapping[int, tuple[str, ...]]
    decision: Decision | None
    """None if nothing counts the request."""
    exempt: bool = False


# Create these tuples without a call of a Python constructor (`python -m benchmarks views`).
new_resolved: Callable[[type[Resolved], tuple[Any, ...]], Resolved] = tuple.__new__
new_check: Callable[[type[Check], tuple[Any, ...]], Check] = tuple.__new__


class RequestState(list[Check]):
    """The checks of one request."""

    before_refunds: tuple[tuple[Decision, ...], ...] = ()
    """The decisions as they were before each refund."""

    def unmet(self, requirements: Requirements) -> list[Requirement]:
        """Return the requirements that were not checked yet."""
        if self[-1].exempt:
            return []
        ids = requirements.ids
        for check in self:
            ids = ids - check.requirements.ids
        return [each for each in requirements if id(each) in ids] if ids else []

    def missing(self, profile: str, identifier: str, cost: int) -> int | None:
        """Return the hits that a profile has not been asked for yet; None if there are none.

        Several places may name one profile. The highest of their costs counts, so a later check
        asks only for the difference to the earlier ones. If the identifier has changed since, the
        new one is charged in full, and the old one stays charged.
        """
        asked: dict[str, int] = {}
        for check in self:
            counted = check.counted.get(profile)
            if counted is not None:
                before, hits = counted
                asked[before] = asked.get(before, 0) + hits
        highest = max(cost, *asked.values()) if asked else cost
        if identifier not in asked:
            return highest
        return highest - asked[identifier] or None

    def profiles(self, request: HttpRequest, requirement: Requirement) -> tuple[str, ...]:
        """Return the profiles of a requirement; none if it was not checked, or does not count."""
        for check in self:
            if id(requirement) in check.requirements.ids and requirement.covers(request):
                names = requirement.profiles
                if isinstance(names, tuple):
                    return names
                # The choice is missing if the choice of an earlier requirement has failed. The
                # request was denied then, in a profile without a name.
                return check.chosen.get(id(requirement), ("",))
        return ()

    def decision(
        self, request: HttpRequest, requirements: Iterable[Requirement]
    ) -> Decision | None:
        """Return the strictest decision about the profiles of requirements; None without any."""
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
        """All decisions, the oldest first."""
        return tuple([check.decision for check in self if check.decision is not None])

    def show(self, request: HttpRequest) -> None:
        """Set `request.rate_limit`, which views read, to the strictest decision."""
        decisions = self.decisions
        request.rate_limit = strictest(decisions) if decisions else None  # type: ignore[attr-defined]


def state_of(request: HttpRequest) -> RequestState | None:
    """Return the state of a request; None if it was never checked."""
    found: RequestState | None = getattr(request, STATE, None)
    return found
