"""The opening of the report: what a limit costs, in the few numbers that users ask for."""

from __future__ import annotations

from collections.abc import Callable

from .chapters import percent, tenth, times, whole
from .contenders.base import BARE, DRF_FLOOR, FLOOR, LEAST_VIEW
from .pictures import bars
from .results import Results, Row
from .tables import flat, table

ADDED = "added"
"""The name of the picture that the README shows."""

_THREE = "three profiles"
_A_KEY = "bytes of a key, by its hits"
_HITS = ("1", "10", "100", "1000", "10000")

_OPENING = """
What a rate limit costs, measured with `tox -e bench` (`tox -e bench -- --quick` takes a minute).
`compact` is the default algorithm of django_slidingwindow. The numbers come from
`docs/benchmarks/results.json`, which that command writes. [Conformance]({folder}/conformance.md)
compares the same libraries in situations that rate limiters get wrong.
"""
_ADDED = """
Time added to a trivial Django view, in microseconds of CPU: the Python process and Redis together.
The ratio compares it with the time that one `EVALSHA` of `return 1` through django-redis adds to
the same view. A ratio below 1 means that the whole limit, with its decision and its headers, costs
less than that call. For Django REST framework, the time of a view of the framework is subtracted.
"""
_MEMORY = """
Bytes of all keys that one client needs in Redis, by the number of requests that its window holds.
The requests arrived within one sub-window of `buckets`; spread over a whole window they take up to
[800 bytes](algorithms.md#in-numbers). The counters of limits and throttled-py, and our `counter`,
are smaller than an exact log, and can admit almost twice the limit.
"""
_FLOOD = """
One client sends requests far above its limit as fast as it can, beside a client that sends one
request every 5 ms. The table shows how much of the flood reaches Redis, and how long the normal
client waits.
"""
_OUTAGE = """
Time of a check, and time that decorator and middleware add to a view, while Redis is down and the
local fallback decides. *Usual* is the same with Redis up, on another core of the same machine.
These are elapsed times, which include the wait for Redis, so *usual* is more than the CPU time in
the first table.
"""


def overview(results: Results, folder: str) -> str:
    """Return the opening of the page; a part without results is left out."""
    parts = [f"{flat(_OPENING.format(folder=folder))}\n"]
    if results.of("views", "allowed"):
        parts += ["### What a limit adds to a request\n", f"{flat(_ADDED)}\n"]
        parts += [f"![What a limit adds to a request]({folder}/{ADDED}.svg)\n", _added(results)]
    if results.of("memory", _A_KEY):
        parts += ["### Memory of one client\n", f"{flat(_MEMORY)}\n", _memory(results)]
    if results.of("flood"):
        parts += ["### A client that floods the site\n", f"{flat(_FLOOD)}\n", _flood(results)]
    if results.of("outage"):
        parts += ["### While Redis is down\n", f"{flat(_OUTAGE)}\n", _outage(results)]
    return "\n".join(["## In short\n", *parts])


def added_picture(results: Results) -> str:
    """Draw what each limiter adds to an admitted request."""
    rows = [row for row in _limiters(results, "allowed") if row.contender != FLOOR]
    return bars(
        "What one limit adds to a Django request",
        "µs of CPU, admitted request",
        [(_name(row), round(row.values["busy_us"]), 0.0, 0.0) for row in rows],
    )


def _name(row: Row) -> str:
    """Return the contender's name for readers who have not seen "ours" explained."""
    return row.contender.replace("ours", "django_slidingwindow")


def _limiters(results: Results, case: str) -> list[Row]:
    """Return the rows of a case that are limiters, and the floor, the cheapest first."""
    rows = [
        row
        for row in results.of("views", case)
        if "busy_us" in row.values
        and not row.contender.startswith(BARE)
        and row.contender not in (LEAST_VIEW, DRF_FLOOR)
        and _THREE not in row.contender
    ]
    return sorted(rows, key=lambda row: row.values["busy_us"])


def _added(results: Results) -> str:
    cells = []
    for row in _limiters(results, "allowed"):
        refused = {
            name: results.value("views", "refused", row.contender, name)
            for name in ("busy_us", "ratio", "commands")
        }
        cells.append(
            [
                _name(row),
                *(whole(row.values["busy_us"]), times(row.values["ratio"])),
                *(_or_blank(refused["busy_us"], whole), _or_blank(refused["ratio"], times)),
                f"{whole(row.values['commands'])} / {_or_blank(refused['commands'], whole)}",
            ]
        )
    head = ["", "admitted, µs", "admitted, ratio", "refused, µs", "refused, ratio"]
    return table([*head, "Redis commands, admitted / refused"], cells) + _bare(results)


def _bare(results: Results) -> str:
    bare = results.value("views", "allowed", BARE, "busy_us")
    return "" if bare is None else f"\nThe view itself takes {whole(bare)} µs without a limit.\n"


def _or_blank(value: float | None, form: Callable[[float], str]) -> str:
    return "" if value is None else form(value)


def _memory(results: Results) -> str:
    rows = [row for row in results.of("memory", _A_KEY) if row.values]
    cells = [
        [_name(row), *(whole(row.values[hits]) for hits in _HITS if hits in row.values)]
        for row in rows
    ]
    return table(["bytes, by requests in the window", *(f"{int(hits):,}" for hits in _HITS)], cells)


def _flood(results: Results) -> str:
    cells = [
        [
            _name(row),
            *(whole(row.values["attempts"]), tenth(row.values["commands"])),
            *(percent(row.values["server_share"]), whole(row.values["latency_99_us"])),
        ]
        for row in results.of("flood")
        if row.values
    ]
    head = ["", "requests answered a second", "Redis commands a second", "Redis busy"]
    return table([*head, "normal client, 99 % within µs"], cells)


def _outage(results: Results) -> str:
    cells = [
        [
            f"{_name(row)}, {row.case}",
            *(whole(row.values["usual_us"]), whole(row.values["away_us"])),
            times(row.values["ratio"]),
        ]
        for row in results.of("outage")
        if row.values
    ]
    return table(["", "usual, µs", "Redis is down, µs", "ratio"], cells)
