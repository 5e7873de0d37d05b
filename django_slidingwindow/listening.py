"""Lets the rejection log hear of refusals while it is on; loads it with the first of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from . import signals
from .conf import NAME, conf

if TYPE_CHECKING:
    from .decisions import Decision

_record: Callable[[Any, Decision], None] | None = None


def connect() -> None:
    """Listens while LOG is on, also when tests change it; costs nothing while it is off."""
    _follow(setting=NAME)
    setting_changed.connect(_follow, dispatch_uid=f"{__name__}.follow")


def _follow(*, setting: str, **kwargs: Any) -> None:
    if setting != NAME:
        return
    # Settings that cannot be read are for the system checks to tell: Django must start for that.
    with contextlib.suppress(ImproperlyConfigured):
        signals.refusal_log = _hear if conf.log else None


def _hear(request: Any, decision: Decision) -> None:
    # Connected while LOG is on; `testing` switches it off beside the settings.
    if conf.log:
        (_record or _load())(request, decision)


def _load() -> Callable[[Any, Decision], None]:
    global _record
    # A fifth of what the app would add to a start, and many processes refuse nothing.
    from . import recorder

    _record = recorder.record
    return _record
