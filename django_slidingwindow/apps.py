"""The app config. It does as little as possible when Django starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _

from . import signals
from .checks.register import register_checks
from .conf import NAME, conf, on_change
from .guard import current_limiter, overriding

if TYPE_CHECKING:
    from .core.windows import WindowSet
    from .decisions import Decision


class SlidingWindowConfig(AppConfig):
    name = "django_slidingwindow"
    label = "django_slidingwindow"
    verbose_name = _("Rate limits")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        register_checks()
        signals.refusal_log, signals.usage_log = _start_refusals, _start_usage
        _trace_checks()
        if apps.is_installed("drf_spectacular"):
            from .contrib import spectacular  # noqa: F401
        current_limiter.on_first_use = _start_overrides
        overriding.saved = _read_overrides
        post_migrate.connect(_forget_overrides, sender=self)


def _start_refusals(request: Any, decision: Decision) -> None:
    """Import the rejection log at the first refusal, because many processes never refuse."""
    from .rejections.recorder import record

    signals.refusal_log = record
    record(request, decision)


def _start_usage(request: Any, windows: WindowSet, counted: Mapping[str, Any]) -> None:
    """Import the log at the first admitted request of a profile that logs them."""
    from .rejections.recorder import count

    signals.usage_log = count
    count(request, windows, counted)


def _trace_checks() -> None:
    """Make spans of checks, or no longer, as the setting TRACES says."""
    try:
        wanted = conf.traces
    except ImproperlyConfigured:
        # The system checks report it.
        return
    if wanted or f"{__package__}.contrib.opentelemetry" in sys.modules:
        try:
            from .contrib.opentelemetry import trace_checks
        except ImportError as error:
            raise ImproperlyConfigured(
                f"{NAME}['TRACES'] needs OpenTelemetry: "
                'pip install "django_slidingwindow[opentelemetry]"'
            ) from error
        trace_checks(wanted)


on_change(_trace_checks)


def _start_overrides() -> None:
    """Read the overrides from the first check on, because many processes never check a limit."""
    from .overrides.watcher import watcher

    watcher.start()


def _read_overrides(using: str) -> None:
    from .overrides.watcher import watcher

    watcher.saved(using)


def _forget_overrides(**arguments: Any) -> None:
    """Forget the overrides of a test whose database was flushed."""
    overriding.publish(None)
