"""Lets the rejection log hear of refusals; loads it with the first of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import signals

if TYPE_CHECKING:
    from .decisions import Decision


def connect() -> None:
    signals.refusal_log = _first


def _first(request: Any, decision: Decision) -> None:
    # A fifth of what the app would add to a start, and many processes refuse nothing.
    from .recorder import record

    signals.refusal_log = record
    record(request, decision)
