"""Format values in the same way on every page: short, and exact where that matters."""

from __future__ import annotations

from datetime import date, datetime

from django.utils import dateformat
from django.utils.formats import number_format
from django.utils.translation import gettext, pgettext

from ..durations import duration_exact, duration_rounded_up
from ..inspection.spans import local
from ..models import Rejection
from ..policies import SLOTS


def number(value: int) -> str:
    return number_format(value, force_grouping=True)


def wait(seconds: float | None) -> str:
    """Return a duration as text; "never" for None."""
    return pgettext("rate limit", "never") if seconds is None else duration_rounded_up(seconds)


def policy(row: Rejection) -> str:
    """Return the policy of a row of the log, and whether an override set it; "-" for none."""
    if row.limit is None or row.window is None:
        return row.override or "-"
    shown = rate(row.limit, row.window, inflight=row.algorithm == SLOTS)
    return gettext("%(rate)s (by an override)") % {"rate": shown} if row.override else shown


def rate(limit: int, seconds: float, *, inflight: bool = False) -> str:
    """Return a limit and its window, such as "10,000 / 1 d" or "5 in flight"."""
    if inflight:
        return gettext("%(limit)s in flight") % {"limit": number(limit)}
    return f"{number(limit)} / {duration_exact(seconds)}"


def day_of_month(day: date) -> str:
    """Return a day without its year, such as "Nov 15"."""
    return dateformat.format(day, pgettext("date format of a month and a day", "M j"))


def minute(moment: datetime) -> str:
    """Return a time in the current time zone as in log files, such as "2026-11-15 23:43"."""
    return f"{local(moment):%Y-%m-%d %H:%M}"


def second(moment: datetime) -> str:
    return f"{local(moment):%Y-%m-%d %H:%M:%S}"
