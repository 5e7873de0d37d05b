"""What others may listen to. Receivers cannot fail a request: what they raise is logged.

Receivers are plain functions: a check tells them at once, in whatever thread or event
loop it runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.dispatch import Signal

from .conf import conf

if TYPE_CHECKING:
    from .decisions import Decision

logger = logging.getLogger("django_slidingwindow")

request_limited = Signal()
"""A request was refused, or would have been by an observing profile.
Arguments: request, decision."""

limit_checked = Signal()
"""A check was answered. Arguments: decision, seconds (what the store took, or None)."""

store_degraded = Signal()
"""The store went away and the fallback took over. Arguments: alias, error."""

store_recovered = Signal()
"""The store is back. Arguments: alias, seconds (how long it was away)."""

log_written = Signal()
"""A batch of the rejection log was written, or was not. Arguments: rows, hits, seconds (what
the database took), error (None if it was written), dropped (refusals given up since the last
time)."""


refusal_log: Callable[[Any, Decision], None] | None = None
"""What writes refusals down, while LOG is on; None where the app is not installed. It hears of
them directly: to send a signal takes longer than to count one refusal more."""


def tell_refusal(request: Any, decision: Decision) -> None:
    """Report a refusal to the log and to the receivers of `request_limited`."""
    if refusal_log is not None:
        try:
            if conf.log:
                refusal_log(request, decision)
        except Exception:
            logger.exception("a refusal could not be counted for the rejection log")
    if request_limited.receivers:
        tell(request_limited, type(request), request=request, decision=decision)


def tell(signal: Signal, sender: Any, **arguments: Any) -> None:
    """Send a signal, if it has receivers."""
    # The usual case, which Django finds out in longer.
    if not signal.receivers:
        return
    try:
        # Logs itself what a receiver raises.
        signal.send_robust(sender, **arguments)
    except RuntimeError:
        # A coroutine function listens, and this thread's event loop is busy with the check.
        logger.exception("a signal could not be sent to an asynchronous receiver")
