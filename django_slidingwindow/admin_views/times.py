"""Spans of time that pages show, and their form in the query string."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta

from django.utils import timezone

from ..inspection.spans import Span, last, now

# The years that every database supports in every time zone.
_YEARS = range(1970, 9_999)
RECENT = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}
"""The lengths of the spans that end now."""


def parse_span(text: str) -> Span:
    """Parse "24h", a day "2026-11-16" or an hour "2026-11-16T13". Raise ValueError otherwise."""
    if text in RECENT:
        return last(RECENT[text])
    day, _at_hour, hour = text.partition("T")
    start = date.fromisoformat(day)
    if start.year not in _YEARS:
        raise ValueError(f"the year {start.year} is out of range")
    if not hour:
        return Span(_at(start, 0), _at(start + timedelta(days=1), 0))
    start_at = _at(start, int(hour))
    return Span(start_at, start_at + timedelta(hours=1))


def days(count: int) -> list[date]:
    """Return the last `count` days, the newest first."""
    newest = today().start.date()
    return [newest - timedelta(days=back) for back in range(count)]


def today() -> Span:
    """Return the span from midnight until now."""
    end = now()
    # `now` is the end of the current minute, which may be the next midnight.
    return Span(_at((end - timedelta(minutes=1)).date(), 0), end)


def _at(day: date, hour: int) -> datetime:
    """Return the start of an hour: aware with USE_TZ, otherwise naive."""
    moment = datetime.combine(day, time(hour))
    return timezone.make_aware(moment) if timezone.is_aware(timezone.now()) else moment
