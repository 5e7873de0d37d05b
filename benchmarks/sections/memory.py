"""The memory of one key by its hits, and of a million keys."""

from __future__ import annotations

from ..bench import Bench
from ..contenders.base import BIG, BY_CLIENT, UNSHIELDED, Check, Contender, contenders
from ..results import Row

NAME = "memory"
TITLE = "Memory"
A_KEY, MANY = "bytes of a key, by its hits", "many keys of two hits"
IDENTIFIER = "client0000000"


def run(bench: Bench) -> list[Row]:
    # These two store the same as ours.
    found = [
        contender
        for contender in contenders()
        if contender.stores and contender.name not in (UNSHIELDED, BY_CLIENT)
    ]
    bench.progress.begin(TITLE, 2 * len(found))
    rows = []
    for measure in (_a_key, _many):
        for contender in found:
            try:
                rows.append(measure(bench, contender))
            except Exception as error:  # noqa: BLE001, the report shows peers that fail
                case = A_KEY if measure is _a_key else MANY
                rows.append(Row(NAME, case, contender.name, note=f"failed: {error}"))
            bench.progress.step(contender.name)
    bench.server.flush()
    return rows


def _a_key(bench: Bench, contender: Contender) -> Row:
    check = contender.make(BIG)
    values = {}
    done = 0
    bench.server.flush()
    _warm(bench, check)
    for hits in bench.size.hits:
        if contender.fill is not None:
            bench.server.client.flushdb()
            contender.fill(BIG, IDENTIFIER, hits)
        else:
            for _ in range(hits - done):
                check(IDENTIFIER)
            done = hits
        values[str(hits)] = float(_bytes(bench))
    return Row(NAME, A_KEY, contender.name, values)


def _many(bench: Bench, contender: Contender) -> Row:
    """Measure many identifiers with two hits: one is filled, and then copied on the server."""
    count = bench.size.many_keys
    check = contender.make(BIG)
    bench.server.flush()
    _warm(bench, check)
    if contender.fill is not None:
        contender.fill(BIG, IDENTIFIER, 2)
    else:
        check(IDENTIFIER)
        check(IDENTIFIER)
    bench.server.multiply(IDENTIFIER, count)
    used = bench.server.memory_of_keys()
    return Row(NAME, MANY, contender.name, {"MB": used / 1e6, "bytes each": used / count})


def _warm(bench: Bench, check: Check) -> None:
    """Connect and load scripts before anything is measured."""
    check("warm")
    bench.server.client.flushdb()


def _bytes(bench: Bench) -> int:
    client = bench.server.client
    keys = list(client.scan_iter(f"*{IDENTIFIER}*", count=1_000))
    return sum(client.memory_usage(key, samples=0) for key in keys)
