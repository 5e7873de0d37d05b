"""This process's limiter: made from the settings on first use, and again when they change."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..conf import on_change

if TYPE_CHECKING:
    from ..core.limiter import Limiter

_lock = threading.Lock()
current: Limiter | None = None
"""The limiter; None until the first use, and after a change of the settings."""


def get_limiter() -> Limiter:
    """Return this process's limiter."""
    global current
    limiter = current
    if limiter is None:
        with _lock:
            limiter = current = current or _make()
    return limiter


async def aget_limiter() -> Limiter:
    """Do what `get_limiter` does, without blocking the event loop.

    The first call of a process waits for the overrides, and imports modules. A forked child has
    none of the threads of `sync_to_async`, but its event loop has threads of its own.
    """
    return await asyncio.to_thread(get_limiter) if current is None else current


@contextmanager
def limiters_from(make: Callable[[], Limiter]) -> Iterator[None]:
    """Within this context, call `make` whenever this process needs a new limiter."""
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
            # The settings have changed since the earlier limiter was made.
            _forget_limiter()


def _make_limiter() -> Limiter:
    # Imported late: it loads all that a check needs, and not every process checks a limit.
    from .limiter_factory import make_limiter

    if on_first_use is not None:
        on_first_use()
    return make_limiter()


on_first_use: Callable[[], None] | None = None
"""Called before this process's limiter is made. The app starts there what only checks need."""
_make: Callable[[], Limiter] = _make_limiter
# How often the settings have changed.
_changes = 0


def _forget_limiter() -> None:
    global current, _changes
    with _lock:
        limiter, current = current, None
        _changes += 1
    if limiter is not None:
        # Without this, Python would warn of unclosed sockets.
        limiter.close()


on_change(_forget_limiter, "CACHES")


def _reset_after_fork() -> None:
    """Drop the limiter and the lock in a forked child.

    A thread of the parent, which the child does not have, may hold the lock.
    """
    global _lock, current
    _lock, current = threading.Lock(), None


# Windows does not have it.
getattr(os, "register_at_fork", dict)(after_in_child=_reset_after_fork)
