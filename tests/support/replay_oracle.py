"""Random requests for a replay, and the refusals among them by brute force."""

from __future__ import annotations

from hypothesis import strategies as st

from django_slidingwindow.core.keys import suffix
from django_slidingwindow.replay.candidates import Candidate
from django_slidingwindow.replay.readers import Entry
from django_slidingwindow.replay.times import SECOND
from django_slidingwindow.stores.protocol import Evaluate, WindowRule
from tests.support.clock import START, Clock
from tests.support.oracle import Oracle

UNITS = (SECOND, SECOND // 4, 1, 7 * SECOND)


@st.composite
def requests(draw: st.DrawFn, most: int = 60) -> list[Entry]:
    """Return the requests of few clients, in order and with many equal stamps."""
    unit = draw(st.sampled_from(UNITS))
    times = draw(st.lists(st.integers(0, 30), min_size=1, max_size=most))
    return [(START + time * unit, draw(st.sampled_from("abc"))) for time in sorted(times)]


def refusals(entries: list[Entry], candidate: Candidate) -> list[tuple[int, str, int]]:
    """Return stamp, identifier and wait of each refusal, by brute force."""
    clock = Clock()
    oracle = Oracle(clock, exact=True)
    rules = tuple(
        WindowRule(policy, 1, count_rejected=candidate.count_rejected)
        for policy in candidate.policies
    )
    found = []
    for stamp, identifier in entries:
        clock.now = stamp
        keys = tuple(f"{identifier}:{suffix(policy)}" for policy in candidate.policies)
        admitted, _, *rest = oracle.run(Evaluate(keys, rules, writes=True))
        if not admitted:
            waits = rest[2::4]
            found.append((stamp, identifier, -1 if -1 in waits else max(waits)))
    return found
