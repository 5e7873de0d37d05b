"""A site of Django's that loads django-redis and this app one after the other.

Imports nothing by itself: what is loaded before would not be counted.
"""

from __future__ import annotations

APP = "django_slidingwindow"
APPS = ("django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions")


def begin() -> None:
    """A project without either, with all that a site of Django's own has loaded."""
    import sys

    import django
    from django.conf import settings

    # redis-py loads it where it is installed, which takes as long as half of django-redis.
    sys.modules["opentelemetry"] = None  # type: ignore[assignment]

    settings.configure(INSTALLED_APPS=APPS, SECRET_KEY="only for the benchmark", USE_TZ=True)
    django.setup()
    for name in ("core.cache", "http", "template.loader", "urls"):
        __import__(f"django.{name}")


def import_django_redis() -> None:
    """What a cache of django-redis loads when it is first used."""
    for name in ("cache", "client", "pool"):
        __import__(f"django_redis.{name}")


def import_app() -> None:
    """What Django does with an app of INSTALLED_APPS, and what a site imports of this one."""
    from django.apps import AppConfig, apps

    config = AppConfig.create(APP)
    config.apps = apps
    apps.app_configs[config.label] = config
    config.import_models()
    config.ready()
    for name in ("decorators", "middleware", "limits"):
        __import__(f"{APP}.{name}")
