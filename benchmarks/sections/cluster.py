"""A Redis Cluster: windows of one slot, and of several."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

from django.conf import settings
from django.test import override_settings
from django_redis import get_redis_connection

from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.stores.factory import store_of
from django_slidingwindow.stores.net.routing import slot_of

from ..bench import Bench
from ..clusters import ClusterServer, running_cluster
from ..contenders.base import FLOOR
from ..contenders.floor import SOURCE
from ..measure import Probe, measure, numbers, repeated
from ..results import Row

NAME = "cluster"
TITLE = "Cluster"
ONE, THREE = "one slot", "three slots"
FACTORY = "django_slidingwindow.cluster.ClusterConnectionFactory"
_DAY = 86_400
# The fewest calls of a probe in a round. With fewer, a round might not take a new lease.
_LEAST_CALLS = 100


def run(bench: Bench) -> list[Row]:
    bench.progress.begin(TITLE, bench.size.rounds)
    with tempfile.TemporaryDirectory() as folder, running_cluster(Path(folder)) as cluster:
        alias = {
            **settings.CACHES["default"],
            "LOCATION": [node.url for node in cluster.nodes],
            "OPTIONS": {"CONNECTION_FACTORY": FACTORY},
        }
        with override_settings(CACHES={**settings.CACHES, NAME: alias}):
            return _measured(bench, cluster)


def _measured(bench: Bench, cluster: ClusterServer) -> list[Row]:
    size = bench.size
    limiter = Limiter(store_of(NAME, budget=30.0))
    calls = max(size.calls, _LEAST_CALLS)
    asks = {(ONE, FLOOR): _floor(), **_one_slot(limiter), **_three_slots(limiter)}
    probes = {of: _probe(f"{of}", ask) for of, ask in asks.items()}
    with cluster.one_core():
        measure(cluster, probes.values(), rounds=size.rounds, calls=calls, progress=bench.progress)
        rows = []
        for (case, name), probe in probes.items():
            before = cluster.scripts()
            probe.call(calls)
            sent = (cluster.scripts() - before) / calls
            values = numbers(probe, probes[ONE, FLOOR], {})
            rows.append(Row(NAME, case, name, values | {"commands": sent}))
    limiter.close()
    return rows


def _probe(name: str, ask: Callable[[], object]) -> Probe:
    call = repeated(ask)
    call(1)
    return Probe(name, call)


def _floor() -> Callable[[], object]:
    client = get_redis_connection(NAME)
    sha = client.script_load(SOURCE)
    return lambda: client.evalsha(sha, 1, "acme")


def _profile(name: str, *windows: int, lease: int = 0) -> Profile:
    policies = tuple(Policy(limit=1_000_000, window=one, lease=lease) for one in windows)
    return Profile(name=name, axis="tenant", policies=policies)


def _charge(limiter: Limiter, *checks: ProfileCheck) -> Callable[[], object]:
    def ask() -> object:
        decision = limiter.charge(limiter.windows(checks))
        assert decision.allowed
        return decision

    return ask


def _check(profile: Profile, identifier: str) -> ProfileCheck:
    return ProfileCheck(profile, identifier, profile.policies)


def _one_slot(limiter: Limiter) -> dict[tuple[str, str], Callable[[], object]]:
    rates = _profile("rates", 60, 3_600, _DAY)
    return {
        (ONE, "**ours, one window**"): _charge(limiter, _check(_profile("one", _DAY), "acme")),
        (ONE, "ours, three windows"): _charge(limiter, _check(rates, "acme")),
        (ONE, "ours, one window, lease 100"): _charge(
            limiter, _check(_profile("leased", _DAY, lease=100), "acme")
        ),
    }


def _three_slots(limiter: Limiter) -> dict[tuple[str, str], Callable[[], object]]:
    names = _apart()
    plain, ahead = (
        [
            _check(_profile(f"{name}{number}", _DAY, lease=lease), names[number])
            for number in (0, 1, 2)
        ]
        for name, lease in (("apart", 0), ("ahead", 100))
    )
    return {
        (THREE, "**ours, three windows**"): _charge(limiter, *plain),
        (THREE, "ours, one of them with lease 100"): _charge(limiter, *plain[:2], ahead[2]),
        (THREE, "ours, all with lease 100"): _charge(limiter, *ahead),
    }


def _apart() -> list[str]:
    """Return identifiers whose slots are on different nodes."""
    found: dict[int, str] = {}
    for number in count():
        name = f"tenant{number}"
        found.setdefault(3 * slot_of(f"{{{name}}}") // 16_384, name)
        if len(found) == 3:
            return list(found.values())
    raise AssertionError
