"""Check the requirements of a request in one call of the limiter, and return one decision.

Decorators, the middleware and the adapters of other frameworks all call this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import signals
from ..conf import conf
from ..decisions import OBSERVED, Decision
from ..profiles.user_code import in_thread
from ..stores.flows import adrive, drive
from . import current_limiter
from .binding import bind
from .requirements import Requirement, Requirements, joined
from .resolve import resolve
from .state import STATE, Check, RequestState, new_check, state_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from django.http import HttpRequest

    from ..core.limiter import Limiter


def check(request: HttpRequest, requirements: Requirements) -> Decision | None:
    """Charge a request for its requirements, and return the strictest decision about them.

    Return None if nothing counts this request. A requirement that was checked before is not charged
    again, but the decision about it counts. The others are charged together: all or none of them.
    """
    state: RequestState | None = getattr(request, STATE, None)
    unmet = requirements if state is None else joined(state.unmet(requirements))
    if not unmet or not conf.enabled:
        return _earlier_decision(request, requirements, state)
    limiter = current_limiter.current or current_limiter.get_limiter()
    binding = bind(unmet, limiter)
    windows, counted, chosen, decision, exempt = resolve(request, binding, state)
    if windows is not None:
        decision = limiter.charge(windows)
    checked = new_check(Check, (unmet, windows, counted, chosen, decision, exempt))
    if windows is not None and windows.template.inflight:
        return _record_and_hold(request, requirements, checked, limiter)
    return _record(request, requirements, checked)


async def acheck(request: HttpRequest, requirements: Requirements) -> Decision | None:
    """Do what `check` does, without blocking the event loop."""
    state: RequestState | None = getattr(request, STATE, None)
    unmet = requirements if state is None else joined(state.unmet(requirements))
    if not unmet or not conf.enabled:
        return _earlier_decision(request, requirements, state)
    limiter = current_limiter.current or await current_limiter.aget_limiter()
    binding = bind(unmet, limiter)
    if await binding.prepare(request):
        resolved = await in_thread(resolve, request, binding, state)
    else:
        resolved = resolve(request, binding, state)
    windows, counted, chosen, decision, exempt = resolved
    if windows is not None:
        decision = await limiter.acharge(windows)
    checked = new_check(Check, (unmet, windows, counted, chosen, decision, exempt))
    if windows is not None and windows.template.inflight:
        return _record_and_hold(request, requirements, checked, limiter)
    return _record(request, requirements, checked)


def _earlier_decision(
    request: HttpRequest, requirements: Requirements, state: RequestState | None
) -> Decision | None:
    """Return the strictest decision of earlier checks; None if no check has made one."""
    if state is None:
        if not hasattr(request, "rate_limit"):
            request.rate_limit = None  # type: ignore[attr-defined]
        return None
    return state.decision(request, requirements) if conf.enabled else None


def _record(request: HttpRequest, requirements: Requirements, checked: Check) -> Decision | None:
    """Add a check to the request's state, and return the strictest decision."""
    # Read again: another check of this request may have ended while this one waited.
    state: RequestState | None = getattr(request, STATE, None)
    decision = checked.decision
    if state is None:
        request._rate_limit_state = RequestState((checked,))  # type: ignore[attr-defined]
        request.rate_limit = decision  # type: ignore[attr-defined]
    else:
        state.append(checked)
        state.show(request)
    if decision is not None:
        allowed = decision.allowed
        if not allowed or decision.reason == OBSERVED:
            signals.report_refusal(request, decision)
        windows = checked.windows
        if allowed and windows is not None and windows.template.logged:
            signals.report_admission(request, windows, checked.counted)
    return decision if state is None else state.decision(request, requirements)


def _record_and_hold(
    request: HttpRequest, requirements: Requirements, checked: Check, limiter: Limiter
) -> Decision | None:
    """Do what `_record` does, and free the slots of this check when the request ends."""
    # Imported late: few views limit requests in flight.
    from .inflight import hold

    decision = _record(request, requirements, checked)
    hold(request, getattr(request, STATE), limiter)
    return decision


def refund(request: HttpRequest, requirement: Requirement) -> None:
    """Give back what this request was charged in the profiles of a requirement."""
    drive(_refund(request, requirement), current_limiter.get_limiter().refund)


async def arefund(request: HttpRequest, requirement: Requirement) -> None:
    """Do what `refund` does, without blocking the event loop."""
    limiter = await current_limiter.aget_limiter()
    await adrive(_refund(request, requirement), limiter.arefund)


def _refund(request: HttpRequest, requirement: Requirement) -> Generator[Decision, int, None]:
    # Imported late: few views give anything back.
    from .refunds import refund

    return refund(request, requirement)


def settled(request: HttpRequest, requirements: Requirements) -> bool:
    """Whether a check of these requirements would charge nothing, and so cannot block."""
    if not requirements or not conf.enabled:
        return True
    state = state_of(request)
    return state is not None and not state.unmet(requirements)
