"""The app config. It imports as little as possible when Django starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured
from django.db.models.signals import post_migrate, post_save
from django.utils.translation import gettext_lazy as _

from . import signals
from .checks.register import register_checks
from .conf import NAME, conf, on_change
from .guard import current_limiter, override_snapshot

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
        override_snapshot.saved = _read_overrides
        post_save.connect(_announce_loaded, sender="django_slidingwindow.Override")
        post_migrate.connect(_invalidate_overrides, sender=self)


def _start_refusals(request: Any, decision: Decision) -> None:
    """Count the first refusal. The log is imported here, because many processes never refuse."""
    from .rejections.recorder import record

    signals.refusal_log = record
    record(request, decision)


def _start_usage(request: Any, windows: WindowSet, counted: Mapping[str, Any]) -> None:
    """Count the first admitted request of a profile that logs them. Import the log for it."""
    from .rejections.recorder import count

    signals.usage_log = count
    count(request, windows, counted)


def _trace_checks() -> None:
    """Start or stop tracing checks, as the setting TRACES says."""
    try:
        wanted = conf.traces
    except ImproperlyConfigured:
        # SLIDING_WINDOW is not a dict, which the system checks report.
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
    """Start to read overrides at the first check, because many processes never check a limit."""
    from .overrides.watcher import watcher

    watcher.start()


def _read_overrides(using: str) -> None:
    from .overrides.watcher import watcher

    watcher.saved(using)


def _announce_loaded(raw: bool, using: str, **arguments: Any) -> None:
    """Announce an override of a fixture. Django saves it without the methods of the model."""
    if raw:
        from .models import OverrideVersion

        OverrideVersion.renew(using)
        _read_overrides(using)


def _invalidate_overrides(**arguments: Any) -> None:
    """Read the table of overrides again. A migration may have changed it, or the end of a test:
    Django sends `post_migrate` after it has flushed the database of a test."""
    from .overrides.watcher import watcher

    watcher.invalidate()
