"""Check whether the app is in INSTALLED_APPS, and its middleware in MIDDLEWARE."""

from __future__ import annotations

from collections.abc import Iterable

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ..conf import conf

APP = "django_slidingwindow"
MIDDLEWARE = "django_slidingwindow.middleware.RateLimitMiddleware"
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


def has_middleware() -> bool:
    """Return whether MIDDLEWARE has RateLimitMiddleware or a subclass of it."""
    return bool(middleware_like(conf.middleware, MIDDLEWARE))


def middleware_like(entries: Iterable[str], path: str) -> int:
    """Return how many entries of MIDDLEWARE are the class at `path` or derived from it."""
    return sum(entry == path or _derives(entry, path) for entry in entries)


def _derives(entry: str, path: str) -> bool:
    try:
        middleware, base = import_string(entry), import_string(path)
    except Exception:  # noqa: BLE001 -- Django itself reports what cannot be imported
        return False
    return isinstance(middleware, type) and issubclass(middleware, base)
