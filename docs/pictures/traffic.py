"""Simulate the algorithms on the same traffic, with a clock that the script moves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.decisions import Decision
from django_slidingwindow.policies import ALGORITHMS, Policy, Profile
from django_slidingwindow.stores.memory import MemoryStore

LIMIT, WINDOW = 10, 60.0
FIXED = "fixed window"
# A full minute of the clock, and so an edge of every fixed window.
_START = 1_800_000_000_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """The time of a request in seconds from the start, and whether it was admitted."""

    at: float
    allowed: bool


class Limited:
    """One key under one algorithm."""

    def __init__(self, algorithm: str, limit: int = LIMIT) -> None:
        self._now = _START
        self._limiter = Limiter(MemoryStore(clock=lambda: self._now))
        policy = Policy(limit=limit, window=WINDOW, algorithm=algorithm)
        profile = Profile(name="p", axis="ip", policies=(policy,))
        self._check = ProfileCheck(profile, "x", (policy,))

    def ask(self, at: float) -> Decision:
        """Return the decision on a request at `at` seconds. Call it in order of time."""
        self._now = _START + round(at * 1_000_000)
        return self._limiter.charge(self._limiter.windows([self._check]))


def answers(algorithm: str, times: Iterable[float], limit: int = LIMIT) -> list[Answer]:
    """Return what the algorithm decides about requests at these seconds."""
    if algorithm == FIXED:
        return _fixed(times, limit)
    limited = Limited(algorithm, limit)
    return [Answer(at, limited.ask(at).allowed) for at in times]


def _fixed(times: Iterable[float], limit: int) -> list[Answer]:
    counts: dict[int, int] = {}
    found = []
    for at in times:
        number = int(at // WINDOW)
        counts[number] = counts.get(number, 0) + 1
        found.append(Answer(at, counts[number] <= limit))
    return found


def most_in_a_window(found: Iterable[Answer]) -> int:
    """Return the most requests that were admitted in any period as long as the window."""
    times = [answer.at for answer in found if answer.allowed]
    return max(sum(start <= at < start + WINDOW for at in times) for start in times)


def edge() -> list[float]:
    """Return the times of ten requests just before a full minute, and ten just after it."""
    return [59 + i / 10 for i in range(10)] + [60.1 + i / 10 for i in range(10)]


def attack(limit: int = LIMIT) -> list[float]:
    """Return the worst traffic for `counter`: all at the end of one minute, and of the next."""
    return [59.99 + i / 100_000 for i in range(limit)] + [
        119.98 + i / 100_000 for i in range(limit)
    ]


def late(algorithm: str) -> float:
    """Return the most seconds that a full window makes room later than `log` does."""
    latest = 0.0
    for start in range(60):
        limited = Limited(algorithm)
        first = start + 0.01
        for _ in range(LIMIT):
            limited.ask(first)
        wait = limited.ask(first).retry_after
        latest = max(latest, (wait or 0.0) - WINDOW)
    return latest


def table() -> list[tuple[str, int, int, float]]:
    """Return for each algorithm the most at an edge, the most in an attack, and the lateness."""
    rows = [(FIXED, *_most(FIXED), 0.0)]
    return rows + [(name, *_most(name), late(name)) for name in ALGORITHMS]


def _most(name: str) -> tuple[int, int]:
    return (
        most_in_a_window(answers(name, edge())),
        most_in_a_window(answers(name, attack())),
    )
