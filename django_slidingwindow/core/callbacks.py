"""The functions that a limiter calls when something happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..decisions import Decision
from ..exceptions import StoreError
from .listeners import ALWAYS, Listeners
from .near_limit import NEVER, NearLimit


class Sent(NamedTuple):
    """The result of sending deferred charges, in hits."""

    charged: int
    over: int
    """The part of `charged` that the store would have refused."""
    lost: int
    """Hits that were not charged, or perhaps not."""
    seconds: float
    error: StoreError | None


class Callbacks(NamedTuple):
    """What a limiter calls. The functions must not raise: they must never fail a request."""

    checked: Callable[[Decision, float | None, StoreError | None], None] | None = None
    """Called with every decision, the seconds that the store took if it was asked, and its error
    if it failed."""
    listeners: Listeners = ALWAYS
    """While it has no receivers, `checked` is not called and no time is measured."""
    degraded: Callable[[StoreError], None] | None = None
    """Called when an outage of the store begins."""
    recovered: Callable[[float], None] | None = None
    """Called when the outage ends, with its length in seconds."""
    leased: Callable[[str, int, int, int], None] | None = None
    """Called when a lease ends: profile, and the units granted, used and given back."""
    freed: Callable[[Decision, str, int], None] | None = None
    """Called when slots are given back: the decision that took them, their key and number."""
    failed: Callable[[StoreError], None] | None = None
    """Called when the fallback decides a check although there is no outage: the store answered, but
    with an error for this check."""
    sent: Callable[[Sent], None] | None = None
    """Called when deferred charges were sent, or could not be sent."""
    near: NearLimit = NEVER
    """Finds the charges that cross a share of a limit."""
