"""Policies (how much in how long) and profiles (policies, and what they count by)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from .durations import SECONDS, UNITS_HELP, microseconds, seconds_exact
from .exceptions import PolicyError

if TYPE_CHECKING:
    from django.http import HttpRequest

MIN_WINDOW = 0.001
MAX_WINDOW = 400 * SECONDS["d"]
# A compact log spends four bytes a hit, and a Redis string holds 512 MB.
MAX_LIMIT = 100_000_000
MAX_RESOLUTION = 1_000

ALGORITHMS = ("compact", "log", "buckets", "counter")
LETTERS = {name: name[0] if name != "counter" else "w" for name in ALGORITHMS}
"""How keys and scripts call the algorithms."""
ENFORCE, OBSERVE = MODES = ("enforce", "observe")
FALLBACKS = ("local", "allow", "deny")
ANONYMOUS = ("ip", "skip")

_RATE_HELP = 'a rate is a whole number, "/" and a window, such as "120/m", "10/30s" or "100/d"'
# Bounded, because int() refuses some thousand digits with an error of its own.
_WINDOW = r"\s*(\d{0,18})\s*([a-zA-Z]*)\s*"
_LIMIT = r"\d{1,18}"


def parse_window(value: object) -> float:
    """Return the window in seconds, from seconds, a timedelta or text such as "1m"."""
    seconds: float
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        seconds = _window_from_text(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = value
    else:
        raise PolicyError(f"window {value!r} is neither seconds, a timedelta nor text such as '1m'")
    # Written so that NaN fails as well.
    if not MIN_WINDOW <= seconds <= MAX_WINDOW:
        raise PolicyError(
            f"window {value!r} is out of range: allowed is from 1 millisecond to 400 days"
        )
    return microseconds(seconds) / 1_000_000


def _window_from_text(text: str) -> float:
    match = re.fullmatch(_WINDOW, text, re.ASCII)
    if match is None or not match[2]:
        raise PolicyError(
            f"window {text!r} is not understood: allowed is a whole number and a unit, {UNITS_HELP}"
        )
    count, unit = match.groups()
    if unit not in SECONDS:
        raise PolicyError(f"unknown unit {unit!r} in {text!r}: allowed is {UNITS_HELP}")
    return int(count or 1) * SECONDS[unit]


def parse_limit(value: object) -> int:
    """Return the limit, a whole number of hits; 0 blocks everything."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise PolicyError(f"limit {value!r} is not a whole number")
    if not 0 <= value <= MAX_LIMIT:
        raise PolicyError(f"limit {value!r} is out of range: allowed is 0 to {MAX_LIMIT:,}")
    return value


def parse_rate(rate: object) -> tuple[int, float]:
    """Limit and window in seconds, from text such as "120/m"."""
    if not isinstance(rate, str):
        raise PolicyError(f"rate {rate!r} is not text: {_RATE_HELP}")
    limit, slash, window = rate.partition("/")
    limit = limit.strip()
    if not slash:
        raise PolicyError(f"rate {rate!r} has no '/': {_RATE_HELP}")
    if not re.fullmatch(_LIMIT, limit, re.ASCII):
        raise PolicyError(f"limit {limit!r} of rate {rate!r} is not a whole number: {_RATE_HELP}")
    return parse_limit(int(limit)), parse_window(window)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How many hits in how long, and how they are counted."""

    limit: int
    """Hits admitted in any window; 0 admits none."""
    window: float
    """Seconds. Accepts what `parse_window` does."""
    algorithm: str = "compact"
    resolution: int = 60
    """Sub-windows in a window; for the algorithm `buckets` alone."""
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        parse_limit(self.limit)
        object.__setattr__(self, "window", parse_window(self.window))
        if self.algorithm not in ALGORITHMS:
            raise PolicyError(
                f"unknown algorithm {self.algorithm!r}: allowed is one of {', '.join(ALGORITHMS)}"
            )
        resolution: object = self.resolution
        if (
            not isinstance(resolution, int)
            or isinstance(resolution, bool)
            or not 1 <= resolution <= MAX_RESOLUTION
        ):
            raise PolicyError(
                f"resolution {resolution!r} is not a whole number from 1 to {MAX_RESOLUTION}"
            )

        # What is prepared for a set of policies is found by them at every check.
        # Of numbers alone, whose hashes hold in every process that a policy is pickled to.
        key = (self.limit, self.window, ALGORITHMS.index(self.algorithm), resolution)
        object.__setattr__(self, "_hash", hash(key))

    def __hash__(self) -> int:
        return self._hash

    @classmethod
    def parse(cls, rate: str, *, algorithm: str = "compact", resolution: int = 60) -> Policy:
        """Return the policy of a rate such as "120/m"."""
        limit, window = parse_rate(rate)
        return cls(limit=limit, window=window, algorithm=algorithm, resolution=resolution)

    @property
    def window_us(self) -> int:
        """The window in microseconds, the unit of the stores' clocks."""
        return round(self.window * 1_000_000)

    @property
    def window_text(self) -> str:
        """The window in seconds as plain digits: 60, 0.25."""
        return seconds_exact(self.window)

    @property
    def label(self) -> str:
        """A short name for people: 120/60s."""
        return f"{self.limit}/{self.window_text}s"


# What a limit callable may return: a rate, a bare limit (the profile has the
# window), several of them, or None for no limit.
LimitValue: TypeAlias = "str | int | list[str] | tuple[str, ...] | None"
LimitCallable: TypeAlias = "Callable[[str, HttpRequest | None], LimitValue]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A named set of policies, what they count by, and what they do."""

    name: str
    axis: str
    policies: tuple[Policy, ...] = ()
    """Empty where `limit_for` decides for each identifier."""
    scope: str = ""
    """What shares one window; the profile's name unless it says otherwise."""
    mode: str = ENFORCE
    count_rejected: bool = False
    fallback: str | None = None
    """None: as the setting FALLBACK says."""
    anonymous: str = "ip"
    """What the axis `user` does without a user: count the address, or skip."""
    limit_for: LimitCallable | None = None
    window: float | None = None
    """Seconds; completes the bare limits that `limit_for` may return."""
    algorithm: str = "compact"
    """Of the policies that `limit_for` makes."""
    resolution: int = 60

    def __post_init__(self) -> None:
        if not self.name or not self.axis:
            raise PolicyError("a profile needs a name and an axis")
        if bool(self.policies) == (self.limit_for is not None):
            raise PolicyError(f"profile {self.name!r} needs either policies or limit_for")
        for name, allowed in (("mode", MODES), ("anonymous", ANONYMOUS)):
            if getattr(self, name) not in allowed:
                raise PolicyError(
                    f"{name} {getattr(self, name)!r} of profile {self.name!r} is not one of "
                    + ", ".join(allowed)
                )
        if self.fallback is not None and self.fallback not in FALLBACKS:
            raise PolicyError(
                f"fallback {self.fallback!r} of profile {self.name!r} is not one of "
                + ", ".join(FALLBACKS)
            )
        if not self.scope:
            object.__setattr__(self, "scope", self.name)

    def __hash__(self) -> int:
        # A profile is looked for at every check, and few share a name.
        return hash(self.name)

    @property
    def observed(self) -> bool:
        """Whether the profile only watches."""
        return self.mode == OBSERVE

    def policies_for(
        self, identifier: str, request: HttpRequest | None = None
    ) -> tuple[Policy, ...]:
        """Return the policies that count this identifier; none means no limit."""
        if self.limit_for is None:
            return self.policies
        answer: Any = self.limit_for(identifier, request)
        if answer is None:
            return ()
        values = answer if isinstance(answer, (list, tuple)) else (answer,)
        given = self.name, self.window, self.algorithm, self.resolution, *values
        try:
            return _policies_of(*given)
        except TypeError:
            # A value that cannot be looked up is no limit, and the error says so.
            return _policies_of.__wrapped__(*given)


# Many get the same answer, and to read it takes longer than a check. By type: True is not 1.
@lru_cache(maxsize=4096, typed=True)
def _policies_of(
    name: str, own_window: float | None, algorithm: str, resolution: int, *values: object
) -> tuple[Policy, ...]:
    """Return what a profile's function has answered; the same policies for the same answer."""
    policies = []
    for value in values:
        if isinstance(value, str):
            limit, window = parse_rate(value)
        elif own_window is None:
            raise PolicyError(
                f"the limit of profile {name!r} came out as {value!r}, "
                f"and it has no window of its own: {_RATE_HELP}"
            )
        else:
            limit, window = parse_limit(value), own_window
        policies.append(
            Policy(limit=limit, window=window, algorithm=algorithm, resolution=resolution)
        )
    return tuple(policies)


def parse_cost(value: object) -> int:
    """Return a cost, a whole number of hits from 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"cost {value!r} is not a whole number from 0")
    return value
