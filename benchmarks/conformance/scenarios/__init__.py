"""The scenarios, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

from ..hosts import HostFailedError
from ..lab import Lab
from ..model import ABSENT, BAD, Cell, ContenderError
from . import addresses, asynchronous, cost, crowd, outage, windows


class Scenario(NamedTuple):
    """One row of the table."""

    title: str
    good: str
    """What a good limiter does."""
    run: Callable[[Lab], Cell]


SCENARIOS = {
    "boundary": Scenario(
        "most admitted in any window, limit 10", "10, whenever the client starts", windows.boundary
    ),
    "crowd": Scenario("admitted by 8 processes, limit 100", "100", crowd.crowd),
    "readmission": Scenario("a client that keeps trying", "is admitted again", windows.readmission),
    "retry-after": Scenario(
        "Retry-After",
        "a client that waits that long is admitted; a second earlier it is refused",
        windows.retry_after,
    ),
    "several": Scenario(
        "charged by refusals of another limit",
        "0: a request that one of two limits refuses costs nothing on the other",
        cost.several,
    ),
    "spoofed": Scenario(
        "forged X-Forwarded-For, as installed", "0 of 5 get past the limit", addresses.spoofed
    ),
    "proxy": Scenario(
        "forged X-Forwarded-For behind a trusted proxy",
        "0 of 5 get past the limit, and each client behind the proxy has its own window",
        addresses.proxy,
    ),
    "mapped": Scenario(
        "IPv4-mapped addresses",
        "`::ffff:192.0.2.1` is the client 192.0.2.1 and no other",
        addresses.mapped,
    ),
    "subnet": Scenario("IPv6 addresses of one /64", "0 of 5 get past the limit", addresses.subnet),
    "frozen": Scenario(
        "Redis frozen, as installed: worst request", "below 2 s, and no error", outage.installed
    ),
    "frozen-tuned": Scenario(
        "Redis frozen, time-outs of 0.25 s and fail-open set",
        "below 2 s, and no error",
        outage.tuned,
    ),
    "clock": Scenario(
        "admitted with a host whose clock is wrong, limit 10", "10", crowd.wrong_clock
    ),
    "memory": Scenario(
        "memory of a key, limit 100",
        "bounded by the limit however many are refused, and it expires",
        cost.memory,
    ),
    "commands": Scenario(
        "Redis commands per request, admitted / refused", "1 at most", cost.commands
    ),
    "scripts": Scenario("after SCRIPT FLUSH", "goes on", cost.scripts),
    "async": Scenario(
        "async view while Redis is slow",
        "works and does not stall the event loop",
        asynchronous.stall,
    ),
}


def measured(lab: Lab, slug: str) -> Cell:
    """Return the result of the lab's contender in one scenario."""
    contender = lab.contender
    if find_spec(contender.module) is None:
        return Cell(ABSENT, "not installed")
    if slug in contender.lacks:
        return Cell(ABSENT, contender.lacks[slug])
    lab.server.flush()
    try:
        return SCENARIOS[slug].run(lab)
    except (ContenderError, HostFailedError) as error:
        return Cell(BAD, f"error {error}")
