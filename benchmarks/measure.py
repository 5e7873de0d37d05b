"""Rounds interleaved in one process: every contender meets the same machine.

A machine's speed changes while one measures. So each round runs all of the probes, one
after another in a new order, and a ratio is taken within the round; the result is the
median of the rounds, and how far the middle half of them lies apart.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
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
    """Makes this number of calls."""
    prepare: Callable[[], None] | None = None
    """Before each round, unmeasured."""
    base: str | None = None
    """The probe whose time is taken off, if it is what this one adds that matters."""
    wall: list[float] = field(default_factory=list)
    """Seconds a call, one number for each round."""
    client: list[float] = field(default_factory=list)
    """Seconds of this process's CPU a call."""
    server: list[float] = field(default_factory=list)
    """Seconds of the server's CPU a call."""


def measure(
    server: Server, probes: Iterable[Probe], *, rounds: int, calls: int, progress: Progress
) -> None:
    """Fills the probes' lists."""
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
    """The median, and the bounds of the middle half."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, mid, high = statistics.quantiles(values, n=4, method="inclusive")
    return mid, low, high


def percentiles(values: list[float]) -> dict[int, float]:
    """The values that 50, 95 and 99 of a hundred do not exceed."""
    ordered = sorted(values)
    return {part: ordered[-(-part * len(ordered) // 100) - 1] for part in (50, 95, 99)}


def numbers(probe: Probe, floor: Probe, by_name: dict[str, Probe]) -> dict[str, float]:
    """What a table says of a probe: ratios to the floor, and microseconds.

    `ratio` is of CPU time, the client's and the server's together. On one core that is
    all the time there is, less what other processes took of it meanwhile.
    """
    wall, client, server = (_added(probe, by_name, what) for what in ("wall", "client", "server"))
    low = [max(value, 1e-9) for value in _added(floor, by_name, "wall")]
    floor_cpu = [
        max(sum(pair), 1e-9)
        for pair in zip(
            _added(floor, by_name, "client"), _added(floor, by_name, "server"), strict=True
        )
    ]
    busy = [c + s for c, s in zip(client, server, strict=True)]
    ratio, first, last = middle([a / b for a, b in zip(busy, floor_cpu, strict=True)])
    return {
        "ratio": ratio,
        "ratio_low": first,
        "ratio_high": last,
        "wall_ratio": middle([a / b for a, b in zip(wall, low, strict=True)])[0],
        "busy_us": middle(busy)[0] * MICRO,
        "client_us": middle(client)[0] * MICRO,
        "server_us": middle(server)[0] * MICRO,
        "wall_us": middle(wall)[0] * MICRO,
    }


def _added(probe: Probe, by_name: dict[str, Probe], what: str) -> list[float]:
    values: list[float] = getattr(probe, what)
    if probe.base is None:
        return values
    taken: list[float] = getattr(by_name[probe.base], what)
    return [value - less for value, less in zip(values, taken, strict=True)]
