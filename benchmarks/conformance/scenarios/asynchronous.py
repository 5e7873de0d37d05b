"""A scenario on the event loop."""

from __future__ import annotations

from ..lab import Lab
from ..model import ABSENT, ADMITTED, Cell, Question, Rate, judged

PAUSE = 2.0
"""Seconds that Redis answers nothing."""


def stall(lab: Lab) -> Cell:
    """Send ten requests at once while Redis is slow, and watch the event loop."""
    if lab.contender.make_async is None:
        return Cell(ABSENT, "sync only")
    with lab.host(Rate(limit=10, window=3_600), asynchronous=True) as host:
        for _ in range(2):
            host.ask([Question(lab.client())])
        lab.server.client.client_pause(int(PAUSE * 1_000))
        *answers, watched = host.ask([Question(lab.client()) for _ in range(10)])
    stalled = watched.retry_after or 0.0
    errors = [answer.outcome for answer in answers if answer.outcome != ADMITTED]
    if errors:
        return judged(False, f"error {errors[0]}")
    if stalled > PAUSE / 2:
        return judged(False, f"stalls {stalled:.1f} s", stalled_s=round(stalled, 3))
    return judged(True, "works", stalled_s=round(stalled, 3))
