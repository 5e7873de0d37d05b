"""Values as the pages show them: short, exact where that matters, the same on every page."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from django.utils.translation import gettext as _

from ..durations import duration_rounded_up, rate_exact
from ..models import Rejection


def number(value: int) -> str:
    return f"{value:,}"


def wait(seconds: float | None) -> str:
    """Return how long something still takes; None is for ever."""
    return _("never") if seconds is None else duration_rounded_up(seconds)


def policy(row: Rejection) -> str:
    """The policy of a row of the log, if one was looked at."""
    return "-" if row.limit is None or row.window is None else rate_exact(row.limit, row.window)


def share(hits: int, limit: int | None) -> str:
    """Hits beside their limit, if there is one: 99 / 100."""
    return number(hits) if limit is None else f"{number(hits)} / {number(limit)}"


def minute(moment: datetime) -> str:
    """A time stamp as log files have it, in the current time zone: 2026-11-15 23:43."""
    return f"{_local(moment):%Y-%m-%d %H:%M}"


def second(moment: datetime) -> str:
    return f"{_local(moment):%Y-%m-%d %H:%M:%S}"


def _local(moment: datetime) -> datetime:
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment
