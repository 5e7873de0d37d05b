"""What happens when Django starts: as little as can be."""

from __future__ import annotations

from django.apps import AppConfig

from .checks.register import register_checks


class SlidingWindowConfig(AppConfig):
    name = "django_slidingwindow"
    label = "django_slidingwindow"
    verbose_name = "Rate limits"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # A model can only be imported now.
        from . import recorder

        register_checks()
        recorder.connect()
