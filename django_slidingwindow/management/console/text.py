"""Format values as short text that is safe for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from ...durations import duration_rounded_up
from ...rejections.text import printable

BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = " .:-=+*#@"


def harmless(value: object) -> str:
    """Return the text with control characters escaped."""
    return printable(str(value))


def or_dash(value: object) -> str:
    """Return the text with control characters escaped; a dash for None and for an empty text."""
    return "-" if value in (None, "") else harmless(value)


def as_key(key: str) -> str:
    """Return a key as the command accepts it. A printable key is not escaped again."""
    return key if key.isprintable() else harmless(key)


def wait(seconds: float | None) -> str:
    """Return a duration as text; "never" for None."""
    return "never" if seconds is None else duration_rounded_up(seconds)


def number(value: int | None) -> str:
    """Return a number with separators for thousands; a dash for None."""
    return "-" if value is None else f"{value:,}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 error, 1,200 errors."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def percent(use: float | None) -> str:
    """Return a share in whole percent, rounded down: 100% means full."""
    return "-" if use is None else f"{_parts(use, 100)}%"


def size(count: int | None) -> str:
    """Return a number of bytes with a unit."""
    if count is None:
        return "-"
    if count < 10_000:
        return f"{count:,} B"
    return f"{count / 1024:,.1f} KiB" if count < 10 * 1024**2 else f"{count / 1024**2:,.1f} MiB"


def bar(use: float | None, width: int = 10) -> str:
    """Return a bar, rounded down: the bar is full only if the limit is reached."""
    filled = _parts(use or 0.0, width)
    return "█" * filled + "░" * (width - filled)


def _parts(use: float, whole: int) -> int:
    """Return how many of `whole` equal parts are used, rounded down."""
    # Round first, because 0.29 * 100 is a little less than 29.
    return int(round(use * whole, 6))


def density(hits: Iterable[tuple[float, int]], window: float, width: int = 60) -> list[int]:
    """Count the hits in equal parts of the window, the oldest first."""
    counts = [0] * width
    for age, count in hits:
        counts[width - 1 - min(width - 1, int(age / window * width))] += count
    return counts


def sparkline(counts: Iterable[int]) -> str:
    """Return a line of blocks, rounded up: every count above 0 is visible."""
    values = list(counts)
    most = max(values, default=0) or 1
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[-(-value * top // most)] for value in values)


def in_encoding(text: str, encoding: str | None) -> str:
    """Return the text with only characters that the encoding has.

    If one is missing, blocks become ASCII and other missing characters are escaped.
    """
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        drawn = text.translate(str.maketrans(BLOCKS + "░", _ASCII_BLOCKS + "."))
        return drawn.encode(encoding or "utf-8", "backslashreplace").decode(encoding or "utf-8")
    return text
