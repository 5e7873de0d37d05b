"""Scenarios about what a request costs: units of other limits, memory, commands."""

from __future__ import annotations

import time

from ..lab import Lab
from ..model import Cell, Question, Rate, count_admitted, judged

HOUR = 3_600
NARROW = Rate(limit=5, window=HOUR)


def several(lab: Lab) -> Cell:
    """Let each of two limits refuse, and see what that costs in the other limit."""
    wide = _charged_to_wide(lab)
    narrow = _charged_to_narrow(lab)
    charged = wide + narrow
    return judged(charged == 0, str(charged), wide=wide, narrow=narrow)


def _charged_to_wide(lab: Lab) -> int:
    """The limit of one client refuses 20 of its requests; 15 are left for others."""
    with lab.host(NARROW, Rate(limit=20, window=HOUR, shared=True), patient=True) as host:
        host.ask([Question(lab.client())] * 25)
        others = [lab.client() for _ in range(3)]
        return 15 - count_admitted(
            host.ask([Question(client) for client in others for _ in range(5)])
        )


def _charged_to_narrow(lab: Lab) -> int:
    """The limit of all clients refuses five of one; it has all of its own left."""
    window = 1 if lab.quick else 2
    with lab.host(NARROW, Rate(limit=20, window=window, shared=True), patient=True) as host:
        others = [lab.client() for _ in range(6)]
        host.ask([Question(client) for client in others for _ in range(5)])
        asked = [Question(lab.client())] * 5
        early = count_admitted(host.ask(asked))
        later = asked[0]._replace(at=time.monotonic() + 2 * window + 0.5)
        return 5 - early - count_admitted(host.ask([later] * 5))


def memory(lab: Lab) -> Cell:
    """Ask far more often than the limit admits, and measure the keys."""
    asks = 500 if lab.quick else 5_000
    limit = 100
    with lab.host(Rate(limit=limit, window=HOUR), patient=True) as host:
        question = Question(lab.client())
        host.ask([question] * limit)
        at_the_limit = _bytes(lab)
        host.ask([question] * (asks - limit))
        found = _bytes(lab)
    expires = all(lab.server.client.ttl(key) > 0 for key in lab.server.client.scan_iter())
    text = f"{found:,} bytes" if found < 10_000 else f"{found / 1_000:,.0f} KB"
    is_good = expires and found <= 2 * at_the_limit
    return judged(is_good, text if expires else f"{text}, no expiry", bytes=found, hits=asks)


def _bytes(lab: Lab) -> int:
    client = lab.server.client
    return sum(client.memory_usage(key, samples=0) for key in client.scan_iter())


def commands(lab: Lab) -> Cell:
    """Count the commands of an admitted and of a refused request."""
    with lab.host(Rate(limit=3, window=HOUR), patient=True) as host:
        host.ask([Question(lab.client())])
        question = Question(lab.client())
        host.ask([question])
        admitted = len(lab.server.commands(lambda: host.ask([question])))
        host.ask([question] * 3)
        refused = len(lab.server.commands(lambda: host.ask([question])))
    return judged(admitted <= 1, f"{admitted} / {refused}", admitted=admitted, refused=refused)


def scripts(lab: Lab) -> Cell:
    """Remove the scripts from the server, as a restart or a failover does."""
    with lab.host(NARROW, patient=True) as host:
        question = Question(lab.client())
        host.ask([question])
        lab.server.client.script_flush()
        goes_on = count_admitted(host.ask([question] * 2)) == 2
    return judged(goes_on, "goes on" if goes_on else "refuses")
