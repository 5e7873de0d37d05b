"""Limits for code that is not a view: a task before it calls an upstream with a quota."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from . import signals
from .conf import conf
from .core.caching import BoundedCache
from .decisions import OBSERVED, Decision
from .guard import current_limiter, overriding
from .guard.current_limiter import get_limiter
from .guard.identity import spelling
from .guard.resolve import limits_for
from .guard.user_code import in_thread
from .policies import Profile, parse_cost
from .registry import registry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from .core.limiter import Limiter
    from .core.windows import WindowSet, WindowTemplate

__all__ = [
    "aacquire",
    "acheck",
    "acquire",
    "ahold",
    "apeek",
    "arefund",
    "areset",
    "check",
    "get_limiter",
    "hold",
    "peek",
    "refund",
    "reset",
    "retry_delay",
]

# Half of the time after which Celery's Redis transport delivers a waiting task a second time.
LONGEST_DELAY = 1_800.0


def check(profile: str | Profile, identifier: str, cost: int = 1) -> Decision:
    """Charge `cost` hits to the identifier if the profile admits them."""
    limiter = current_limiter.current or get_limiter()
    windows = _windows(limiter, profile, identifier, cost, conf.enabled)
    decision = limiter.charge(windows)
    return _logged(windows, identifier, cost, decision) if windows.template.logged else decision


async def acheck(profile: str | Profile, identifier: str, cost: int = 1) -> Decision:
    """Do what `check` does, without blocking the event loop."""
    limiter = current_limiter.current or get_limiter()
    windows = await _awindows(limiter, profile, identifier, cost, conf.enabled)
    decision = await limiter.acharge(windows)
    return _logged(windows, identifier, cost, decision) if windows.template.logged else decision


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
    windows = _windows(limiter, profile, identifier, cost, conf.enabled)
    decision = limiter.acquire(windows, timeout)
    return _logged(windows, identifier, cost, decision) if windows.template.logged else decision


async def aacquire(
    profile: str | Profile, identifier: str, cost: int = 1, timeout: float | None = None
) -> Decision:
    """Do what `acquire` does, without blocking the event loop."""
    limiter = get_limiter()
    windows = await _awindows(limiter, profile, identifier, cost, conf.enabled)
    decision = await limiter.aacquire(windows, timeout)
    return _logged(windows, identifier, cost, decision) if windows.template.logged else decision


@contextmanager
def hold(profile: str | Profile, identifier: str, cost: int = 1) -> Iterator[Decision]:
    """Hold a slot of a profile with `inflight` until the block ends.

    Yield what `check` answers. A refusal is not raised: it holds nothing, and has `allowed` False.
    Hits of rates beside it stay charged.
    """
    limiter = get_limiter()
    decision = limiter.charge(_windows(limiter, profile, identifier, cost, conf.enabled))
    try:
        yield decision
    finally:
        limiter.release(decision)


@asynccontextmanager
async def ahold(profile: str | Profile, identifier: str, cost: int = 1) -> AsyncIterator[Decision]:
    """Do what `hold` does, without blocking the event loop."""
    limiter = get_limiter()
    windows = await _awindows(limiter, profile, identifier, cost, conf.enabled)
    decision = await limiter.acharge(windows)
    try:
        yield decision
    finally:
        await limiter.arelease(decision)


def retry_delay(decision: Decision, attempt: int = 0, *, longest: float = LONGEST_DELAY) -> float:
    """Return the seconds after which a task that was refused should ask again.

    These are `retry_after` and a random part, which keeps tasks from coming back all at once:
    up to a second at first, twice as much with each `attempt`, and at most the window. A task
    whose wait is longer than `longest` asks before its time, after half of it or later.

    Raise ValueError if no wait helps: the limit is 0, or less than the cost.
    """
    if decision.retry_after is None or decision.policy is None:
        raise ValueError(
            f"no wait helps: the cost is above the limit of {decision.limit} of the rate-limit "
            f"profile {decision.profile!r}"
        )
    spread = min(2.0 ** min(attempt, 30), decision.policy.window)
    delay = decision.retry_after + random.uniform(0, spread)  # noqa: S311 -- it hides nothing
    return delay if delay <= longest else random.uniform(longest / 2, longest)  # noqa: S311


def refund(decision: Decision) -> int:
    """Give back what the decision was charged, once; return the hits given back."""
    return get_limiter().refund(decision)


async def arefund(decision: Decision) -> int:
    """Do what `refund` does, without blocking the event loop."""
    return await get_limiter().arefund(decision)


def reset(profile: str | Profile, identifier: str) -> int:
    """Forget the identifier's windows in this profile; return how many there were."""
    limiter = get_limiter()
    return limiter.reset(_windows(limiter, profile, identifier, 1, True, False).keys)


async def areset(profile: str | Profile, identifier: str) -> int:
    """Do what `reset` does, without blocking the event loop."""
    limiter = get_limiter()
    windows = await _awindows(limiter, profile, identifier, 1, True, False)
    return await limiter.areset(windows.keys)


def _logged(windows: WindowSet, identifier: str, cost: int, decision: Decision) -> Decision:
    """Count a call for the log, because its profile says `"log": "all"`; return the decision."""
    if not conf.enabled:
        return decision
    if not decision.allowed or decision.reason == OBSERVED:
        signals.report_refusal(None, decision)
    if decision.allowed:
        ((profile, _),) = windows.template.logged
        spell = spelling(profile.axis)
        # The keys have it as it is counted.
        if not windows.keys and spell is not None:
            identifier = spell(identifier)
        signals.report_admission(None, windows, {profile.name: (identifier, cost)})
    return decision


class _Known(NamedTuple):
    """The part of a check that depends on the profile and the cost alone, prepared once."""

    limiter: Limiter
    edition: object
    """Of the registry."""
    profile: Profile
    spell: Callable[[str], str] | None
    """Gives identifiers their one spelling, if the axis has several."""
    template: WindowTemplate | None
    """None if a function says the limit."""


# Only costs that callers make up can fill it.
_known: BoundedCache[tuple[str | Profile, int], _Known] = BoundedCache(4_096)


def _windows(
    limiter: Limiter,
    profile: str | Profile,
    identifier: str,
    cost: int,
    enabled: bool,
    overridable: bool = True,
) -> WindowSet:
    """Return the windows of an identifier; none if limits are switched off.

    `overridable` is False for a caller that wants the windows whatever an override says.
    """
    if type(cost) is not int:
        cost = parse_cost(cost)
    known = _known.get((profile, cost))
    if known is None or known[0] is not limiter or known[1] is not registry.edition:
        known = _prepare(limiter, profile, cost)
    _, _, found, spell, template = known
    if spell is not None:
        identifier = spell(identifier)
    overrides = overriding.current if enabled and overridable else None
    if overrides is None and template is not None and enabled:
        return template.windows(identifier)
    override, policies = limits_for(found, identifier, None, overrides)
    if override is not None:
        return override.windows(limiter, found, policies, identifier, cost)
    return limiter.template(found, policies if enabled else (), cost).windows(identifier)


def _prepare(limiter: Limiter, profile: str | Profile, cost: int) -> _Known:
    cost = parse_cost(cost)
    # Before the profile is read: it may change meanwhile.
    edition = registry.edition
    found = registry.get(profile) if isinstance(profile, str) else profile
    template = None
    if found.limit_for is None:
        template = limiter.template(found, found.policies, cost)
    known = _Known(limiter, edition, found, spelling(found.axis), template)
    return _known.keep((profile, cost), known)


async def _awindows(
    limiter: Limiter,
    profile: str | Profile,
    identifier: str,
    cost: int,
    enabled: bool,
    overridable: bool = True,
) -> WindowSet:
    """Do what `_windows` does; in a thread if a project's function says the limit."""
    found = registry.get(profile) if isinstance(profile, str) else profile
    if found.limit_for is None:
        return _windows(limiter, profile, identifier, cost, enabled, overridable)
    return await in_thread(_windows, limiter, profile, identifier, cost, enabled, overridable)
