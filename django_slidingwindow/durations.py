"""Units of time, and durations as text."""

from __future__ import annotations

# The symbol for people, microseconds, and the names that a rate may use.
UNITS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("w", 604_800_000_000, ("w", "week", "weeks")),
    ("d", 86_400_000_000, ("d", "day", "days")),
    ("h", 3_600_000_000, ("h", "hour", "hours")),
    ("min", 60_000_000, ("m", "min", "minute", "minutes")),
    ("s", 1_000_000, ("s", "sec", "second", "seconds")),
    ("ms", 1_000, ("ms",)),
)
UNITS_HELP = "ms, s, m, h, d or w (or second, minute, hour, day, week)"
SECONDS = {name: size / 1_000_000 for _, size, names in UNITS for name in names}
"""The seconds of each name."""

# People say 14 days rather than 2 weeks.
_WRITTEN = {symbol: size for symbol, size, _ in UNITS if symbol != "w"}
# A duration of at least the first is shown to the second, all in microseconds.
_STEPS = (
    (_WRITTEN["d"], _WRITTEN["h"]),
    (_WRITTEN["h"], _WRITTEN["min"]),
    (_WRITTEN["min"], _WRITTEN["s"]),
    (_WRITTEN["s"], _WRITTEN["s"] // 10),
    (0, _WRITTEN["ms"]),
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
    if 0 < micro < _WRITTEN["s"]:
        return f"{micro // _WRITTEN['ms']} ms"
    if micro < _WRITTEN["min"]:
        return f"{seconds_exact(micro / 1_000_000)} s"
    parts = []
    for symbol, size in _WRITTEN.items():
        count, micro = divmod(micro, size)
        if count:
            parts.append(f"{count} {symbol}")
    return " ".join(parts)


def count_rounded_up(seconds: float) -> tuple[int, str]:
    """Return a wait in one unit, the largest from s to d that is in it twice: (3, "h")."""
    micro = microseconds(seconds)
    for symbol in ("d", "h", "min"):
        if micro >= 2 * _WRITTEN[symbol]:
            break
    else:
        symbol = "s"
    return -(-micro // _WRITTEN[symbol]), symbol


def rate_exact(limit: int, seconds: float, *, inflight: bool = False) -> str:
    """Return a policy for people: 10,000 / 1 d, or 5 in flight."""
    if inflight:
        return f"{limit:,} in flight"
    return f"{limit:,} / {duration_exact(seconds)}"


def _rounded_up(seconds: float) -> int:
    """Return microseconds, rounded up to what is shown of such a duration."""
    micro = microseconds(seconds)
    step = next(step for least, step in _STEPS if micro >= least)
    return -(-micro // step) * step
