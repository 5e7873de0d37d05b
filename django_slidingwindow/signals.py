"""Signals of rate limits. An exception in a receiver is logged and does not affect the request.

Receivers are plain functions. They run within the check, in its thread or event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from django.dispatch import Signal

from .conf import conf

if TYPE_CHECKING:
    from .core.windows import WindowSet
    from .decisions import Decision

logger = logging.getLogger("django_slidingwindow")

request_limited = Signal()
"""A request was refused, or a profile in observe mode would have refused it.
Arguments: request, decision."""

limit_checked = Signal()
"""A check was made. Arguments: decision, seconds (the time of the store; None if it was not
asked), error (the StoreError if the store has failed, or None)."""

limit_near = Signal()
"""A charge has crossed NEAR_SHARE of a limit. Only the process that made this charge sends the
signal. Arguments: verdict (profile, policy, key, limit, remaining and more), identifier."""

lease_ended = Signal()
"""A lease of this process has ended. Arguments: profile, granted, used, returned (numbers of
units)."""

slots_freed = Signal()
"""Slots of requests in flight were given back before their time was up. Arguments: profile, slots
(their number)."""

store_degraded = Signal()
"""Redis cannot be reached, so the fallback decides. Arguments: alias, error."""

store_recovered = Signal()
"""Redis is back. Arguments: alias, seconds (how long it was away)."""

deferred_sent = Signal()
"""Charges of profiles in the mode "deferred" were sent, or sending failed. Arguments: charged, over
(charged above a limit), lost (given up), all in hits; seconds, error (None if all were sent)."""

log_written = Signal()
"""A batch of the log was written or failed. Arguments: rows, hits, seconds (the time of the
database), error (None if it was written), dropped (requests lost since the previous batch)."""


refusal_log: Callable[[Any, Decision], None] | None = None
"""Counts a refusal for the rejection log; None if the app is not installed. It is called directly,
because sending a signal takes longer than counting a refusal."""

usage_log: Callable[[Any, WindowSet, Mapping[str, Any]], None] | None = None
"""Counts an admitted request for the usage log: the request or None, its windows, and identifier
and cost by profile. Called for profiles with `"log": "all"` only."""


def report_refusal(request: Any, decision: Decision) -> None:
    """Report a refusal to the log and to the receivers of `request_limited`.

    A call of `limits` has no request: its refusals go to the log only.
    """
    if refusal_log is not None:
        try:
            if conf.log:
                refusal_log(request, decision)
        except Exception:
            logger.exception("a refusal could not be counted for the rejection log")
    if request_limited.receivers and request is not None:
        send(request_limited, type(request), request=request, decision=decision)


def report_admission(request: Any, windows: WindowSet, counted: Mapping[str, Any]) -> None:
    """Count an admitted request for the usage log. Never raise."""
    if usage_log is not None:
        try:
            if conf.log:
                usage_log(request, windows, counted)
        except Exception:
            logger.exception("an admitted request could not be counted for the usage log")


def send(signal: Signal, sender: Any, **arguments: Any) -> None:
    """Send a signal, if it has receivers. Never raise an error of a receiver."""
    # `send_robust` makes the same test, but a call of it takes longer.
    if not signal.receivers:
        return
    try:
        # Django logs the exceptions of receivers.
        signal.send_robust(sender, **arguments)
    except RuntimeError:
        # A receiver is a coroutine function, and this thread runs an event loop.
        logger.exception("a signal could not be sent to an asynchronous receiver")
