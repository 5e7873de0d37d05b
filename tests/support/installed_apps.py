"""A context manager that installs further apps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.core.checks.registry import registry
from django.test import override_settings


@contextmanager
def installed(*apps: str) -> Iterator[None]:
    """Install apps for the duration of the block, with the system checks that they register."""
    checks = set(registry.registered_checks), set(registry.deployment_checks)
    try:
        with override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, *apps]):
            yield
    finally:
        registry.registered_checks, registry.deployment_checks = checks
