"""Spans of time in the query string of the list."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from django.utils import timezone

# The years that every database supports in every time zone.
_YEARS = range(1970, 9_999)
RECENT = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time from `start` up to, but not including, `end`."""

    start: datetime
    end: datetime

    @property
    def length(self) -> timedelta:
        return self.end - self.start


def now() -> datetime:
    """Return the end of the current minute, in the current time zone."""
    moment = timezone.now()
    if timezone.is_aware(moment):
        moment = timezone.localtime(moment)
    return moment.replace(second=0, microsecond=0) + timedelta(minutes=1)


def last(length: timedelta) -> Span:
    """Return the span of this length that ends now."""
    end = now()
    return Span(end - length, end)


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
    return [now().date() - timedelta(days=back) for back in range(count)]


def today() -> Span:
    end = now()
    return Span(_at((end - timedelta(minutes=1)).date(), 0), end)


def _at(day: date, hour: int) -> datetime:
    moment = datetime.combine(day, time(hour))
    return timezone.make_aware(moment) if timezone.is_aware(timezone.now()) else moment
