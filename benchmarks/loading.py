"""A Django site that first imports django-redis, and then this app.

The module itself imports nothing at the top: modules that are imported before the measurement would
not be counted.
"""

from __future__ import annotations

APP = "django_slidingwindow"
APPS = ("django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions")


def begin() -> None:
    """Set up a project without both, and import what every Django site imports."""
    import sys

    import django
    from django.conf import settings

    # redis-py imports it if it is installed, which takes half as long as django-redis.
    sys.modules["opentelemetry"] = None  # type: ignore[assignment]

    settings.configure(INSTALLED_APPS=APPS, SECRET_KEY="only for the benchmark", USE_TZ=True)
    django.setup()
    for name in ("core.cache", "http", "template.loader", "urls"):
        __import__(f"django.{name}")


def import_django_redis() -> None:
    """Import what a cache of django-redis imports at its first use."""
    for name in ("cache", "client", "pool"):
        __import__(f"django_redis.{name}")


def import_app() -> None:
    """Load the app as Django loads INSTALLED_APPS, and import what a site imports from it."""
    from django.apps import AppConfig, apps

    config = AppConfig.create(APP)
    config.apps = apps
    apps.app_configs[config.label] = config
    config.import_models()
    config.ready()
    for name in ("decorators", "middleware", "limits"):
        __import__(f"{APP}.{name}")
