"""django-ratelimit: a fixed window in Django's cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_ratelimit.decorators import ratelimit

from .base import Case, ViewContender


def limit(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    rate = f"{case.limit}/{'m' if case.window == 60 else 'd'}"
    decorated: Callable[..., Any] = ratelimit(key="ip", rate=rate, group=case.name)(view)
    return decorated


VIEWS = [ViewContender("ratelimit", "django-ratelimit (fixed window)", limit, base="bare")]
