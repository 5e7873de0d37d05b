"""Spans of time that pages show, and their form in the query string."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from datetime import timezone as zones

from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from ..inspection.spans import Span, last, local, now

# The years that every database supports in every time zone.
_YEARS = range(1970, 9_999)
RECENT = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}
"""The lengths of the spans that end now."""
SPANS = {"1h": _("Past hour"), "24h": _("Past 24 hours"), "7d": _("Past 7 days")}
"""The names of these spans."""


def parse_span(text: str) -> Span:
    """Parse "24h", a day "2026-11-16" or an hour "2026-11-16T13". Raise ValueError otherwise."""
    if text in RECENT:
        return last(RECENT[text])
    day, _at_hour, hour = text.partition("T")
    start = datetime.combine(date.fromisoformat(day), time(int(hour or 0)))
    if start.year not in _YEARS:
        raise ValueError(f"the year {start.year} is out of range")
    return Span(_at(start), _at(start + (timedelta(hours=1) if hour else timedelta(days=1))))


def days(count: int) -> list[date]:
    """Return the last `count` days, the newest first."""
    newest = _last_day(now())
    return [newest - timedelta(days=back) for back in range(count)]


def today() -> Span:
    """Return the span from midnight until now."""
    end = now()
    return Span(_at(datetime.combine(_last_day(end), time())), end)


def _last_day(end: datetime) -> date:
    """Return the day that a span ends in. It may end at the next midnight."""
    return local(end - timedelta(minutes=1)).date()


def _at(moment: datetime) -> datetime:
    """Return a local time as `now` does: aware in UTC, or naive without USE_TZ."""
    if timezone.is_naive(timezone.now()):
        return moment
    return timezone.make_aware(moment).astimezone(zones.utc)
