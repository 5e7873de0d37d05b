"""Limits for code that is no view: a task before it calls an upstream with a quota."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .conf import conf
from .decisions import Decision
from .guard import current_limiter
from .guard.current_limiter import get_limiter
from .guard.identity import canonical, has_spellings
from .guard.user_code import in_thread
from .policies import Profile, parse_cost
from .registry import registry

if TYPE_CHECKING:
    from .core.limiter import Limiter
    from .core.windows import WindowSet

__all__ = [
    "aacquire",
    "acheck",
    "acquire",
    "apeek",
    "arefund",
    "areset",
    "check",
    "get_limiter",
    "peek",
    "refund",
    "reset",
]


def check(profile: str | Profile, identifier: str, cost: int = 1) -> Decision:
    """Charge `cost` hits to the identifier if the profile admits them."""
    limiter = current_limiter.current or get_limiter()
    return limiter.charge(_windows(limiter, profile, identifier, cost, conf.enabled))


async def acheck(profile: str | Profile, identifier: str, cost: int = 1) -> Decision:
    """Do what `check` does, without blocking the event loop."""
    limiter = current_limiter.current or get_limiter()
    return await limiter.acharge(await _awindows(limiter, profile, identifier, cost, conf.enabled))


def peek(profile: str | Profile, identifier: str, cost: int = 1) -> Decision:
    """Return what `check` would answer; charge nothing."""
    limiter = get_limiter()
    return limiter.peek(_windows(limiter, profile, identifier, cost, conf.enabled))


async def apeek(profile: str | Profile, identifier: str, cost: int = 1) -> Decision:
    """Do what `peek` does, without blocking the event loop."""
    limiter = get_limiter()
    return await limiter.apeek(await _awindows(limiter, profile, identifier, cost, conf.enabled))


def acquire(
    profile: str | Profile, identifier: str, cost: int = 1, timeout: float | None = None
) -> Decision:
    """Wait until admitted; refuse if that would take more than `timeout` seconds, or for ever."""
    limiter = get_limiter()
    return limiter.acquire(_windows(limiter, profile, identifier, cost, conf.enabled), timeout)


async def aacquire(
    profile: str | Profile, identifier: str, cost: int = 1, timeout: float | None = None
) -> Decision:
    """Do what `acquire` does, without blocking the event loop."""
    limiter = get_limiter()
    return await limiter.aacquire(
        await _awindows(limiter, profile, identifier, cost, conf.enabled), timeout
    )


def refund(decision: Decision) -> int:
    """Give back what the decision was charged, once; return the hits given back."""
    return get_limiter().refund(decision)


async def arefund(decision: Decision) -> int:
    """Do what `refund` does, without blocking the event loop."""
    return await get_limiter().arefund(decision)


def reset(profile: str | Profile, identifier: str) -> int:
    """Forget the identifier's windows in this profile; return how many there were."""
    limiter = get_limiter()
    return limiter.reset(_windows(limiter, profile, identifier, 1, True).keys)


async def areset(profile: str | Profile, identifier: str) -> int:
    """Do what `reset` does, without blocking the event loop."""
    limiter = get_limiter()
    windows = await _awindows(limiter, profile, identifier, 1, True)
    return await limiter.areset(windows.keys)


def _windows(
    limiter: Limiter,
    profile: str | Profile,
    identifier: str,
    cost: int,
    enabled: bool,
) -> WindowSet:
    """Return the windows of an identifier; none if limits are switched off."""
    if isinstance(profile, str):
        profile = registry.get(profile)
    if type(cost) is not int or cost < 0:
        cost = parse_cost(cost)
    if has_spellings(profile.axis):
        identifier = canonical(profile.axis, identifier)
    policies = profile.policies if profile.limit_for is None else profile.policies_for(identifier)
    template = limiter.template(profile, policies if enabled else (), cost)
    return template.windows(identifier)


async def _awindows(
    limiter: Limiter,
    profile: str | Profile,
    identifier: str,
    cost: int,
    enabled: bool,
) -> WindowSet:
    """Do what `_windows` does; in a thread if a project's function says the limit."""
    if isinstance(profile, str):
        profile = registry.get(profile)
    if profile.limit_for is None:
        return _windows(limiter, profile, identifier, cost, enabled)
    return await in_thread(_windows, limiter, profile, identifier, cost, enabled)
