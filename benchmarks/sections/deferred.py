"""Elapsed time of a deferred check and view with a Redis that is far away."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.test import override_settings

from django_slidingwindow import limits

from ..bench import Bench
from ..contenders import floor
from ..contenders.base import ALLOWED, BARE, DEFERRED, FLOOR, TENANT, WAITING
from ..far_away import far_away
from ..measure import MICRO, Probe, added, measure, middle, repeated
from ..requests import environ
from ..results import Row
from .views import request

NAME = "deferred"
TITLE = "Deferred"
LIBRARY, DJANGO = "library", "Django"
_CALLS = 5


def run(bench: Bench) -> list[Row]:
    bench.server.flush()
    with far_away(bench.server.port, bench.size.far_seconds) as url:
        alias = {**settings.CACHES["default"], "LOCATION": url}
        with override_settings(CACHES={**settings.CACHES, "default": alias}):
            rows = _case(bench, LIBRARY, _checks()) + _case(bench, DJANGO, _requests())
            limits.get_limiter().close()
    return rows


def _case(bench: Bench, case: str, asks: dict[str, Callable[[], object]]) -> list[Row]:
    rounds = bench.size.far_rounds
    bench.progress.begin(f"{TITLE}: {case}", rounds)
    probes = [_probe(name, ask, case) for name, ask in asks.items()]
    measure(bench.server, probes, rounds=rounds, calls=_CALLS, progress=bench.progress)
    by_name = {probe.name: probe for probe in probes}
    floor_wall = added(by_name[FLOOR], by_name, "wall")
    rows = []
    for name, probe in by_name.items():
        wall = added(probe, by_name, "wall")
        ratio, first, last = middle([a / b for a, b in zip(wall, floor_wall, strict=True)])
        values = {"ratio": ratio, "ratio_low": first, "ratio_high": last}
        values |= {"wall_us": middle(wall)[0] * MICRO}
        values |= {"client_us": middle(added(probe, by_name, "client"))[0] * MICRO}
        rows.append(Row(NAME, case, name, values))
    return rows


def _probe(name: str, ask: Callable[[], object], case: str) -> Probe:
    call = repeated(ask)
    # Connect and load scripts before anything is measured.
    call(2)
    return Probe(name, call, base=BARE if case == DJANGO and name != BARE else None)


def _checks() -> dict[str, Callable[[], object]]:
    low = floor.make(ALLOWED)
    return {
        FLOOR: lambda: low("acme"),
        WAITING: lambda: limits.check(f"{TENANT.name}_unleased", "acme"),
        DEFERRED: lambda: limits.check(f"{TENANT.name}_deferred", "acme"),
    }


def _requests() -> dict[str, Callable[[], object]]:
    handler = WSGIHandler()

    def requested(path: str) -> Callable[[], object]:
        return lambda: request(handler, environ(path, "10.1.0.1"))

    return {
        BARE: requested(f"/bare/{ALLOWED.name}"),
        FLOOR: requested(f"/floor/{ALLOWED.name}"),
        WAITING: requested(f"/ours-unleased/{TENANT.name}"),
        DEFERRED: requested(f"/ours-deferred/{TENANT.name}"),
    }
