"""What a check would decide about a made-up request: the real resolver, and a look at the store."""

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


class Foresight:
    """Checks one request at one place after the other, and charges nothing."""

    def __init__(self, request: HttpRequest, given: Mapping[str, str]) -> None:
        """`given`: identifiers by axis, for those that a made-up request does not have."""
        self._request = request
        self._given = {axis: canonical(axis, value) for axis, value in given.items()}
        # What earlier places would have charged, by key.
        self._charged: dict[str, int] = {}

    def check(self, requirements: Requirements) -> Check | None:
        """Return what `guard.check.check` would find; None if nothing is left to check."""
        state = state_of(self._request)
        left = requirements if state is None else joined(state.unmet(requirements))
        if not left or not conf.enabled:
            return None
        limiter = get_limiter()
        binding = _GivenBinding(left, limiter, self._given)
        checked = Check(left, *resolve(self._request, binding, state))
        if checked.windows is not None:
            checked = checked._replace(decision=self._peek(limiter, checked.windows))
        if state is None:
            setattr(self._request, STATE, RequestState((checked,)))
        else:
            state.append(checked)
        return checked

    def decision(self, requirements: Requirements) -> Decision | None:
        """Return the strictest decision about requirements that were checked."""
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
            # What the request was charged at an earlier place is not in the store.
            whole = [costs[key] + before.get(key, 0) for key in keys]
            windows = WindowSet(template.with_costs(whole), keys)
        decision = limiter.peek(windows)
        if before:
            decision = _with_charges(decision, before)
        if decision.allowed:
            for key in {verdict.key for verdict in decision.verdicts if verdict.allowed}:
                self._charged[key] = self._charged.get(key, 0) + costs[key]
        return decision


def _with_charges(decision: Decision, before: Mapping[str, int]) -> Decision:
    """Return a decision with earlier charges taken from the windows that it does not charge."""
    return decision.replace(
        verdicts=tuple(
            verdict
            if decision.allowed and verdict.allowed
            else verdict._replace(remaining=max(0, verdict.remaining - before.get(verdict.key, 0)))
            for verdict in decision.verdicts
        )
    )


class _GivenBinding(Binding):
    """A binding in which some identifiers are given."""

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
