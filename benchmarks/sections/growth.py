"""How the time of a check grows with the limit, the policies, the keys and the cost."""

from __future__ import annotations

import random
from collections.abc import Callable

from django_slidingwindow import limits
from django_slidingwindow.policies import ALGORITHMS, Policy, Profile

from ..bench import Bench
from ..contenders import least
from ..contenders.base import LEAST_WINDOWS, OURS
from ..measure import MICRO, Probe, measure, middle, repeated
from ..results import Row

NAME = "growth"
TITLE = "Growth"
WHOLE, SERVER = "client and server", "server"
DAY = 86_400
LIMIT, POLICIES, KEYS, COST = "limit", "policies", "keys", "cost"
_TENANTS = [f"tenant{number}" for number in range(100)]


def run(bench: Bench) -> list[Row]:
    size = bench.size
    rows = []
    for what, points, make in (
        (LIMIT, size.growth_limits, _at_limit),
        (POLICIES, size.growth_policies, _at_policies),
        (KEYS, size.growth_keys, _at_keys),
        (COST, size.growth_costs, _at_cost),
    ):
        rows += _dimension(bench, what, points, make)
    return rows


def _dimension(
    bench: Bench,
    what: str,
    points: tuple[int, ...],
    make: Callable[[Bench, str, int], Callable[[], object]],
) -> list[Row]:
    rows = []
    bench.progress.begin(f"{TITLE}: {what}", bench.size.rounds * len(ALGORITHMS))
    for algorithm in ALGORITHMS:
        bench.server.flush()
        name = OURS if algorithm == "compact" else f"ours, {algorithm}"
        series = {name: [_probe(f"{point}", make(bench, algorithm, point)) for point in points]}
        if what == POLICIES and name == OURS:
            series[LEAST_WINDOWS] = [_probe(f"{point}", _at_least(point)) for point in points]
        with bench.server.one_core():
            measure(
                bench.server,
                [probe for probes in series.values() for probe in probes],
                rounds=bench.size.rounds,
                calls=max(1, bench.size.calls // 4),
                progress=bench.progress,
            )
        for contender, probes in series.items():
            rows += _rows(what, contender, probes)
    return rows


def _rows(what: str, contender: str, probes: list[Probe]) -> list[Row]:
    whole = {
        probe.name: middle([c + s for c, s in zip(probe.client, probe.server, strict=True)])[0]
        for probe in probes
    }
    served = {probe.name: middle(probe.server)[0] for probe in probes}
    return [
        Row(
            NAME,
            f"{what}: {kind}",
            contender,
            {point: value * MICRO for point, value in seconds.items()},
        )
        for kind, seconds in ((WHOLE, whole), (SERVER, served))
    ]


def _probe(name: str, check: Callable[[], object]) -> Probe:
    check()
    return Probe(name, repeated(check))


def _profile(name: str, *policies: Policy) -> Profile:
    return Profile(name=name, axis="tenant", policies=policies)


def _at_limit(bench: Bench, algorithm: str, limit: int) -> Callable[[], object]:
    """Check identifiers whose windows are half full."""
    profile = _profile(f"limit{limit}", Policy(limit=limit, window=DAY, algorithm=algorithm))
    first, *others = names = [f"tenant{number}" for number in range(_spread(bench, limit))]
    for _ in range(10):
        limits.check(profile, first, cost=max(1, limit // 20))
    bench.server.copy(first, others)
    return _round_robin(profile, names)


def _spread(bench: Bench, limit: int) -> int:
    """Return how many identifiers are needed so that the measured checks fill no window."""
    calls = (bench.size.rounds + 1) * bench.size.calls
    return max(1, 4 * calls // limit)


def _at_policies(bench: Bench, algorithm: str, count: int) -> Callable[[], object]:
    profile = _with_policies(f"policies{count}", algorithm, count)
    return _round_robin(profile, _TENANTS)


def _at_least(count: int) -> Callable[[], object]:
    """Only read and write the windows, which every algorithm has to do."""
    profile = _with_policies(f"least{count}", "compact", count)
    least.reads_and_writes(profile)
    return _round_robin(profile, _TENANTS)


def _with_policies(name: str, algorithm: str, count: int) -> Profile:
    policies = [
        Policy(limit=10_000, window=60 * (number + 1), algorithm=algorithm)
        for number in range(count)
    ]
    return _profile(name, *policies)


def _at_keys(bench: Bench, algorithm: str, count: int) -> Callable[[], object]:
    """Check random identifiers among this number of keys."""
    profile = _profile(f"keys{count}", Policy(limit=100, window=DAY, algorithm=algorithm))
    limits.check(profile, f"{count:07}client0000000")
    bench.server.multiply("client0000000", count, among=f"*{count:07}client0000000*")
    order = random.Random(7)
    names = [f"{count:07}client{order.randrange(count):07}" for _ in range(10_000)]
    return _round_robin(profile, names)


def _at_cost(bench: Bench, algorithm: str, cost: int) -> Callable[[], object]:
    profile = _profile(f"cost{cost}", Policy(limit=1_000_000, window=DAY, algorithm=algorithm))
    names = [f"tenant{number}" for number in range(20)]
    return _round_robin(profile, names, cost)


def _round_robin(profile: Profile, names: list[str], cost: int = 1) -> Callable[[], object]:
    position = 0

    def check() -> object:
        nonlocal position
        position += 1
        return limits.check(profile, names[position % len(names)], cost)

    return check
