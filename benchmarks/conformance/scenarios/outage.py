"""Scenarios in which Redis stops answering."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...server import Server, running
from ..lab import Lab
from ..model import ABSENT, ADMITTED, REFUSED, Answer, Cell, Question, Rate, judged

LIMIT = 5
LONGEST = 2.0
"""Seconds that a request may take while Redis is frozen."""


def installed(lab: Lab) -> Cell:
    """Freeze Redis for a contender with the first configuration of its documentation."""
    return _frozen(lab, tuned=False)


def tuned(lab: Lab) -> Cell:
    """Freeze Redis for a contender that is configured for outages."""
    return _frozen(lab, tuned=True)


def _frozen(lab: Lab, *, tuned: bool) -> Cell:
    requests = LIMIT + (1 if lab.quick else 5)
    answers: list[Answer] = []
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as server:
        rate = Rate(limit=LIMIT, window=3_600)
        with lab.host(rate, server=server, tuned=tuned) as host:
            host.ask([Question(lab.client())])
            client = lab.client()
            with _stopped(server):
                began = time.monotonic()
                # All requests would take minutes if each waits for the time-outs.
                while len(answers) < requests and time.monotonic() - began < 10:
                    answers += host.ask([Question(client)])
    worst = max(answer.received - answer.sent for answer in answers)
    outcomes = [answer.outcome for answer in answers]
    said = _said(outcomes)
    text = f"{worst:.2g} s, {said}"
    if lab.contender.is_library and worst < LONGEST and said.startswith("error"):
        # The caller of a library can catch the error, and has to decide.
        return Cell(ABSENT, f"{worst:.2g} s, raises", {"worst_s": round(worst, 3)})
    is_good = worst < LONGEST and ADMITTED in outcomes and not said.startswith("error")
    return judged(is_good, text, worst_s=round(worst, 3))


def _said(outcomes: list[str]) -> str:
    errors = [outcome for outcome in outcomes if outcome not in (ADMITTED, REFUSED)]
    if errors:
        return f"error {errors[0]}"
    if REFUSED not in outcomes:
        return "not limited"
    return "limited" if ADMITTED in outcomes else "refuses all"


@contextmanager
def _stopped(server: Server) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)
