"""Explanations and real verdicts in a form that can be compared, and a view to explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.utils.decorators import method_decorator
from django.views import View

from django_slidingwindow.decorators import RateLimitMixin, rate_limit
from django_slidingwindow.guard.state import state_of

if TYPE_CHECKING:
    from django_slidingwindow.inspection.explanation import Explanation


def explained(found: Explanation) -> Any:
    """Return the expected verdicts in the order of the checks, to compare with `real`."""
    return [
        (state.profile, window.key, window.limit, window.allowed, window.remaining)
        for state in found.profiles
        for window in state.windows
    ]


def real(request: Any) -> Any:
    """Return the verdicts about a request that was handled, in the order of the checks."""
    state = state_of(request)
    return [
        (verdict.profile, verdict.key, verdict.limit, verdict.allowed, verdict.remaining)
        for decision in (() if state is None else state.decisions)
        for verdict in decision.verdicts
    ]


@method_decorator(login_required, name="dispatch")
class Inside(RateLimitMixin, View):
    """A view that charges profiles inside of another decorator, and in one of its methods."""

    rate_limit_profiles = ("users",)

    def get(self, request: Any) -> HttpResponse:
        return HttpResponse("seen")

    @method_decorator(rate_limit("wide", cost=2))
    def post(self, request: Any) -> HttpResponse:
        return HttpResponse("seen")
