"""Limits for code that is not a view, such as a task that calls an API with a quota."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from . import signals
from .conf import conf
from .core.caching import BoundedCache
from .decisions import OBSERVED, Decision
from .guard import current_limiter, override_snapshot
from .guard.current_limiter import aget_limiter, get_limiter
from .guard.identity import spelling
from .guard.resolve import limits_for
from .policies import Profile, parse_cost
from .profiles.user_code import in_thread
from .registry import registry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

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
    windows = _windows(limiter, profile, identifier, cost)
    decision = limiter.charge(windows)
    return _logged(windows, identifier, cost, decision) if windows.template.logged else decision


async def acheck(profile: str | Profile, identifier: str, cost: int = 1) -> Decision:
    """Do what `check` does, without blocking the event loop."""
    limiter = current_limiter.current or await aget_limiter()
    windows = await _awindows(limiter, profile, identifier, cost)
    decision = await limiter.acharge(windows)
    return _logged(windows, identifier, cost, decision) if windows.template.logged else decision


def peek(profile: str | Profile, identifier: str, cost: int = 1) -> Decision:
    """Return what `check` would return; charge nothing."""
    limiter = get_limiter()
    return limiter.peek(_windows(limiter, profile, identifier, cost))


async def apeek(profile: str | Profile, identifier: str, cost: int = 1) -> Decision:
    """Do what `peek` does, without blocking the event loop."""
    limiter = await aget_limiter()
    return await limiter.apeek(await _awindows(limiter, profile, identifier, cost))


def acquire(
    profile: str | Profile, identifier: str, cost: int = 1, timeout: float | None = None
) -> Decision:
    """Wait until the identifier is admitted, and charge `cost` hits.

    Refuse if that would take more than `timeout` seconds, or if waiting does not help.
    """
    limiter = get_limiter()
    windows = _windows(limiter, profile, identifier, cost)
    decision = limiter.acquire(windows, timeout)
    return _logged(windows, identifier, cost, decision) if windows.template.logged else decision


async def aacquire(
    profile: str | Profile, identifier: str, cost: int = 1, timeout: float | None = None
) -> Decision:
    """Do what `acquire` does, without blocking the event loop."""
    limiter = await aget_limiter()
    windows = await _awindows(limiter, profile, identifier, cost)
    decision = await limiter.aacquire(windows, timeout)
    return _logged(windows, identifier, cost, decision) if windows.template.logged else decision


@contextmanager
def hold(profile: str | Profile, identifier: str, cost: int = 1) -> Iterator[Decision]:
    """Hold a slot of a profile with `inflight` until the block ends.

    Yield what `check` returns. A refusal does not raise: its `allowed` is False, and it holds no
    slot. If the profile has rates as well, their hits stay charged.
    """
    limiter, decision = get_limiter(), check(profile, identifier, cost)
    try:
        yield decision
    finally:
        limiter.release(decision)


@asynccontextmanager
async def ahold(profile: str | Profile, identifier: str, cost: int = 1) -> AsyncIterator[Decision]:
    """Do what `hold` does, without blocking the event loop."""
    limiter, decision = await aget_limiter(), await acheck(profile, identifier, cost)
    try:
        yield decision
    finally:
        await _to_its_end(limiter.arelease(decision))


def retry_delay(decision: Decision, attempt: int = 0, *, longest: float = LONGEST_DELAY) -> float:
    """Return the seconds after which a refused task should try again.

    This is `retry_after` plus a random part, so that tasks do not all come back at once: up to a
    second at first, twice as much with each `attempt`, and at most the window. If that is more than
    `longest`, return a random time between half of `longest` and `longest`.

    Raise ValueError if waiting does not help: the limit is 0 or less than the cost, or an override
    blocks the identifier for good.
    """
    if decision.retry_after is None:
        raise ValueError(
            f"no wait helps: the rate-limit profile {decision.profile!r} refuses this for good "
            f"(limit {decision.limit}, reason {decision.reason})"
        )
    spread = 2.0 ** min(attempt, 30)
    if decision.policy is not None:
        spread = min(spread, decision.policy.window)
    delay = decision.retry_after + random.uniform(0, spread)  # noqa: S311 -- it hides nothing
    return delay if delay <= longest else random.uniform(longest / 2, longest)  # noqa: S311


def refund(decision: Decision) -> int:
    """Give back the charges of a decision, once; return the number of hits given back."""
    return get_limiter().refund(decision)


async def arefund(decision: Decision) -> int:
    """Do what `refund` does, without blocking the event loop."""
    limiter = await aget_limiter()
    return await _to_its_end(limiter.arefund(decision))


async def _to_its_end(giving_back: Coroutine[Any, Any, int]) -> int:
    """Give back hits or slots, even if the caller is cancelled meanwhile; return their number."""
    task = asyncio.ensure_future(giving_back)
    _giving_back.add(task)
    task.add_done_callback(_giving_back.discard)
    return await asyncio.shield(task)


# An event loop has only weak references to its tasks.
_giving_back: set[asyncio.Future[int]] = set()


def reset(profile: str | Profile, identifier: str) -> int:
    """Delete the identifier's windows in this profile; return how many there were."""
    limiter = get_limiter()
    return limiter.reset(_windows(limiter, profile, identifier, 1, as_configured=True).keys)


async def areset(profile: str | Profile, identifier: str) -> int:
    """Do what `reset` does, without blocking the event loop."""
    limiter = await aget_limiter()
    windows = await _awindows(limiter, profile, identifier, 1, as_configured=True)
    return await limiter.areset(windows.keys)


def _logged(windows: WindowSet, identifier: str, cost: int, decision: Decision) -> Decision:
    """Report a call of a profile with `"log": "all"` to the log; return the decision."""
    if not conf.enabled:
        return decision
    if not decision.allowed or decision.reason == OBSERVED:
        signals.report_refusal(None, decision)
    if decision.allowed:
        ((profile, _),) = windows.template.logged
        spell = spelling(profile.axis)
        # The log reads the identifier from the keys. If there are none, spell it as they would.
        if not windows.keys and spell is not None:
            identifier = spell(identifier)
        signals.report_admission(None, windows, {profile.name: (identifier, cost)})
    return decision


class _PreparedCheck(NamedTuple):
    """The part of a check that depends only on the profile and the cost. It is prepared once."""

    limiter: Limiter
    edition: object
    """The edition of the registry."""
    profile: Profile
    spell: Callable[[str], str] | None
    """Returns the one spelling of an identifier; None if the axis has no other spellings."""
    template: WindowTemplate | None
    """None if a function chooses the limit."""


# By profile and cost. Only callers that compute costs can fill it.
_prepared_checks: BoundedCache[tuple[str | Profile, int], _PreparedCheck] = BoundedCache(4_096)


def _windows(
    limiter: Limiter,
    profile: str | Profile,
    identifier: str,
    cost: int,
    as_configured: bool = False,
) -> WindowSet:
    """Return the windows of an identifier; an empty set if limits are disabled.

    `as_configured` ignores overrides and the setting ENABLED.
    """
    if type(cost) is not int:
        cost = parse_cost(cost)
    if not isinstance(identifier, str):
        kind = type(identifier).__name__
        raise TypeError(f"the identifier of a rate limit must be a string, not {kind}")
    prepared = _prepared_checks.get((profile, cost))
    if prepared is None or prepared[0] is not limiter or prepared[1] is not registry.edition:
        prepared = _prepare(limiter, profile, cost)
    _, _, found, spell, template = prepared
    if spell is not None:
        identifier = spell(identifier)
    if not as_configured and not conf.enabled:
        return limiter.template(found, (), cost).windows(identifier)
    overrides = None if as_configured else override_snapshot.current
    if overrides is None and template is not None:
        return template.windows(identifier)
    override, policies = limits_for(found, identifier, None, overrides)
    if override is not None:
        return override.windows(limiter, found, policies, identifier, cost)
    return limiter.template(found, policies, cost).windows(identifier)


def _prepare(limiter: Limiter, profile: str | Profile, cost: int) -> _PreparedCheck:
    cost = parse_cost(cost)
    # Read before the profile: if it changes meanwhile, this is out of date.
    edition = registry.edition
    found = registry.get(profile) if isinstance(profile, str) else profile
    template = None
    if found.limit_for is None:
        template = limiter.template(found, found.policies, cost)
    prepared = _PreparedCheck(limiter, edition, found, spelling(found.axis), template)
    return _prepared_checks.keep((profile, cost), prepared)


async def _awindows(
    limiter: Limiter,
    profile: str | Profile,
    identifier: str,
    cost: int,
    as_configured: bool = False,
) -> WindowSet:
    """Do what `_windows` does, in a thread if a function of the project chooses the limit."""
    found = registry.get(profile) if isinstance(profile, str) else profile
    if found.limit_for is None:
        return _windows(limiter, profile, identifier, cost, as_configured)
    return await in_thread(_windows, limiter, profile, identifier, cost, as_configured)
