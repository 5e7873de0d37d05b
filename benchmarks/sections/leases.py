"""Leases: the time of a check and of a view, and one hot key in many processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from django.core.handlers.wsgi import WSGIHandler

from django_slidingwindow import limits

from ..bench import Bench
from ..contenders import floor
from ..contenders.base import ALLOWED, BARE, FLOOR, LEASED, TENANT, UNLEASED, contenders
from ..hot_key import CHECKS
from ..measure import Probe, measure, numbers
from ..requests import environ
from ..results import Row
from .views import request

NAME = "leases"
TITLE = "Leases"
LIBRARY, DJANGO, HOT = "library", "Django", "a hot key"
PROFILES = {UNLEASED: "tenant_unleased", LEASED: "tenant_leased"}
_SLUGS = {UNLEASED: "ours-unleased", LEASED: "ours-leased"}
# After this many calls a probe uses another tenant, so that none comes near its limit.
_CALLS_A_TENANT = 4_000
# The fewest calls of a probe in a round, so that some calls of each round ask Redis.
_LEAST_CALLS = 200


def run(bench: Bench) -> list[Row]:
    return [*_in_one_process(bench, LIBRARY), *_in_one_process(bench, DJANGO), *_hot_key(bench)]


def _in_one_process(bench: Bench, case: str) -> list[Row]:
    size = bench.size
    calls = max(size.calls, _LEAST_CALLS)
    bench.server.flush()
    bench.progress.begin(f"{TITLE}: {case}", size.rounds)
    asks = _checks() if case == LIBRARY else _requests()
    probes = [_probe(name, ask, case) for name, ask in asks.items()]
    with bench.server.one_core():
        measure(bench.server, probes, rounds=size.rounds, calls=calls, progress=bench.progress)
    by_name = {probe.name: probe for probe in probes}
    rows = []
    for probe in probes:
        values = numbers(probe, by_name[FLOOR], by_name)
        sent = bench.server.commands(lambda probe=probe: probe.call(calls))  # type: ignore[misc]
        rows.append(Row(NAME, case, probe.name, values | {"commands": len(sent) / calls}))
    return rows


def _probe(name: str, ask: Callable[[str], object], case: str) -> Probe:
    asked = 0

    def call(times: int) -> None:
        nonlocal asked
        tenant = f"10.1.0.{asked // _CALLS_A_TENANT + 1}"
        asked += times
        for _ in range(times):
            ask(tenant)

    call(1)
    added = case == DJANGO and name != BARE
    return Probe(name, call, base=BARE if added else None)


def _checks() -> dict[str, Callable[[str], object]]:
    def checked(profile: str) -> Callable[[str], object]:
        return lambda tenant: limits.check(profile, tenant)

    ours = {name: checked(profile) for name, profile in PROFILES.items()}
    return {FLOOR: floor.make(ALLOWED), **ours}


def _requests() -> dict[str, Callable[[str], object]]:
    handler = WSGIHandler()

    def requested(path: str) -> Callable[[str], object]:
        return lambda tenant: request(handler, environ(path, tenant))

    paths = {name: f"/{slug}/{TENANT.name}" for name, slug in _SLUGS.items()}
    paths |= {BARE: f"/bare/{ALLOWED.name}", FLOOR: f"/floor/{ALLOWED.name}"}
    return {name: requested(path) for name, path in paths.items()}


def _hot_key(bench: Bench) -> list[Row]:
    """Measure the checks per second of one key from several processes at once."""
    size = bench.size
    case = f"{HOT}, {size.hot_processes} processes"
    # Leave out a peer that is not installed.
    installed = [contender.name for contender in contenders()]
    names = [name for name in CHECKS if "ours" in name or name in installed]
    bench.progress.begin(f"{TITLE}: {case}", len(names))
    rows = []
    for name in names:
        bench.server.flush()
        rows.append(Row(NAME, case, name, _rates(bench, name)))
        bench.progress.step(name)
    return rows


def _rates(bench: Bench, name: str) -> dict[str, float]:
    size = bench.size
    command = [sys.executable, "-m", "benchmarks.hot_key", name, str(size.hot_seconds)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(size.hot_processes)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    bench.server.client.config_resetstat()
    before = bench.server.cpu()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    checks = sum(int(process.communicate()[0]) for process in processes)
    stats = bench.server.client.info("commandstats")
    sent = sum(stats.get(f"cmdstat_{one}", {}).get("calls", 0) for one in ("evalsha", "eval"))
    return {
        "per_second": checks / size.hot_seconds,
        "commands": sent / checks,
        "server_us": (bench.server.cpu() - before) / checks * 1e6,
    }
