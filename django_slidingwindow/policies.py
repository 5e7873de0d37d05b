"""Policies (a limit for a window) and profiles (policies, and what they count by)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from .durations import microseconds, seconds_exact
from .exceptions import PolicyError, Text
from .rates import RATE_HELP, is_whole, parse_lease, parse_limit, parse_rate, parse_window

if TYPE_CHECKING:
    from django.http import HttpRequest

MAX_RESOLUTION = 1_000
# Without "lease_seconds", a lease lasts this share of the window, and at most this many seconds.
_DEFAULT_LEASE_SHARE, _MAX_DEFAULT_LEASE = 0.01, 30.0
# No lease lasts longer than this share of the window: the stamps of a compact log have no room for
# more.
_MAX_LEASE_SHARE = 0.5

ALGORITHMS = ("compact", "log", "buckets", "counter")
PENALTY = "penalty"
"""The algorithm of penalties, which count refusals: see `algorithms.penalties`."""
SLOTS = "slots"
"""The algorithm of limits on requests in flight, which the key `inflight` chooses."""
LETTERS = {"compact": "c", "log": "l", "buckets": "b", "counter": "w", PENALTY: "p", SLOTS: "i"}
"""The algorithms' names in keys and scripts."""
IN_FLIGHT = 0.0
"""Stands for the window of a limit on requests in flight, where an override names windows."""
DEFAULT_HOLD = 120.0
"""Seconds after which a slot is free again, even if nobody has given it back."""
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
    """How many hits a window admits, and how they are counted."""

    limit: int
    """Hits admitted in any window; 0 admits none."""
    window: float
    """Seconds. May be given as anything that `parse_window` accepts."""
    algorithm: str = "compact"
    resolution: int = 60
    """The number of sub-windows; only the algorithm `buckets` uses it."""
    lease: int = 0
    """Hits that a process may take ahead and hand out from memory; 0 for none."""
    lease_seconds: float = 0.0
    """How long a process may hand them out. 0 stands for a hundredth of the window, at most 30.

    Never more than half of the window. 0 without a lease.
    """
    override: str = ""
    """The action of the override that made the policy: "limit" or "observe"; empty without one."""
    inflight: bool = field(init=False, repr=False, compare=False, default=False)
    """Whether the policy limits requests in flight. A slot is held for at most `window` seconds."""
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
        if not is_whole(self.resolution) or not 1 <= self.resolution <= MAX_RESOLUTION:
            raise PolicyError(
                "resolution {value!r} is not a whole number from 1 to {highest}.",
                value=self.resolution,
                highest=MAX_RESOLUTION,
            )
        parse_lease(self.lease)
        if self.lease and self.algorithm == "counter":
            raise PolicyError("lease {problem}", problem=NO_COUNTER_LEASE)
        if self.lease and self.inflight:
            raise PolicyError("lease {problem}", problem=NO_INFLIGHT_LEASE)
        object.__setattr__(self, "lease_seconds", self._lease_seconds())
        # Computed once, because every check looks up what is prepared for its policies.
        # Only of numbers: policies are pickled, and the hash of a string differs between processes.
        kind = ord(LETTERS[self.algorithm])
        key = (self.limit, self.window, kind, self.resolution, self.lease, self.lease_seconds)
        object.__setattr__(self, "_hash", hash(key))

    def _lease_seconds(self) -> float:
        if not self.lease:
            return 0.0
        wanted = self.lease_seconds or min(self.window * _DEFAULT_LEASE_SHARE, _MAX_DEFAULT_LEASE)
        if not (isinstance(wanted, (int, float)) and wanted > 0):
            raise PolicyError(f"lease_seconds {wanted!r} is not a positive number.")
        return microseconds(min(wanted, self.window * _MAX_LEASE_SHARE)) / 1_000_000

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
        """How long a hit counts in Redis, in microseconds: a leased hit may be used later."""
        return self.window_us + self.lease_us

    @property
    def window_text(self) -> str:
        """The window in seconds as plain digits: 60, 0.25."""
        return seconds_exact(self.window)

    @property
    def label(self) -> str:
        """A short name for people: 120/60s, or 5 in flight."""
        limit = self.limit
        return f"{limit} in flight" if self.inflight else f"{limit}/{self.window_text}s"


# What a function for the limit may return: a rate, a number (the profile has the window), several
# of them, or None for no limit.
LimitValue: TypeAlias = "str | int | list[str] | tuple[str, ...] | None"
LimitCallable: TypeAlias = "Callable[[str, HttpRequest | None], LimitValue]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A named set of policies: what they count by, and what happens above the limit."""

    name: str
    axis: str
    policies: tuple[Policy, ...] = ()
    """Empty if `limit_for` returns the limits of each identifier."""
    scope: str = ""
    """Profiles with the same axis and scope share their windows; by default the profile's name."""
    mode: str = ENFORCE
    count_rejected: bool = False
    fallback: str | None = None
    """None for the setting FALLBACK."""
    anonymous: str = "ip"
    """How anonymous requests are counted: by address ("ip"), or not at all ("skip")."""
    log: str = LOG_REFUSED
    """What the log counts: refused requests, or all."""
    limit_for: LimitCallable | None = None
    window: float | None = None
    """Seconds; the window of limits that `limit_for` returns as a number."""
    algorithm: str = "compact"
    """Like the next three, a field of the policies that are made from the result of `limit_for`."""
    resolution: int = 60
    lease: int = 0
    lease_seconds: float = 0.0
    penalty: Policy | None = None
    """An `algorithms.penalties.Penalty`; None for none."""
    inflight: int = 0
    """How many requests may run at once, beside what `limit_for` returns; 0 for no limit."""
    hold: float = DEFAULT_HOLD
    """Seconds for which such a request may hold its slot."""

    def __post_init__(self) -> None:
        if not self.name or not self.axis:
            raise PolicyError("a profile needs a name and an axis")
        if bool(self.policies) == (self.limit_for is not None):
            raise PolicyError(f"profile {self.name!r} needs either policies or limit_for")
        choices = {"mode": MODES, "anonymous": ANONYMOUS, "log": LOGS}
        if self.fallback is not None:
            choices["fallback"] = FALLBACKS
        for name, allowed in choices.items():
            value, names = getattr(self, name), ", ".join(allowed)
            if value not in allowed:
                raise PolicyError(
                    f"{name} {value!r} of profile {self.name!r} is not one of {names}"
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
        # Fast, because every check looks up its profiles. Few profiles share a name.
        return hash(self.name)

    @property
    def observed(self) -> bool:
        """Whether the profile counts and logs, but never refuses."""
        return self.mode == OBSERVE

    @property
    def deferred(self) -> bool:
        """Whether requests are decided at once and charged later, in the background."""
        return self.mode == DEFERRED

    def policies_for(
        self, identifier: str, request: HttpRequest | None = None
    ) -> tuple[Policy, ...]:
        """Return the policies that apply to this identifier; an empty tuple for no limit."""
        if self.limit_for is None:
            return self.policies
        returned: Any = self.limit_for(identifier, request)
        if returned is None:
            return ()
        values = returned if isinstance(returned, (list, tuple)) else (returned,)
        if not values:
            raise PolicyError(
                f"the function for the limit of profile {self.name!r} returned no rate; "
                "for no limit, it has to return None"
            )
        counting = (self.algorithm, self.resolution, self.lease, self.lease_seconds)
        arguments = self.name, self.window, counting, (self.inflight, self.hold), *values
        try:
            return _policies_of(*arguments)
        except TypeError:
            # A value that cannot be hashed is not a limit. Without the cache, the error says so.
            return _policies_of.__wrapped__(*arguments)


# Cached, because parsing takes longer than a check, and many identifiers have the same limit.
# Typed, because True equals 1 but is not a limit.
@lru_cache(maxsize=4096, typed=True)
def _policies_of(
    name: str,
    own_window: float | None,
    counting: tuple[str, int, int, float],
    slots: tuple[int, float],
    *values: object,
) -> tuple[Policy, ...]:
    """Return the policies for the values that a profile's function has returned."""
    algorithm, resolution, lease, lease_seconds = counting
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
                algorithm=algorithm,
                resolution=resolution,
                lease=lease,
                lease_seconds=lease_seconds,
            )
        )
    return (*policies, *slots_policies(*slots))


def slots_policies(inflight: int, hold: float) -> tuple[Policy, ...]:
    """Return the policy for requests in flight as a tuple, which is empty for 0."""
    return (Policy(limit=inflight, window=hold, algorithm=SLOTS),) if inflight else ()


def rates_of(policies: Iterable[Policy]) -> tuple[Policy, ...]:
    """Return the policies that count hits in a window, without the one for requests in flight."""
    return tuple([policy for policy in policies if not policy.inflight])


def no_penalty_with(mode: object, lease: object) -> Iterator[Text]:
    """Yield the reasons why a profile with this mode and lease cannot have a penalty."""
    if mode == DEFERRED:
        yield NO_DEFERRED_PENALTY
    if lease:
        yield NO_LEASE_PENALTY


def parse_cost(value: object) -> int:
    """Return a cost, a whole number of hits from 0."""
    # Without a call of `is_whole`, because every request runs this if a function returns its cost.
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"cost {value!r} is not a whole number of at least 0")
    return value
