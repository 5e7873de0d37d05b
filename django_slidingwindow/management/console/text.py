"""Values as text for a terminal: short, and harmless whatever an identifier holds."""

from __future__ import annotations

from collections.abc import Iterable

from ...durations import duration_rounded_up
from ...rejections.text import printable

BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = " .:-=+*#@"


def harmless(value: object) -> str:
    """The text without anything that a terminal obeys."""
    return printable(str(value))


def as_key(key: str) -> str:
    """A key as it can be given to a command again: escapes that it has are its own."""
    return key if key.isprintable() else harmless(key)


def wait(seconds: float | None) -> str:
    """Return how long something still takes; None is for ever."""
    return "never" if seconds is None else duration_rounded_up(seconds)


def number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def percent(use: float | None) -> str:
    """A share in whole percent; 100 only if it is full."""
    return "-" if use is None else f"{_parts(use, 100)}%"


def size(count: int | None) -> str:
    """Bytes, for people."""
    if count is None:
        return "-"
    if count < 10_000:
        return f"{count:,} B"
    return f"{count / 1024:,.1f} KiB" if count < 10 * 1024**2 else f"{count / 1024**2:,.1f} MiB"


def bar(use: float | None, width: int = 10) -> str:
    """A bar that is full only if the limit is reached."""
    filled = _parts(use or 0.0, width)
    return "█" * filled + "░" * (width - filled)


def _parts(use: float, whole: int) -> int:
    # 0.29 * 100 is a little less than 29.
    return int(round(use * whole, 6))


def density(hits: Iterable[tuple[float, int]], window: float, width: int = 60) -> list[int]:
    """Hits in equal parts of the window, the oldest first."""
    counts = [0] * width
    for age, count in hits:
        counts[width - 1 - min(width - 1, int(age / window * width))] += count
    return counts


def sparkline(counts: Iterable[int]) -> str:
    """A line of blocks; whatever is not nothing shows."""
    values = list(counts)
    most = max(values, default=0) or 1
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[-(-value * top // most)] for value in values)


def in_encoding(text: str, encoding: str | None) -> str:
    """The text as the stream can write it: drawings in ASCII, the rest spelled out."""
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        drawn = text.translate(str.maketrans(BLOCKS + "░", _ASCII_BLOCKS + "."))
        return drawn.encode(encoding or "utf-8", "backslashreplace").decode(encoding or "utf-8")
    return text
