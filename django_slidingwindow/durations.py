"""Units of time, and durations as text."""

from __future__ import annotations

# For each unit: the symbol in texts, its microseconds, and its names in rates.
UNITS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("w", 604_800_000_000, ("w", "week", "weeks")),
    ("d", 86_400_000_000, ("d", "day", "days")),
    ("h", 3_600_000_000, ("h", "hour", "hours")),
    ("min", 60_000_000, ("m", "min", "minute", "minutes")),
    ("s", 1_000_000, ("s", "sec", "second", "seconds")),
    ("ms", 1_000, ("ms",)),
)
# Only names of units, because it is a value in texts of all languages.
UNITS_HELP = "ms, s, m, h, d, w (second, minute, hour, day, week)"
SECONDS = {name: size / 1_000_000 for _, size, names in UNITS for name in names}
"""Seconds by the name of a unit."""

# The units in texts, in microseconds. No weeks: people say 14 days rather than 2 weeks.
_SHOWN = {symbol: size for symbol, size, _ in UNITS if symbol != "w"}
# How precisely a duration is shown: pairs of the least duration and the step to which it is rounded
# up, in microseconds.
_STEPS = (
    (_SHOWN["d"], _SHOWN["h"]),
    (_SHOWN["h"], _SHOWN["min"]),
    (_SHOWN["min"], _SHOWN["s"]),
    (_SHOWN["s"], _SHOWN["s"] // 10),
    (0, _SHOWN["ms"]),
)


def microseconds(seconds: float) -> int:
    """Return the nearest whole microsecond, which removes the noise of float arithmetic."""
    return round(seconds * 1_000_000)


def seconds_exact(seconds: float) -> str:
    """Return seconds as plain digits, to the microsecond: 60, 0.25."""
    whole, micro = divmod(microseconds(seconds), 1_000_000)
    return f"{whole}.{micro:06}".rstrip("0") if micro else str(whole)


def duration_exact(seconds: float) -> str:
    """Return the length of a window: 1 min, 1 h 30 min, 500 ms, 3661 s."""
    if _rounded_up(seconds) == microseconds(seconds):
        return duration_rounded_up(seconds)
    return f"{seconds_exact(seconds)} s"


def duration_rounded_up(seconds: float) -> str:
    """Return a wait that is never too short: 250 ms, 12.3 s, 4 min 10 s, 3 d 4 h."""
    micro = _rounded_up(seconds)
    if 0 < micro < _SHOWN["s"]:
        return f"{micro // _SHOWN['ms']} ms"
    if micro < _SHOWN["min"]:
        return f"{seconds_exact(micro / 1_000_000)} s"
    parts = []
    for symbol, size in _SHOWN.items():
        count, micro = divmod(micro, size)
        if count:
            parts.append(f"{count} {symbol}")
    return " ".join(parts)


def count_rounded_up(seconds: float) -> tuple[int, str]:
    """Return a wait in one unit, such as (3, "h"): the largest that fits in it at least twice."""
    micro = microseconds(seconds)
    for symbol in ("d", "h", "min"):
        if micro >= 2 * _SHOWN[symbol]:
            break
    else:
        symbol = "s"
    return -(-micro // _SHOWN[symbol]), symbol


def rate_exact(limit: int, seconds: float, *, inflight: bool = False) -> str:
    """Return a policy as text for people: 10,000 / 1 d, or 5 in flight."""
    if inflight:
        return f"{limit:,} in flight"
    return f"{limit:,} / {duration_exact(seconds)}"


def _rounded_up(seconds: float) -> int:
    """Return the microseconds of a duration, rounded up to the step in which it is shown."""
    micro = microseconds(seconds)
    step = next(step for least, step in _STEPS if micro >= least)
    return -(-micro // step) * step
