"""Scenarios about when a client is admitted."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from ..hosts import Host
from ..lab import Lab
from ..model import ADMITTED, REFUSED, Answer, Cell, Question, Rate, count_admitted, judged

LIMIT = 10
SOON = 0.2
"""Seconds until the first question of a schedule."""
SLACK = 0.05
"""Seconds that a question may be late or early."""


def boundary(lab: Lab) -> Cell:
    """Let clients burst at many phases of the clock, and keep trying for a window."""
    (window, phases), tries = (1, 4) if lab.quick else (2, 20), 20
    with lab.host(Rate(limit=LIMIT, window=window), patient=True) as host:
        start = _start(host, lab)
        schedule = []
        for phase in range(phases):
            client, first = lab.client(), start + phase * window / phases
            schedule += [Question(client, at=first)] * (LIMIT + 2)
            schedule += [
                Question(client, at=first + number * window / tries)
                for number in range(1, int(tries * 1.2))
            ]
        answers = _asked(host, schedule)
    most = max(most_in(found, window) for found in answers.values())
    return judged(most == LIMIT, str(most), most=most)


def most_in(answers: list[Answer], window: float) -> int:
    """Return the most requests that were certainly admitted within less than one window."""
    most, first = 0, 0
    admitted = [answer for answer in answers if answer.outcome == ADMITTED]
    for last, answer in enumerate(admitted):
        while answer.received - admitted[first].sent >= window * 0.998:
            first += 1
        most = max(most, last - first + 1)
    return most


def readmission(lab: Lab) -> Cell:
    """Fill a window, keep trying for a few more, and see when the client is admitted again."""
    window, tries, windows = (1, 20, 2) if lab.quick else (2, 50, 4)
    with lab.host(Rate(limit=LIMIT, window=window), patient=True) as host:
        start, client = _start(host, lab), lab.client()
        schedule = [Question(client, at=start)] * LIMIT
        schedule += [
            Question(client, at=start + number * window / tries)
            for number in range(1, windows * tries)
        ]
        (answers,) = _asked(host, schedule).values()
    refused = next((answer.sent for answer in answers if answer.outcome == REFUSED), math.inf)
    later = [answer for answer in answers if answer.outcome == ADMITTED and answer.sent > refused]
    if not later:
        return judged(False, "never", windows=-1)
    waited = (later[0].sent - answers[0].sent) / window
    return judged(True, f"after {waited:.1f} windows", windows=round(waited, 2))


def _start(host: Host, lab: Lab) -> float:
    """Return the time at which a schedule may begin, after a first request."""
    host.ask([Question(lab.client())])
    return time.monotonic() + SOON


def _asked(host: Host, schedule: list[Question]) -> dict[str, list[Answer]]:
    """Return each client's answers in the order of time."""
    schedule.sort(key=lambda question: question.at)
    found: dict[str, list[Answer]] = {}
    answers = host.ask(schedule)
    count_admitted(answers)  # Raises if an answer is an error.
    for question, answer in zip(schedule, answers, strict=True):
        found.setdefault(question.client, []).append(answer)
    return found


def retry_after(lab: Lab) -> Cell:
    """Wait as long as a refusal says, and a second less, at several phases of the clock."""
    window, phases = (3, 2) if lab.quick else (10, 4)
    with ExitStack() as stack:
        rate = Rate(limit=LIMIT, window=window)
        hosts = [stack.enter_context(lab.host(rate, patient=True)) for _ in range(phases)]
        start = max(_start(host, lab) for host in hosts)
        begins = [start + number * window / phases for number in range(phases)]
        with ThreadPoolExecutor(phases) as pool:
            waits = pool.map(partial(_waits, lab, window), hosts, begins)
            found = [wait for wait in waits if wait is not None]
    if not found:
        return judged(False, "no refusal")
    wrong = [wait for wait in found if not wait.is_true]
    shown = wrong[0] if wrong else found[0]
    if shown.stated is None:
        return judged(False, "no value")
    if not wrong:
        return judged(True, "true", stated=shown.stated)
    truth = f"above {window}" if shown.truth is None else shown.truth
    return judged(False, f"says {shown.stated} s, true {truth} s", stated=shown.stated)


class Wait(NamedTuple):
    """What a refusal says, in seconds, and what is true."""

    stated: int | None
    """None if it says nothing."""
    truth: int | None
    """None if longer than a window."""
    is_true: bool


def _waits(lab: Lab, window: int, host: Host, begin: float) -> Wait | None:
    """Fill windows, be refused half a window later, and come back after different times.

    None if a client is not refused, for example because a fixed window has ended.
    """
    late, early, *ladder = clients = [lab.client() for _ in range(2 + window)]
    schedule = [Question(client, at=begin) for client in clients for _ in range(LIMIT)]
    asked = begin + window / 2 + 0.25
    schedule += [Question(client, at=asked, tell=True) for client in clients]
    refusals = {client: answers[-1] for client, answers in _asked(host, schedule).items()}
    if any(answer.outcome == ADMITTED for answer in refusals.values()):
        return None
    if refusals[late].retry_after is None:
        return Wait(None, None, False)
    stated = math.ceil(refusals[late].retry_after)
    waits = {client: second + SLACK for second, client in enumerate(ladder, 1)}
    waited = min(stated, 2 * window)
    waits |= {late: waited + SLACK, early: waited - 1 - SLACK}
    schedule = [
        Question(client, at=refusals[client].received + wait) for client, wait in waits.items()
    ]
    answers = {client: answer for client, (answer,) in _asked(host, schedule).items()}
    admitted = {client for client, answer in answers.items() if answer.outcome == ADMITTED}
    truth = next((n for n, client in enumerate(ladder, 1) if client in admitted), None)
    # A question that was delayed proves nothing.
    is_early = any(
        answers[client].received - refusals[client].sent < stated - 1
        for client in admitted - {late}
    )
    return Wait(stated, truth, late in admitted and not is_early)
