"""The app config. It does as little as possible when Django starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import AppConfig

from . import signals
from .checks.register import register_checks

if TYPE_CHECKING:
    from .decisions import Decision


class SlidingWindowConfig(AppConfig):
    name = "django_slidingwindow"
    label = "django_slidingwindow"
    verbose_name = "Rate limits"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        register_checks()
        signals.refusal_log = _start_log


def _start_log(request: Any, decision: Decision) -> None:
    """Import the rejection log at the first refusal, because many processes never refuse."""
    from .rejections.recorder import record

    signals.refusal_log = record
    record(request, decision)
