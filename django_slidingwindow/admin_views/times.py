"""Stretches of time that the log is looked at by, as they stand in an address."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from math import ceil

from django.utils import timezone
from django.utils.translation import gettext as _

RECENT = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}


@dataclass(frozen=True, slots=True)
class Span:
    """From `start` up to, but without, `end`."""

    start: datetime
    end: datetime

    @property
    def length(self) -> timedelta:
        return self.end - self.start


def now() -> datetime:
    """The present minute's end, in the current time zone."""
    moment = timezone.now()
    if timezone.is_aware(moment):
        moment = timezone.localtime(moment)
    return moment.replace(second=0, microsecond=0) + timedelta(minutes=1)


def last(length: timedelta) -> Span:
    """The stretch that ends now."""
    end = now()
    return Span(end - length, end)


def parse_span(text: str) -> Span:
    """Of "24h", of a day "2026-11-16" or of an hour "2026-11-16T13"; else a ValueError."""
    if text in RECENT:
        return last(RECENT[text])
    day, _at_hour, hour = text.partition("T")
    if not hour:
        start = date.fromisoformat(day)
        return Span(_at(start, 0), _at(start + timedelta(days=1), 0))
    start_at = _at(date.fromisoformat(day), int(hour))
    return Span(start_at, start_at + timedelta(hours=1))


def days(count: int) -> list[date]:
    """The last days, the newest first."""
    return [now().date() - timedelta(days=back) for back in range(count)]


def today() -> Span:
    end = now()
    return Span(_at((end - timedelta(minutes=1)).date(), 0), end)


def _at(day: date, hour: int) -> datetime:
    moment = datetime.combine(day, time(hour))
    return timezone.make_aware(moment) if timezone.is_aware(timezone.now()) else moment


def duration(seconds: float | None) -> str:
    """Seconds for people: 42 s, 1 h 3 min; rounded up, so that nobody comes too early."""
    if seconds is None:
        return _("never")
    whole = ceil(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days_, hours = divmod(hours, 24)
    parts = [(days_, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    while len(parts) > 1 and not parts[0][0]:
        del parts[0]
    # Two units are enough, and the second only if it says something.
    (first, unit), *others = parts[:2]
    return " ".join([f"{first} {unit}", *(f"{n} {name}" for n, name in others if n)])
