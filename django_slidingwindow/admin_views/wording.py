"""Format values in the same way on every page: short, and exact where that matters."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from django.utils.translation import gettext as _

from ..durations import duration_rounded_up, rate_exact
from ..models import Rejection


def number(value: int) -> str:
    return f"{value:,}"


def wait(seconds: float | None) -> str:
    """Return a duration as text; "never" for None."""
    return _("never") if seconds is None else duration_rounded_up(seconds)


def policy(row: Rejection) -> str:
    """Return the policy of a row of the log; "-" if it has none."""
    return "-" if row.limit is None or row.window is None else rate_exact(row.limit, row.window)


def share(hits: int, limit: int | None) -> str:
    """Return hits and limit, such as "99 / 100"; only the hits without a limit."""
    return number(hits) if limit is None else f"{number(hits)} / {number(limit)}"


def minute(moment: datetime) -> str:
    """Return a time in the current time zone as in log files, such as "2026-11-15 23:43"."""
    return f"{_local(moment):%Y-%m-%d %H:%M}"


def second(moment: datetime) -> str:
    return f"{_local(moment):%Y-%m-%d %H:%M:%S}"


def _local(moment: datetime) -> datetime:
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment
