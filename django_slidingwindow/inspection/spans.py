"""Spans of time, and the rows that a log has in a span."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from ..rejections.rows import stamp_of

MOST_ROWS = 300_000
"""The most rows that a page or a command reads."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time from `start` up to, but not including, `end`."""

    start: datetime
    end: datetime

    @property
    def length(self) -> timedelta:
        return self.end - self.start

    @property
    def minutes(self) -> range:
        """The minutes that the span covers, as numbers since the epoch."""
        return range(minute_number(self.start), minute_number(self.end))


def now() -> datetime:
    """Return the end of the current minute: aware in UTC, or naive without USE_TZ.

    Not in local time, in which an hour is missing or comes twice when the clocks change.
    """
    return timezone.now().replace(second=0, microsecond=0) + timedelta(minutes=1)


def local(moment: datetime) -> datetime:
    """Return a time in the current time zone; without USE_TZ, all times are in the project's."""
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment


def last(length: timedelta) -> Span:
    """Return the span of this length that ends now."""
    end = now()
    return Span(end - length, end)


def minute_number(moment: datetime) -> int:
    """Return the number of minutes from the epoch to a time as the log stores it."""
    return int(stamp_of(moment) // 60)


def newest_rows(rows: QuerySet[Any], span: Span) -> tuple[QuerySet[Any], Span]:
    """Return the rows in a span, and the span that they cover.

    If there are more than MOST_ROWS, return the newest rows and the end of the span.
    """
    within = rows.filter(minute__gte=span.start, minute__lt=span.end)
    minutes = within.order_by("-minute").values_list("minute", flat=True)
    # The newest row that is left out, if there is one. The database finds it in the index. Its
    # minute is left out as a whole.
    for last_left_out in minutes[MOST_ROWS : MOST_ROWS + 1]:
        start = last_left_out + timedelta(minutes=1)
        return within.filter(minute__gte=start).order_by(), Span(start, span.end)
    return within.order_by(), span
