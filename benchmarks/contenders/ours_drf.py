"""This app as a throttle of Django REST framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_slidingwindow.contrib.drf import ProfileThrottle

from .base import OURS_DRF, Case, ViewContender
from .rest_framework_throttling import api


def limit(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    return api(view, [ProfileThrottle(f"{case.name}_drf")])


VIEWS = [ViewContender("ours-drf", OURS_DRF, limit, base="drf-bare")]
