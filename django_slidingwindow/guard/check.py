"""From a request and its requirements to one decision, in one call of the limiter.

Decorators, the middleware and the adapters of other frameworks all come here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import signals
from ..conf import conf
from ..decisions import OBSERVED, Decision
from ..stores.flows import adrive, drive
from . import current_limiter
from .binding import bind
from .requirements import Requirement, Requirements, joined
from .resolve import resolve
from .state import STATE, Check, RequestState, new_check, state_of
from .user_code import in_thread

if TYPE_CHECKING:
    from collections.abc import Generator

    from django.http import HttpRequest

    from ..core.limiter import Limiter


def check(request: HttpRequest, requirements: Requirements) -> Decision | None:
    """Return the strictest decision over the requirements; None if nothing counts this request.

    What this request was charged before is not charged again, but those decisions count.
    Either all the rest is charged, or nothing.
    """
    state: RequestState | None = getattr(request, STATE, None)
    left = requirements if state is None else joined(state.unmet(requirements))
    if not left or not conf.enabled:
        return _known(request, requirements, state)
    limiter = current_limiter.current or current_limiter.get_limiter()
    binding = bind(left, limiter)
    windows, counted, chosen, decision, exempt = resolve(request, binding, state)
    if windows is not None:
        decision = limiter.charge(windows)
    checked = new_check(Check, (left, windows, counted, chosen, decision, exempt))
    if windows is not None and windows.template.inflight:
        return _held(request, requirements, state, checked, limiter)
    return _decided(request, requirements, state, checked)


async def acheck(request: HttpRequest, requirements: Requirements) -> Decision | None:
    """Do what `check` does, without blocking the event loop."""
    state: RequestState | None = getattr(request, STATE, None)
    left = requirements if state is None else joined(state.unmet(requirements))
    if not left or not conf.enabled:
        return _known(request, requirements, state)
    limiter = current_limiter.current or current_limiter.get_limiter()
    binding = bind(left, limiter)
    if await binding.prepare(request):
        resolved = await in_thread(resolve, request, binding, state)
    else:
        resolved = resolve(request, binding, state)
    windows, counted, chosen, decision, exempt = resolved
    if windows is not None:
        decision = await limiter.acharge(windows)
    checked = new_check(Check, (left, windows, counted, chosen, decision, exempt))
    if windows is not None and windows.template.inflight:
        return _held(request, requirements, state, checked, limiter)
    return _decided(request, requirements, state, checked)


def _known(
    request: HttpRequest, requirements: Requirements, state: RequestState | None
) -> Decision | None:
    """Return what is decided already."""
    if state is None:
        if not hasattr(request, "rate_limit"):
            request.rate_limit = None  # type: ignore[attr-defined]
        return None
    return state.decision(request, requirements) if conf.enabled else None


def _decided(
    request: HttpRequest, requirements: Requirements, state: RequestState | None, checked: Check
) -> Decision | None:
    """Record a check, and return the strictest decision over all the requirements."""
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


def _held(
    request: HttpRequest,
    requirements: Requirements,
    state: RequestState | None,
    checked: Check,
    limiter: Limiter,
) -> Decision | None:
    """Do what `_decided` does, and free the slots that were taken when the request ends."""
    # Few views limit requests in flight, so a start need not load it.
    from .inflight import hold

    decision = _decided(request, requirements, state, checked)
    hold(request, getattr(request, STATE), limiter)
    return decision


def refund(request: HttpRequest, requirement: Requirement) -> None:
    """Give back what a requirement's profiles were charged for this request."""
    drive(_refund(request, requirement), current_limiter.get_limiter().refund)


async def arefund(request: HttpRequest, requirement: Requirement) -> None:
    """Do what `refund` does, without blocking the event loop."""
    await adrive(_refund(request, requirement), current_limiter.get_limiter().arefund)


def _refund(request: HttpRequest, requirement: Requirement) -> Generator[Decision, int, None]:
    # Few views give anything back, so a start need not load it.
    from .refunds import refund

    return refund(request, requirement)


def settled(request: HttpRequest, requirements: Requirements) -> bool:
    """Whether a check has nothing left to ask, so that it cannot block."""
    if not requirements or not conf.enabled:
        return True
    state = state_of(request)
    return state is not None and not state.unmet(requirements)
