"""No request waits: what a deferred check and view take, by the clock, with Redis far away."""

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
from ..measure import MICRO, Probe, measure, middle
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
    probes = [_probe(name, ask) for name, ask in asks.items()]
    measure(bench.server, probes, rounds=rounds, calls=_CALLS, progress=bench.progress)
    by_name = {probe.name: probe for probe in probes}
    low = _added(by_name, FLOOR, "wall")
    rows = []
    for name in by_name:
        wall = _added(by_name, name, "wall")
        ratio, first, last = middle([a / b for a, b in zip(wall, low, strict=True)])
        values = {"ratio": ratio, "ratio_low": first, "ratio_high": last}
        values |= {"wall_us": middle(wall)[0] * MICRO}
        values |= {"client_us": middle(_added(by_name, name, "client"))[0] * MICRO}
        rows.append(Row(NAME, case, name, values))
    return rows


def _added(probes: dict[str, Probe], name: str, what: str) -> list[float]:
    """Seconds a call; of a view, what it adds to the bare one."""
    taken: list[float] = getattr(probes[name], what)
    if name == BARE or BARE not in probes:
        return taken
    return [value - less for value, less in zip(taken, getattr(probes[BARE], what), strict=True)]


def _probe(name: str, ask: Callable[[], object]) -> Probe:
    def call(times: int) -> None:
        for _ in range(times):
            ask()

    # Connections and scripts are there before anything is measured.
    call(2)
    return Probe(name, call)


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
