"""This process's limiter: made from the settings on first use, and again when they change."""

from __future__ import annotations

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
"""The limiter, if there is one yet."""


def get_limiter() -> Limiter:
    """Return this process's limiter."""
    global current
    limiter = current
    if limiter is None:
        with _lock:
            limiter = current = current or _make()
    return limiter


@contextmanager
def limiters_from(make: Callable[[], Limiter]) -> Iterator[None]:
    """Let `make` make this process's limiters within it, for the settings as they are then."""
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
    # Imports all that a check needs, and not every process that starts Django checks a limit.
    from .limiter_factory import make_limiter

    if on_first_use is not None:
        on_first_use()
    return make_limiter()


on_first_use: Callable[[], None] | None = None
"""Called before this process's limiter is made: the app starts what only checks need."""
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


# Not every system forks.
getattr(os, "register_at_fork", dict)(after_in_child=_start_afresh)
