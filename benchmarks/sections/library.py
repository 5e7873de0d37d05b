"""Contenders called directly: allowed, refused, and a big limit."""

from __future__ import annotations

from collections.abc import Callable

from ..bench import Bench
from ..contenders.base import ALLOWED, BIG, FLOOR, REFUSED, Case, Check, Contender, contenders
from ..measure import Probe, measure, numbers
from ..results import Row

NAME = "library"
TITLE = "Library"


def run(bench: Bench) -> list[Row]:
    rows = []
    for case in (ALLOWED, REFUSED, BIG):
        rows += _case(bench, case)
    return rows


def _case(bench: Bench, case: Case) -> list[Row]:
    size = bench.size
    bench.server.flush()
    bench.progress.begin(f"{TITLE}: {case.name}", size.rounds)
    found, rows = [], []
    for contender in contenders():
        try:
            found.append(_probe(bench, contender, case))
        except Exception as error:  # noqa: BLE001, the report shows peers that fail
            rows.append(Row(NAME, case.name, contender.name, note=f"failed: {error}"))
    probes = [probe for probe, _ in found]
    with bench.server.one_core():
        # Fewer calls, because one call with a hash of 9,000 fields takes milliseconds.
        calls = max(1, size.calls // 4) if case is BIG else size.calls
        measure(bench.server, probes, rounds=size.rounds, calls=calls, progress=bench.progress)
    by_name = {probe.name: probe for probe in probes}
    for probe, commands in found:
        values = numbers(probe, by_name[FLOOR], by_name) | {"commands": commands}
        rows.append(Row(NAME, case.name, probe.name, values))
    return rows


def _probe(bench: Bench, contender: Contender, case: Case) -> tuple[Probe, float]:
    check = contender.make(case)
    prepare: Callable[[], None] | None = None
    if case is REFUSED:
        keys = ["refused"]
        if contender.stores:
            prepare = _until_refused(contender, check)
    elif case is BIG:
        keys = _filled(bench, contender, case, check)
    else:
        keys = [f"client{number}" for number in range(bench.size.keys)]
    position = 0

    def call(times: int) -> None:
        nonlocal position
        chosen = [keys[(position + number) % len(keys)] for number in range(times)]
        position += times
        for key in chosen:
            check(key)

    if prepare is not None:
        prepare()
    # Use each key once before it is measured, as on a site that has been busy for a while.
    call(len(keys) + 1)
    commands = float(len(bench.server.commands(lambda: call(1))))
    return Probe(contender.name, call, prepare), commands


def _until_refused(contender: Contender, check: Check) -> Callable[[], None]:
    def fill() -> None:
        # More than the limit, because hits may leave the window in a long run.
        for _ in range(2 * REFUSED.limit):
            if not check("refused"):
                return
            if contender.fill is not None:
                contender.fill(REFUSED, "refused", REFUSED.limit)
        raise RuntimeError("is never refused")

    return fill


def _filled(bench: Bench, contender: Contender, case: Case, check: Check) -> list[str]:
    """Return identifiers with many live hits: one is filled, and then copied on the server."""
    if not contender.stores:
        return ["big00"]
    if contender.fill is not None:
        contender.fill(case, "big00", bench.size.live)
    else:
        for _ in range(bench.size.live):
            check("big00")
    bench.server.copy("big00", [f"big{number:02}" for number in range(1, bench.size.copies)])
    return [f"big{number:02}" for number in range(bench.size.copies)]
