"""Parse rates, limits, windows and leases as people write them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeGuard

from .durations import SECONDS, UNITS_HELP, microseconds
from .exceptions import PolicyError, Text

MIN_WINDOW = 0.001
MAX_WINDOW = 400 * SECONDS["d"]
# A compact log has four bytes for each hit, and a Redis string holds 512 MB.
MAX_LIMIT = 100_000_000
MAX_LEASE = 10_000
MAX_INFLIGHT = 10_000

RATE_HELP = Text('a rate is a whole number, "/" and a window, such as "120/m" or "10/30s".')
# The number of digits is bounded, because int() raises another error for thousands of them.
_WINDOW = r"\s*(\d{0,18})\s*([a-zA-Z]*)\s*"
_LIMIT = r"\d{1,18}"


def parse_window(value: object) -> float:
    """Return a window in seconds. It may be given as seconds, a timedelta or text such as "1m"."""
    seconds: float
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        seconds = _window_from_text(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = value
    else:
        raise PolicyError(
            "window {value!r} is not seconds, a timedelta or a string such as '1m'.", value=value
        )
    # NaN fails this comparison as well.
    if not MIN_WINDOW <= seconds <= MAX_WINDOW:
        raise PolicyError(
            "window {value!r} is out of range: use 1 millisecond to 400 days.", value=value
        )
    return microseconds(seconds) / 1_000_000


def _window_from_text(text: str) -> float:
    match = re.fullmatch(_WINDOW, text, re.ASCII)
    if match is None or not match[2]:
        raise PolicyError(
            "window {text!r} is not valid: use a whole number and a unit. Units are {units}.",
            text=text,
            units=UNITS_HELP,
        )
    count, unit = match.groups()
    if unit not in SECONDS:
        raise PolicyError(
            "unknown unit {unit!r} in {text!r}. Units are {units}.",
            unit=unit,
            text=text,
            units=UNITS_HELP,
        )
    return int(count or 1) * SECONDS[unit]


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number. True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def parse_limit(value: object) -> int:
    """Return a limit, a whole number of hits; 0 blocks everything."""
    if not is_whole(value):
        raise PolicyError("limit {value!r} is not a whole number.", value=value)
    if not 0 <= value <= MAX_LIMIT:
        raise PolicyError(
            "limit {value!r} is out of range: use 0 to {highest:,}.", value=value, highest=MAX_LIMIT
        )
    return value


def parse_lease(value: object) -> int:
    """Return a lease, the number of hits that a process may take ahead; 0 for none."""
    if not is_whole(value) or not 0 <= value <= MAX_LEASE:
        raise PolicyError(
            "lease {value!r} is not a whole number from 0 to {highest:,}.",
            value=value,
            highest=MAX_LEASE,
        )
    return value


def parse_inflight(value: object) -> int:
    """Return the number of requests that may be in flight at once."""
    if not is_whole(value) or not 1 <= value <= MAX_INFLIGHT:
        raise PolicyError(
            "inflight {value!r} is not a whole number from 1 to {highest:,}.",
            value=value,
            highest=MAX_INFLIGHT,
        )
    return value


def parse_rate(rate: object) -> tuple[int, float]:
    """Return the limit, and the window in seconds, of a rate such as "120/m"."""
    if not isinstance(rate, str):
        raise PolicyError("rate {rate!r} is not a string: {help}", rate=rate, help=RATE_HELP)
    limit, slash, window = rate.partition("/")
    limit = limit.strip()
    if not slash:
        raise PolicyError("rate {rate!r} has no '/': {help}", rate=rate, help=RATE_HELP)
    if not re.fullmatch(_LIMIT, limit, re.ASCII):
        raise PolicyError(
            "limit {limit!r} of rate {rate!r} is not a whole number: {help}",
            limit=limit,
            rate=rate,
            help=RATE_HELP,
        )
    return parse_limit(int(limit)), parse_window(window)
