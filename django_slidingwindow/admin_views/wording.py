"""Values as the pages show them: short, exact where that matters, the same on every page."""

from __future__ import annotations

from datetime import datetime
from math import ceil

from django.utils import timezone
from django.utils.translation import gettext as _

from ..models import Rejection

_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def number(value: int) -> str:
    return f"{value:,}"


def duration(seconds: float | None) -> str:
    """Seconds for people: 42 s, 1 h 3 min; rounded up, so that nobody comes too early."""
    if seconds is None:
        return _("never")
    parts = _parts(ceil(seconds))
    # Two units are enough, and the second only if it says something.
    (first, unit), *others = parts[:2]
    return " ".join([f"{first} {unit}", *(f"{n} {name}" for n, name in others if n)])


def window(seconds: float) -> str:
    """The length of a window, exactly: 1 min, 1 h 30 min, 0.5 s, 3661 s."""
    if seconds != int(seconds) or any(n for n, _unit in _parts(int(seconds))[2:]):
        return f"{seconds:g} s"
    return duration(seconds)


def rate(limit: int, seconds: float) -> str:
    """A policy: 10,000 / 1 d."""
    return f"{number(limit)} / {window(seconds)}"


def policy(row: Rejection) -> str:
    """The policy of a row of the log, if one was looked at."""
    return "-" if row.limit is None or row.window is None else rate(row.limit, row.window)


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


def _parts(whole: int) -> list[tuple[int, str]]:
    """The number in units, from the largest that it reaches down to seconds."""
    parts: list[tuple[int, str]] = []
    for unit, size in _UNITS:
        count, whole = divmod(whole, size)
        if count or parts or unit == "s":
            parts.append((count, unit))
    return parts
