"""The goals of the benchmarks, and whether they are reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .contenders.base import (
    BARE,
    BY_DECORATOR,
    BY_MIDDLEWARE,
    CHECK,
    DEFERRED,
    DRF,
    DRF_FLOOR,
    FLOOR,
    IMPORTED,
    LEASED,
    LEAST_VIEW,
    LEAST_WINDOWS,
    OURS,
    OURS_DRF,
    SORTED_SET_NAME,
    UNLEASED,
)
from .results import Results

DECORATOR = "**ours, decorator**"
THREE = "ours, decorator, three profiles"
MOVING = "limits, moving window"
A_KEY = "bytes of a key, by its hits"


@dataclass(frozen=True, slots=True)
class Goal:
    """A number that must not be above `bound`, or not below it if `least` is set."""

    case: str
    aim: str
    bound: float
    measure: Callable[[Results], float | None]
    peers: Callable[[Results], float | None] = lambda results: None
    """The best number of another library in the same run."""
    least: bool = False
    spent: str = ""
    """What the time is spent on, shown while the goal is not reached."""
    possible: Callable[[Results], float | None] = lambda results: None
    """The number with everything optional left out, shown beside `spent`."""

    def reached(self, value: float) -> bool:
        return value >= self.bound if self.least else value <= self.bound


def _ratio(first: float | None, second: float | None) -> float | None:
    return None if first is None or not second else first / second


def _of(
    section: str, case: str, contender: str, name: str = "ratio"
) -> Callable[..., float | None]:
    return lambda results: results.value(section, case, contender, name)


def _best(section: str, case: str) -> Callable[[Results], float | None]:
    def best(results: Results) -> float | None:
        ratios = [
            row.values["ratio"]
            for row in results.of(section, case)
            if row.values and "ours" not in row.contender and not _is_base(row.contender)
        ]
        return min(ratios, default=None)

    return best


def _is_base(contender: str) -> bool:
    return contender.startswith((FLOOR, BARE))


def _against(
    section: str, case: str, name: str, other: str, ours: str = OURS
) -> Callable[[Results], float | None]:
    return lambda results: _ratio(
        results.value(section, case, ours, name), results.value(section, case, other, name)
    )


def _big(results: Results) -> float | None:
    big = results.value("library", "big", OURS, "ratio")
    return _ratio(big, results.value("library", "allowed", OURS, "ratio"))


def _per_hit(contender: str) -> Callable[[Results], float | None]:
    return lambda results: _ratio(results.value("memory", A_KEY, contender, "10000"), 10_000)


def _policies(contender: str) -> Callable[[Results], float | None]:
    """Compare eight policies of the contender with one of ours."""
    case = "policies: client and server"
    return lambda results: _ratio(
        results.value("growth", case, contender, "8"), results.value("growth", case, OURS, "1")
    )


def _async(results: Results) -> float | None:
    theirs = results.value("asynchronous", "checks", MOVING, "busy_us")
    return _ratio(theirs, results.value("asynchronous", "checks", OURS, "busy_us"))


def _outage(*ways: str) -> Callable[[Results], float | None]:
    """Return the worst of these ways, sync or async."""
    return lambda results: max(
        (row.values["ratio"] for row in results.of("outage") if row.contender in ways),
        default=None,
    )


BENCH = ("articles", "redis-benchmark")
GOALS = [
    Goal(
        "library, allowed, one policy",
        "≤ 0.9 × floor; stretch 0.7",
        0.9,
        _of("library", "allowed", OURS),
        _best("library", "allowed"),
    ),
    Goal(
        "library, refused (shield on)",
        "≤ 0.1 × floor",
        0.1,
        _of("library", "refused", OURS),
        _best("library", "refused"),
    ),
    Goal(
        "flood, Redis commands a second",
        "≤ 1 per SHIELD_SECONDS (1 s)",
        1.05,
        _of("flood", "one abusive client", OURS, "commands"),
    ),
    Goal("library, big limit", "within 10 % of the small one", 1.1, _big),
    Goal(
        "Django, allowed, decorator",
        "adds ≤ 0.7 × what the floor adds",
        0.7,
        _of("views", "allowed", DECORATOR),
        _best("views", "allowed"),
        spent="""
        An exchange with Redis over a bare socket, its script with it, is half of what the floor
        adds, and Django's handler takes a twentieth of it for five fields more. The rest is
        Python that finds the processor's caches cold, because Redis had the core: 850 bytecodes in
        sixteen functions. The dearest are the exchange, the decision, the windows that a request
        meets, and the fields' way to the response. Written as one function they would take 0.05 to
        0.1 less, and five layers would be one.
        """,
        possible=_of("views", "allowed", LEAST_VIEW),
    ),
    Goal(
        "Django, refused, decorator",
        "adds ≤ 0.4 × what the floor adds",
        0.4,
        _of("views", "refused", DECORATOR),
        _best("views", "refused"),
    ),
    Goal(
        "Django, allowed, DRF throttle",
        "adds ≤ 1.0 × what the floor adds",
        1.0,
        _of("views", "allowed", OURS_DRF),
        _of("views", "allowed", DRF),
    ),
    Goal(
        "Django REST framework, allowed, throttle",
        "adds ≤ 1.0 × what the floor adds to such a view",
        1.0,
        _against("views", "allowed", "ratio", DRF_FLOOR, OURS_DRF),
        _against("views", "allowed", "ratio", DRF_FLOOR, DRF),
    ),
    Goal(
        "Redis commands a request, 3 profiles",
        "1",
        1.0,
        _of("views", "allowed", THREE, "commands"),
    ),
    Goal(
        "server CPU, articles' set-up",
        "≤ 1.0 × their sorted set",
        1.0,
        _of(*BENCH, OURS, "sorted_set"),
    ),
    Goal(
        "server CPU, articles' set-up",
        "≤ 0.9 × a sorted set with unique members",
        0.9,
        _of(*BENCH, OURS, "unique"),
    ),
    Goal(
        "used_memory, articles' set-up",
        "≤ 0.92 × their sorted set",
        0.92,
        _against(*BENCH, "memory_mb", SORTED_SET_NAME),
    ),
    Goal("bytes a hit at 10,000", "≤ 4.6", 4.6, _per_hit(OURS), _per_hit(MOVING)),
    Goal(
        "8 policies on one identifier",
        "≤ 1.6 × one",
        1.6,
        _policies(OURS),
        spent="""
        A policy more is a window more, which the script reads and writes: two or three commands
        within it, 4 to 5 µs, and 1 µs on the client. One log for all the policies of a profile
        would be read and written once, but hits are not the same where profiles share a window,
        count rejected requests, or observe.
        """,
        possible=_policies(LEAST_WINDOWS),
    ),
    Goal(
        "async, 100 at once",
        "≥ 1.2 × the checks a second of limits' moving window",
        1.2,
        _async,
        least=True,
    ),
    Goal(
        "library, allowed, lease 100",
        "≤ 0.12 × floor",
        0.12,
        _of("leases", "library", LEASED),
    ),
    Goal(
        "Django, allowed, decorator, lease 100",
        "adds ≤ 0.45 × what the floor adds",
        0.45,
        _of("leases", "Django", LEASED),
    ),
    Goal(
        "Redis commands a request, lease 100",
        "≤ 0.05",
        0.05,
        _of("leases", "library", LEASED, "commands"),
    ),
    Goal(
        "a hot key from 8 processes, lease 100",
        "≥ 5 × the checks a second without a lease",
        5.0,
        _against("leases", "a hot key, 8 processes", "per_second", UNLEASED, LEASED),
        least=True,
    ),
    Goal(
        "deferred, Redis 200 ms away, a check, by the clock",
        "≤ 0.2 × floor",
        0.2,
        _of("deferred", "library", DEFERRED),
    ),
    Goal(
        "deferred, Redis 200 ms away, decorator, by the clock",
        "adds ≤ 0.2 × what the floor adds",
        0.2,
        _of("deferred", "Django", DEFERRED),
    ),
    Goal(
        "behind an open breaker, a check, sync and async",
        "≤ 0.2 × its usual time",
        0.2,
        _outage(CHECK),
    ),
    Goal(
        "behind an open breaker, decorator and middleware, sync and async",
        "add ≤ 0.2 × what they usually do",
        0.2,
        _outage(BY_DECORATOR, BY_MIDDLEWARE),
    ),
    Goal(
        "import of the app",
        "adds ≤ 0.2 × what django-redis takes",
        0.2,
        _of("imports", "a start of Django", IMPORTED),
    ),
]
