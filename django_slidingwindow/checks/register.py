"""Register the checks with Django. Their modules are imported when they run, not at start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.apps import AppConfig
from django.core import checks

TAG = "slidingwindow"
_LABEL = "django_slidingwindow"


def register_checks() -> None:
    """Register the checks of `manage.py check`, and those of `check --deploy`."""
    checks.register(check_project, TAG)
    checks.register(check_deployment, TAG, deploy=True)


def check_project(
    app_configs: Iterable[AppConfig] | None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """Check the settings and the code, without the network."""
    if not _includes_this_app(app_configs):
        return []
    from .static import check_all

    return check_all()


def check_deployment(
    app_configs: Iterable[AppConfig] | None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """Check settings for production, and the Redis server."""
    if not _includes_this_app(app_configs):
        return []
    from .deploy import check_all

    return check_all()


def _includes_this_app(app_configs: Iterable[AppConfig] | None) -> bool:
    """Return whether `manage.py check` runs for all apps, or for this one."""
    return app_configs is None or any(config.label == _LABEL for config in app_configs)
