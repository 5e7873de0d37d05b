"""Read the stamps of log lines, as microseconds since 1970."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo

from ..core.caching import BoundedCache

SECOND = 1_000_000
AUTO, ISO, COMMON = "auto", "iso", "common"
# The units of numbers, and how many decimal places of each are kept, down to a microsecond.
_DECIMALS = {"s": 6, "ms": 3, "us": 0, "ns": -3}
NAMED = (AUTO, ISO, COMMON, *_DECIMALS)

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_LAST_STAMP = (datetime.max.replace(tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND
_MONTHS = {
    name: number
    for number, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)
}
_COMMON = re.compile(
    r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d)(?: ([+-]\d{4}))?", re.ASCII
)
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)? ?(Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_NUMBER = re.compile(r"(\d{1,20})(?:\.(\d*))?", re.ASCII)


class StampError(ValueError):
    """A text is not a stamp of the expected form."""


class Stamps:
    """Reads the stamps of one log. Neighbours share a minute, so minutes are cached."""

    def __init__(self, form: str = AUTO, zone: tzinfo = timezone.utc) -> None:
        """`form` is one of NAMED, or a format of `strptime`. `zone` is for stamps without one."""
        self._zone = zone
        self._form = form
        self._minutes: BoundedCache[tuple[str | int | None, ...], int] = BoundedCache(4_096)
        self._last: tuple[str | None, int] = (None, 0)
        self._read: Callable[[str], int] = {
            AUTO: self._auto,
            ISO: self._iso,
            COMMON: self._common,
            **dict.fromkeys(_DECIMALS, self._number),
        }.get(form, self._by_format)

    def __call__(self, text: str) -> int:
        """Return the stamp in microseconds; raise StampError if the text is not a stamp."""
        if text == self._last[0]:
            return self._last[1]
        try:
            stamp = self._read(text.strip())
        except (ValueError, OverflowError) as error:
            raise StampError(f"{text!r} is not a time: {error}") from error
        if not 0 <= stamp <= _LAST_STAMP:
            raise StampError(f"{text!r} is not a time between the years 1970 and 9999")
        self._last = text, stamp
        return stamp

    def _auto(self, text: str) -> int:
        if text[2:3] == "/":
            return self._common(text)
        return self._iso(text) if text[4:5] == "-" else self._number(text)

    def _common(self, text: str) -> int:
        match = _COMMON.fullmatch(text)
        if match is None:
            raise ValueError("the form is 17/Nov/2026:03:12:45 +0000")
        day, month, year, hour, minute, second, zone = match.groups()
        if month not in _MONTHS:
            raise ValueError(f"unknown month {month}")
        return self._minute(year, _MONTHS[month], day, hour, minute, zone) + _seconds(second)

    def _iso(self, text: str) -> int:
        match = _ISO.fullmatch(text)
        if match is None:
            raise ValueError("the form is 2026-11-17T03:12:45.678Z")
        year, month, day, hour, minute, second, fraction, zone = match.groups()
        micro = int((fraction or "")[:6].ljust(6, "0"))
        return self._minute(year, month, day, hour, minute, zone) + _seconds(second or "0") + micro

    def _number(self, text: str) -> int:
        match = _NUMBER.fullmatch(text)
        if match is None:
            raise ValueError("the form is a number such as 1794885165.678")
        whole, fraction = match[1], match[2] or ""
        unit = self._form if self._form in _DECIMALS else _unit(len(whole))
        decimals = _DECIMALS[unit]
        if decimals < 0:
            return int(whole) // 1_000
        return int(whole + fraction[:decimals].ljust(decimals, "0"))

    def _by_format(self, text: str) -> int:
        moment = datetime.strptime(text, self._form)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=self._zone)
        return (moment - _EPOCH) // _MICROSECOND

    def _minute(
        self, year: str, month: str | int, day: str, hour: str, minute: str, zone: str | None
    ) -> int:
        key = year, month, day, hour, minute, zone
        found = self._minutes.get(key)
        if found is None:
            tz = self._zone if zone is None else _offset(zone)
            numbers = map(int, (year, month, day, hour, minute))
            moment = datetime(*numbers, tzinfo=tz)  # type: ignore[arg-type,misc]
            found = self._minutes.keep(key, (moment - _EPOCH) // _MICROSECOND)
        return found


def _seconds(text: str) -> int:
    seconds = int(text)
    if seconds > 60:  # 60 is a leap second.
        raise ValueError(f"there is no second {text}")
    return seconds * SECOND


def _offset(text: str) -> tzinfo:
    if text == "Z":
        return timezone.utc
    minutes = 60 * int(text[1:3]) + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


def _unit(digits: int) -> str:
    """Guess the unit of a number: seconds have ten digits until the year 2286."""
    if digits <= 11:
        return "s"
    return "ms" if digits <= 14 else "us" if digits <= 17 else "ns"


def text_of(stamp: int) -> str:
    """Return a stamp as text in UTC: 2026-11-17T03:12:45Z."""
    moment = _EPOCH + timedelta(microseconds=stamp)
    return moment.isoformat().replace("+00:00", "Z")
