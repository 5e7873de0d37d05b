"""Measure contenders in turns in one process, so that all of them run on the same machine.

The speed of a machine changes during a measurement. So each round runs all probes, one after
another and in a new order, and ratios are computed within a round. The result is the median of the
rounds, with the bounds of their middle half.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import sub
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .progress import Progress
    from .server import Server

MICRO = 1e6


@dataclass(slots=True)
class Probe:
    """Something to measure."""

    name: str
    call: Callable[[int], None]
    """Make this number of calls."""
    prepare: Callable[[], None] | None = None
    """Called before each round, and not measured."""
    base: str | None = None
    """The name of the probe whose time is subtracted, to get what this probe adds to it."""
    wall: list[float] = field(default_factory=list)
    """Seconds per call, one number for each round."""
    client: list[float] = field(default_factory=list)
    """Seconds of CPU time of this process per call."""
    server: list[float] = field(default_factory=list)
    """Seconds of CPU time of the server per call."""


def measure(
    server: Server, probes: Iterable[Probe], *, rounds: int, calls: int, progress: Progress
) -> None:
    """Run the rounds, and fill the lists of the probes."""
    probes = list(probes)
    order = random.Random(7)
    for probe in probes:
        _round(server, probe, max(calls // 4, 1), keep=False)
    for _ in range(rounds):
        for probe in order.sample(probes, len(probes)):
            _round(server, probe, calls, keep=True)
        progress.step()


def _round(server: Server, probe: Probe, calls: int, *, keep: bool) -> None:
    if probe.prepare is not None:
        probe.prepare()
    served, used, start = server.cpu(), time.process_time(), time.perf_counter()
    probe.call(calls)
    wall = time.perf_counter() - start
    used = time.process_time() - used
    if keep:
        probe.wall.append(wall / calls)
        probe.client.append(used / calls)
        probe.server.append((server.cpu() - served) / calls)


def middle(values: list[float]) -> tuple[float, float, float]:
    """Return the median, and the bounds of the middle half."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, mid, high = statistics.quantiles(values, n=4, method="inclusive")
    return mid, low, high


def percentiles(values: list[float]) -> dict[int, float]:
    """Return the values that 50, 95 and 99 percent of the values do not exceed."""
    ordered = sorted(values)
    return {part: ordered[-(-part * len(ordered) // 100) - 1] for part in (50, 95, 99)}


def numbers(probe: Probe, floor: Probe, by_name: dict[str, Probe]) -> dict[str, float]:
    """Return the numbers of a probe for a table: ratios to the floor, and microseconds.

    `ratio` compares the CPU time of client and server together. On one core that is the elapsed
    time without the time of other processes.
    """
    wall, client, server = (added(probe, by_name, what) for what in ("wall", "client", "server"))
    floor_wall = [max(value, 1e-9) for value in added(floor, by_name, "wall")]
    floor_cpu = [
        max(sum(pair), 1e-9)
        for pair in zip(
            added(floor, by_name, "client"), added(floor, by_name, "server"), strict=True
        )
    ]
    busy = [c + s for c, s in zip(client, server, strict=True)]
    ratio, first, last = middle([a / b for a, b in zip(busy, floor_cpu, strict=True)])
    return {
        "ratio": ratio,
        "ratio_low": first,
        "ratio_high": last,
        "wall_ratio": middle([a / b for a, b in zip(wall, floor_wall, strict=True)])[0],
        "busy_us": middle(busy)[0] * MICRO,
        "client_us": middle(client)[0] * MICRO,
        "server_us": middle(server)[0] * MICRO,
        "wall_us": middle(wall)[0] * MICRO,
    }


def added(probe: Probe, by_name: dict[str, Probe], what: str) -> list[float]:
    """Return the times of a probe, without those of its base. `what` names one of its lists."""
    values: list[float] = getattr(probe, what)
    if probe.base is None:
        return values
    return list(map(sub, values, getattr(by_name[probe.base], what)))


def repeated(ask: Callable[[], object]) -> Callable[[int], None]:
    """Return a function that calls `ask` a number of times."""

    def call(times: int) -> None:
        for _ in range(times):
            ask()

    return call
