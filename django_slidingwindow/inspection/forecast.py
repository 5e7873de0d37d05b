"""Predict what a check would decide about a made-up request.

The resolver is the one of real requests. The store is only read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from ..conf import conf
from ..core.ranking import strictest
from ..core.windows import WindowSet
from ..guard.binding import Binding, BoundProfile
from ..guard.current_limiter import get_limiter
from ..guard.identity import canonical, find_all, resolver
from ..guard.requirements import Requirements, joined
from ..guard.resolve import resolve
from ..guard.state import STATE, Check, RequestState, state_of

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..core.limiter import Limiter
    from ..decisions import Decision


class Forecast:
    """Check one request at one place after another, without charging it."""

    def __init__(self, request: HttpRequest, given: Mapping[str, str]) -> None:
        """`given`: identifiers by axis. They take precedence over those of the request."""
        self._request = request
        self._given = {axis: canonical(axis, value) for axis, value in given.items()}
        # The hits that earlier places would have charged, by key.
        self._charged: dict[str, int] = {}

    def check(self, requirements: Requirements) -> Check | None:
        """Return the check that `guard.check.check` would make; None if nothing is left to check.

        The check is added to the state of the request, as a real one would be.
        """
        state = state_of(self._request)
        left = requirements if state is None else joined(state.unmet(requirements))
        if not left or not conf.enabled:
            return None
        limiter = get_limiter()
        binding = _GivenBinding(left, limiter, self._given)
        check = Check(left, *resolve(self._request, binding, state))
        if check.windows is not None:
            check = check._replace(decision=self._peek(limiter, check.windows))
        if state is None:
            setattr(self._request, STATE, RequestState((check,)))
        else:
            state.append(check)
        return check

    def decision(self, requirements: Requirements) -> Decision | None:
        """Return the strictest decision about requirements that `check` has checked."""
        state = state_of(self._request)
        return None if state is None else state.decision(self._request, requirements)

    @property
    def strictest(self) -> Decision | None:
        """The strictest of all decisions, as a view would see it."""
        state = state_of(self._request)
        decisions = () if state is None else state.decisions
        return strictest(decisions) if decisions else None

    def _peek(self, limiter: Limiter, windows: WindowSet) -> Decision:
        template, keys = windows
        costs = {key: rule.cost for key, rule in zip(keys, template.rules, strict=True)}
        before = {key: self._charged[key] for key in keys if key in self._charged}
        if before:
            # The store does not have the hits of earlier places: ask for room for them as well.
            total = [costs[key] + before.get(key, 0) for key in keys]
            windows = WindowSet(template.with_costs(total), keys)
        decision = limiter.peek(windows)
        if before:
            decision = _with_charges(decision, before)
        if decision.allowed:
            for key in {verdict.key for verdict in decision.verdicts if verdict.allowed}:
                self._charged[key] = self._charged.get(key, 0) + costs[key]
        return decision


def _with_charges(decision: Decision, before: Mapping[str, int]) -> Decision:
    """Subtract the hits of earlier places from the windows that the decision does not charge."""
    return decision.replace(
        verdicts=tuple(
            verdict
            if decision.allowed and verdict.allowed
            else verdict._replace(remaining=max(0, verdict.remaining - before.get(verdict.key, 0)))
            for verdict in decision.verdicts
        )
    )


class _GivenBinding(Binding):
    """A binding that uses the given identifiers in place of those of the request."""

    def __init__(
        self, requirements: Requirements, limiter: Limiter, given: Mapping[str, str]
    ) -> None:
        super().__init__(requirements, limiter)
        self._given = given

    def profile(self, name: str, cost: int) -> BoundProfile:
        bound = super().profile(name, cost)
        parts = bound.profile.axis.split("+")
        if self._given.keys().isdisjoint(parts):
            return bound
        finds = [
            partial(_value, self._given[part])
            if part in self._given
            else resolver(part, bound.profile.anonymous).find
            for part in parts
        ]
        return bound._replace(find=finds[0] if len(finds) == 1 else partial(find_all, finds))


def _value(value: str, request: HttpRequest) -> str:
    return value
