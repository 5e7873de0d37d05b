"""Scenarios with several processes."""

from __future__ import annotations

import time
from contextlib import ExitStack

from ..lab import Lab
from ..model import Cell, Question, Rate, count_admitted, judged

HOUR = 3_600


def crowd(lab: Lab) -> Cell:
    """Let processes ask for one client at once, as fast as they can."""
    limit = 100
    processes, rounds, asks = (3, 1, 60) if lab.quick else (8, 3, 150)
    counts = []
    with ExitStack() as stack:
        rate = Rate(limit=limit, window=HOUR)
        hosts = [stack.enter_context(lab.host(rate, patient=True)) for _ in range(processes)]
        for host in hosts:
            host.ask([Question(lab.client())])
        for _ in range(rounds):
            question = Question(lab.client(), at=time.monotonic() + 0.3)
            for host in hosts:
                host.send([question] * asks)
            counts.append(sum(count_admitted(host.receive()) for host in hosts))
    worst = max(counts, key=lambda count: abs(count - limit))
    return judged(worst == limit, f"{worst:,}", admitted=worst)


def wrong_clock(lab: Lab) -> Cell:
    """Ask a host with the right time, then one far ahead or behind, then the first again."""
    limit, window = 10, 60
    rate = Rate(limit=limit, window=window)
    counts = []
    with ExitStack() as stack:
        # All questions start at the same time.
        right, *others = (
            stack.enter_context(lab.host(rate, patient=True, clock=ahead))
            for ahead in (0, 1.1 * window, -1.1 * window)
        )
        for wrong in others:
            asked = [Question(lab.client())] * limit
            counts.append(sum(count_admitted(host.ask(asked)) for host in (right, wrong, right)))
    worst = max(counts, key=lambda count: abs(count - limit))
    return judged(worst == limit, str(worst), ahead=counts[0], behind=counts[1])
