"""The time that a limiter adds to a trivial view, through Django's WSGI handler."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.core.handlers.wsgi import WSGIHandler
from django.test import override_settings

from ..bench import Bench
from ..contenders.base import (
    ALLOWED,
    BIG,
    FLOOR,
    REFUSED,
    Case,
    ViewContender,
    view_contenders,
)
from ..measure import Probe, measure, numbers
from ..requests import addresses, environ
from ..results import Row

NAME = "views"
TITLE = "Django, WSGI"


def run(bench: Bench) -> list[Row]:
    rows = []
    for case in (ALLOWED, REFUSED, BIG):
        rows += _case(bench, case)
    return rows


def _case(bench: Bench, case: Case) -> list[Row]:
    size = bench.size
    bench.server.flush()
    bench.progress.begin(f"{TITLE}: {case.name}", size.rounds)
    found: list[tuple[Probe, float]] = []
    rows: list[Row] = []
    # Before any thread starts, because a thread stays on the cores on which it starts.
    with bench.server.one_core():
        for contender in view_contenders():
            if contender.is_async or case not in contender.cases:
                continue
            try:
                found.append(_probe(bench, contender, case))
            except Exception as error:  # noqa: BLE001, the report shows peers that fail
                rows.append(Row(NAME, case.name, contender.name, note=f"failed: {error}"))
        probes = [probe for probe, _ in found]
        measure(bench.server, probes, rounds=size.rounds, calls=size.calls, progress=bench.progress)
    by_name = {probe.name: probe for probe in probes}
    for probe, commands in found:
        values = {**numbers(probe, by_name[FLOOR], by_name), "commands": commands}
        rows.append(Row(NAME, case.name, probe.name, values))
    return rows


def _probe(bench: Bench, contender: ViewContender, case: Case) -> tuple[Probe, float]:
    with override_settings(MIDDLEWARE=contender.middleware, **contender.settings(case)):
        handler = WSGIHandler()
    # Django closes the caches of a thread after each request. With its own thread, a contender only
    # pays for the caches that it has opened itself.
    thread = ThreadPoolExecutor(1)
    path = f"/{contender.slug}/{case.name}"
    limits = contender.base is not None and contender.name != FLOOR
    clients = addresses(bench.size.keys) if case is ALLOWED else ["192.0.2.100"]
    prepare: Callable[[], None] | None = None
    if case is REFUSED and limits:
        prepare = _until_refused(handler, path, clients[0])
    if case is BIG and limits:
        for _ in range(bench.size.live):
            request(handler, environ(path, clients[0]))
        others = [f"192.0.2.{100 + number}" for number in range(1, bench.size.copies)]
        bench.server.copy(clients[0], others)
        clients += others
    position = 0

    def call(times: int) -> None:
        nonlocal position
        chosen = [
            environ(path, clients[(position + number) % len(clients)]) for number in range(times)
        ]
        position += times
        thread.submit(_request_all, handler, chosen).result()

    if prepare is not None:
        prepare()
    # Use each key once before it is measured, as on a site that has been busy for a while.
    call(len(clients) + 1)
    commands = float(len(bench.server.commands(lambda: call(1))))
    base = {found.slug: found.name for found in view_contenders() if not found.is_async}
    return Probe(
        contender.name, call, prepare, base=base[contender.base] if contender.base else None
    ), commands


def _request_all(handler: WSGIHandler, given: list[dict[str, Any]]) -> None:
    for each in given:
        request(handler, each)


def request(handler: WSGIHandler, given: dict[str, Any]) -> str:
    """Send a request as a server does, and return its status."""
    answer = ""

    def start_response(status: str, headers: list[tuple[str, str]], exc: Any = None) -> Any:
        nonlocal answer
        answer = status

    response = handler(given, start_response)
    b"".join(response)
    response.close()
    return answer


def _until_refused(handler: WSGIHandler, path: str, client: str) -> Callable[[], None]:
    def fill() -> None:
        for _ in range(3 * REFUSED.limit):
            if not request(handler, environ(path, client)).startswith("200"):
                return
        raise RuntimeError("is never refused")

    return fill
