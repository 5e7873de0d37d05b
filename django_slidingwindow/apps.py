"""What happens when Django starts: as little as can be."""

from __future__ import annotations

from django.apps import AppConfig

from .checks.register import register_checks
from .listening import connect


class SlidingWindowConfig(AppConfig):
    name = "django_slidingwindow"
    label = "django_slidingwindow"
    verbose_name = "Rate limits"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        register_checks()
        connect()
