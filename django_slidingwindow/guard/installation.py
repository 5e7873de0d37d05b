"""Check whether the app is in INSTALLED_APPS."""

from __future__ import annotations

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

APP = "django_slidingwindow"
NOT_INSTALLED = "django_slidingwindow is used, but it is not in INSTALLED_APPS."
NOT_INSTALLED_HINT = (
    "Add 'django_slidingwindow' to INSTALLED_APPS: without it there are no system checks, "
    "no rejection log and no command."
)


def require_installed() -> None:
    """Raise ImproperlyConfigured if the app is not in INSTALLED_APPS.

    An app that is not installed cannot register system checks. So the decorators, the middleware
    and the views call this. Before all apps are loaded, it raises nothing.
    """
    if apps.ready and not apps.is_installed(APP):
        raise ImproperlyConfigured(f"{NOT_INSTALLED} {NOT_INSTALLED_HINT} ({APP}.E001)")
