"""Hands the checks to Django. What they need is imported when they run, not at start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.apps import AppConfig
from django.core import checks

TAG = "slidingwindow"
_LABEL = "django_slidingwindow"


def register_checks() -> None:
    """Makes `manage.py check` run them, and `check --deploy` those that ask the server."""
    checks.register(check_project, TAG)
    checks.register(check_deployment, TAG, deploy=True)


def check_project(
    app_configs: Iterable[AppConfig] | None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """All that the settings and the code alone can tell; no network."""
    if not _concerned(app_configs):
        return []
    from .static import check_all

    return check_all()


def check_deployment(
    app_configs: Iterable[AppConfig] | None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """What holds in production alone, the Redis server included."""
    if not _concerned(app_configs):
        return []
    from .deploy import check_all

    return check_all()


def _concerned(app_configs: Iterable[AppConfig] | None) -> bool:
    """Whether `manage.py check` was asked about every app, or this one among others."""
    return app_configs is None or any(config.label == _LABEL for config in app_configs)
