"""Policies (how much in how long) and profiles (policies, and what they count by)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from .durations import microseconds, seconds_exact
from .exceptions import PolicyError, Text
from .rates import RATE_HELP, parse_lease, parse_limit, parse_rate, parse_window

if TYPE_CHECKING:
    from django.http import HttpRequest

MAX_RESOLUTION = 1_000
# Without "lease_seconds", a lease lasts this share of a window, and at most this long (seconds).
_LEASE_PART, _LONGEST_LEASE = 0.01, 30.0
# Whatever "lease_seconds" says: the stamps of a compact log reach no further.
_MAX_LEASE_PART = 0.5

ALGORITHMS = ("compact", "log", "buckets", "counter")
PENALTY = "penalty"
"""In the place of an algorithm, for what counts refusals: see `algorithms.penalties`."""
SLOTS = "slots"
"""The algorithm of limits on requests in flight, which the key `inflight` chooses."""
LETTERS = {"compact": "c", "log": "l", "buckets": "b", "counter": "w", PENALTY: "p", SLOTS: "i"}
"""How keys and scripts call the algorithms."""
IN_FLIGHT = 0.0
"""In the place of a window, where an override names the limit on requests in flight."""
DEFAULT_HOLD = 120.0
"""Seconds after which a slot is free that nobody has given back."""
ENFORCE, OBSERVE, DEFERRED = MODES = ("enforce", "observe", "deferred")
FALLBACKS = ("local", "allow", "deny")
ANONYMOUS = ("ip", "skip")
LOG_REFUSED, LOG_ALL = LOGS = ("refused", "all")
NO_COUNTER_LEASE = Text("cannot be used with the algorithm counter, which is an estimate.")
NO_DEFERRED_PENALTY = Text("cannot be used with the mode deferred, which refuses afterwards.")
NO_LEASE_PENALTY = Text("cannot be used with a lease, which admits without asking Redis.")
NO_INFLIGHT_LEASE = Text("cannot be used with inflight: every request asks Redis for a slot.")
NO_INFLIGHT_DEFERRED = Text("cannot be deferred with inflight: a slot is taken before the view.")


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
    lease: int = 0
    """Hits that a process may take ahead and hand out from memory; 0 for none."""
    lease_seconds: float = 0.0
    """For how long; 0 means a hundredth of the window, at most 30. At most half of it applies."""
    override: str = ""
    """What an override has changed: "limit" or "observe"; empty for a policy of the settings."""
    inflight: bool = field(init=False, repr=False, compare=False, default=False)
    """Whether it limits requests in flight; a slot is held for `window` seconds at most."""
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        parse_limit(self.limit)
        object.__setattr__(self, "window", parse_window(self.window))
        if self.algorithm not in LETTERS:
            names = ", ".join(ALGORITHMS)
            raise PolicyError(
                "algorithm {name!r} is not one of {names}.", name=self.algorithm, names=names
            )
        object.__setattr__(self, "inflight", self.algorithm == SLOTS)
        resolution: object = self.resolution
        if (
            not isinstance(resolution, int)
            or isinstance(resolution, bool)
            or not 1 <= resolution <= MAX_RESOLUTION
        ):
            raise PolicyError(
                "resolution {value!r} is not a whole number from 1 to {highest}.",
                value=resolution,
                highest=MAX_RESOLUTION,
            )
        parse_lease(self.lease)
        if self.lease and self.algorithm == "counter":
            raise PolicyError("lease {problem}", problem=NO_COUNTER_LEASE)
        if self.lease and self.inflight:
            raise PolicyError("lease {problem}", problem=NO_INFLIGHT_LEASE)
        object.__setattr__(self, "lease_seconds", self._lease_seconds())

        # What is prepared for a set of policies is found by them at every check.
        # Of numbers alone, whose hashes hold in every process that a policy is pickled to.
        kind = ord(LETTERS[self.algorithm])
        key = (self.limit, self.window, kind, resolution, self.lease, self.lease_seconds)
        object.__setattr__(self, "_hash", hash(key))

    def _lease_seconds(self) -> float:
        if not self.lease:
            return 0.0
        wanted = self.lease_seconds or min(self.window * _LEASE_PART, _LONGEST_LEASE)
        return microseconds(min(wanted, self.window * _MAX_LEASE_PART)) / 1_000_000

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
    def lease_us(self) -> int:
        """How long a lease lasts, in microseconds; 0 without one."""
        return round(self.lease_seconds * 1_000_000)

    @property
    def counted_us(self) -> int:
        """How long a hit counts in Redis, in microseconds: longer if it may be used later."""
        return self.window_us + self.lease_us

    @property
    def window_text(self) -> str:
        """The window in seconds as plain digits: 60, 0.25."""
        return seconds_exact(self.window)

    @property
    def label(self) -> str:
        """A short name for people: 120/60s, or 5 in flight."""
        if self.inflight:
            return f"{self.limit} in flight"
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
    log: str = LOG_REFUSED
    """What the log counts: refused requests, or all."""
    limit_for: LimitCallable | None = None
    window: float | None = None
    """Seconds; completes the bare limits that `limit_for` may return."""
    algorithm: str = "compact"
    """Of the policies that `limit_for` makes."""
    resolution: int = 60
    lease: int = 0
    lease_seconds: float = 0.0
    penalty: Policy | None = None
    """An `algorithms.penalties.Penalty`; None for none."""
    inflight: int = 0
    """Requests at once, beside what `limit_for` returns; 0 for no limit."""
    hold: float = DEFAULT_HOLD

    def __post_init__(self) -> None:
        if not self.name or not self.axis:
            raise PolicyError("a profile needs a name and an axis")
        if bool(self.policies) == (self.limit_for is not None):
            raise PolicyError(f"profile {self.name!r} needs either policies or limit_for")
        for name, allowed in (("mode", MODES), ("anonymous", ANONYMOUS), ("log", LOGS)):
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
        if self.penalty is not None:
            leases = self.lease or any(policy.lease for policy in self.policies)
            for problem in no_penalty_with(self.mode, leases):
                raise PolicyError(f"penalty of profile {self.name!r} {problem}")
        if self.deferred and (self.inflight or any(one.inflight for one in self.policies)):
            raise PolicyError(f"profile {self.name!r} {NO_INFLIGHT_DEFERRED}")
        if not self.scope:
            object.__setattr__(self, "scope", self.name)

    def __hash__(self) -> int:
        # A profile is looked for at every check, and few share a name.
        return hash(self.name)

    @property
    def observed(self) -> bool:
        """Whether the profile only watches."""
        return self.mode == OBSERVE

    @property
    def deferred(self) -> bool:
        """Whether requests are charged after they were decided, in the background."""
        return self.mode == DEFERRED

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
        counting = (self.algorithm, self.resolution, self.lease, self.lease_seconds)
        given = self.name, self.window, counting, (self.inflight, self.hold), *values
        try:
            return _policies_of(*given)
        except TypeError:
            # A value that cannot be looked up is not a limit, and the error says so.
            return _policies_of.__wrapped__(*given)


# Many get the same answer, and to read it takes longer than a check. By type: True is not 1.
@lru_cache(maxsize=4096, typed=True)
def _policies_of(
    name: str,
    own_window: float | None,
    counting: tuple[str, int, int, float],
    slots: tuple[int, float],
    *values: object,
) -> tuple[Policy, ...]:
    """Return what a profile's function has answered; the same policies for the same answer."""
    policies = []
    for value in values:
        if isinstance(value, str):
            limit, window = parse_rate(value)
        elif own_window is None:
            raise PolicyError(
                f"the function for the limit of profile {name!r} returned {value!r}, "
                f"and the profile has no window: {RATE_HELP}"
            )
        else:
            limit, window = parse_limit(value), own_window
        policies.append(
            Policy(
                limit=limit,
                window=window,
                algorithm=counting[0],
                resolution=counting[1],
                lease=counting[2],
                lease_seconds=counting[3],
            )
        )
    return (*policies, *slots_policies(*slots))


def slots_policies(inflight: int, hold: float) -> tuple[Policy, ...]:
    """Return the policy for requests in flight; none for 0."""
    return (Policy(limit=inflight, window=hold, algorithm=SLOTS),) if inflight else ()


def no_penalty_with(mode: object, lease: object) -> Iterator[Text]:
    """Yield why a profile with this mode and lease cannot have a penalty."""
    if mode == DEFERRED:
        yield NO_DEFERRED_PENALTY
    if lease:
        yield NO_LEASE_PENALTY


def parse_cost(value: object) -> int:
    """Return a cost, a whole number of hits from 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"cost {value!r} is not a whole number of at least 0")
    return value
