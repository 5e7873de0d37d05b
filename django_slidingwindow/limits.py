"""Limits for code that is no view: a task before it calls an upstream with a quota."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from .conf import conf, on_change
from .core.caching import BoundedCache
from .core.claims import Claim
from .decisions import Decision
from .guard.identity import canonical, has_spellings
from .guard.user_code import in_thread
from .policies import Profile, parse_cost
from .registry import registry

if TYPE_CHECKING:
    from .core.limiter import Limiter
    from .core.windows import Form


_lock = threading.Lock()
current: Limiter | None = None
"""This process's limiter, if there is one yet."""


def get_limiter() -> Limiter:
    """This process's limiter, made of the settings on first use."""
    global current
    limiter = current
    if limiter is None:
        with _lock:
            limiter = current = current or _make()
    return limiter


@contextmanager
def limiters_from(make: Callable[[], Limiter]) -> Iterator[None]:
    """Within it `make` makes this process's limiters, for the settings as they then are."""
    global current, _make
    with _lock:
        before, changes = (current, _make), _changes
        current, _make = None, make
    try:
        yield
    finally:
        with _lock:
            current, _make = before
        if changes != _changes:
            # It was made for settings that have changed since.
            _forget_limiter()


def _make_limiter() -> Limiter:
    # With all that a check needs: not every process that starts Django checks a limit.
    from .guard.making import make_limiter

    return make_limiter()


_make: Callable[[], Limiter] = _make_limiter
_changes = 0


def _forget_limiter() -> None:
    global current, _changes
    with _lock:
        limiter, current = current, None
        _changes += 1
    if limiter is not None:
        # Left to the garbage collector, its sockets would warn that nobody has closed them.
        limiter.close()


on_change(_forget_limiter, "CACHES")


def _start_afresh() -> None:
    """In a forked child: a lock may be held by a thread that is not there."""
    global _lock, current
    _lock, current = threading.Lock(), None


with suppress(AttributeError):  # there is no fork on Windows
    os.register_at_fork(after_in_child=_start_afresh)


class _Single:
    """What is prepared for checks by a profile's name and a cost."""

    __slots__ = ("axis", "edition", "form", "limiter")

    def __init__(
        self, limiter: Limiter, edition: object, form: Form | None, axis: str | None
    ) -> None:
        self.limiter = limiter
        self.edition = edition  # of the registry
        # None where a function says the limit, and where the cost is wrong.
        self.form = form
        # Where identifiers of the axis have several spellings; else None.
        self.axis = axis


_singles: BoundedCache[tuple[str, int], _Single] = BoundedCache(4_096)


def check(profile: str | Profile, identifier: str, cost: int = 1) -> Decision:
    """Charges `cost` hits to the identifier if the profile admits them."""
    limiter = current or get_limiter()
    known = _at_once(limiter, profile, identifier, cost)
    if known is not None:
        return limiter.charge(*known)
    return limiter.check([_claim(profile, identifier, cost)])


async def acheck(profile: str | Profile, identifier: str, cost: int = 1) -> Decision:
    limiter = current or get_limiter()
    known = _at_once(limiter, profile, identifier, cost)
    if known is not None:
        return await limiter.acharge(*known)
    return await limiter.acheck([await _aclaim(profile, identifier, cost)])


def _at_once(
    limiter: Limiter, profile: str | Profile, identifier: str, cost: int
) -> tuple[Form, tuple[str, ...]] | None:
    """What `charge` takes, for the usual check; None for every other, and where it is wrong."""
    if type(profile) is not str or type(cost) is not int or not conf.enabled:
        return None
    single = _singles.get((profile, cost))
    if single is None or single.limiter is not limiter or single.edition is not registry.edition:
        single = _single(limiter, profile, cost)
    if single.form is None:
        return None
    if single.axis is not None:
        identifier = canonical(single.axis, identifier)
    return single.form, single.form.keys(identifier)


def _single(limiter: Limiter, name: str, cost: int) -> _Single:
    # Before the profile is read: it may change meanwhile.
    edition = registry.edition
    profile = registry.get(name)
    form = None
    if profile.limit_for is None and cost >= 0:
        form = limiter.join((limiter.form(Claim(profile, "", profile.policies, cost)),))
    axis = profile.axis if has_spellings(profile.axis) else None
    return _singles.keep((name, cost), _Single(limiter, edition, form, axis))


def peek(profile: str | Profile, identifier: str, cost: int = 1) -> Decision:
    """What `check` would answer; charges nothing."""
    return get_limiter().peek([_claim(profile, identifier, cost)])


async def apeek(profile: str | Profile, identifier: str, cost: int = 1) -> Decision:
    return await get_limiter().apeek([await _aclaim(profile, identifier, cost)])


def acquire(
    profile: str | Profile, identifier: str, cost: int = 1, timeout: float | None = None
) -> Decision:
    """Waits until admitted; refused if that would take more than `timeout` seconds, or for ever."""
    return get_limiter().acquire([_claim(profile, identifier, cost)], timeout)


async def aacquire(
    profile: str | Profile, identifier: str, cost: int = 1, timeout: float | None = None
) -> Decision:
    return await get_limiter().aacquire([await _aclaim(profile, identifier, cost)], timeout)


def refund(decision: Decision) -> int:
    """Gives back what the decision was charged, once; the hits given back."""
    return get_limiter().refund(decision)


async def arefund(decision: Decision) -> int:
    return await get_limiter().arefund(decision)


def reset(profile: str | Profile, identifier: str) -> int:
    """Forgets the identifier's windows in this profile; how many there were."""
    limiter = get_limiter()
    return limiter.reset(limiter.keys(_counted(profile, identifier, 1)))


async def areset(profile: str | Profile, identifier: str) -> int:
    limiter = get_limiter()
    claim = await _without_blocking(_counted, profile, identifier, 1)
    return await limiter.areset(limiter.keys(claim))


def _claim(profile: str | Profile, identifier: str, cost: int) -> Claim:
    claim = _counted(profile, identifier, cost)
    # Switched off, there is no limit, and no store to ask.
    return claim if conf.enabled else claim._replace(policies=())


async def _aclaim(profile: str | Profile, identifier: str, cost: int) -> Claim:
    return await _without_blocking(_claim, profile, identifier, cost)


async def _without_blocking(
    make: Callable[[str | Profile, str, int], Claim],
    profile: str | Profile,
    identifier: str,
    cost: int,
) -> Claim:
    """The claim; made in a thread where a project's function says the limit."""
    if isinstance(profile, str):
        profile = registry.get(profile)
    if profile.limit_for is None:
        return make(profile, identifier, cost)
    return await in_thread(make, profile, identifier, cost)


def _counted(profile: str | Profile, identifier: str, cost: int) -> Claim:
    if isinstance(profile, str):
        profile = registry.get(profile)
    if type(cost) is not int or cost < 0:
        cost = parse_cost(cost)
    if has_spellings(profile.axis):
        identifier = canonical(profile.axis, identifier)
    policies = profile.policies if profile.limit_for is None else profile.policies_for(identifier)
    return Claim(profile, identifier, policies, cost)
