"""A flood of refusals is answered from memory, and never for longer than the truth holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import pytest

from django_slidingwindow import decisions
from django_slidingwindow.decisions import Decision
from django_slidingwindow.policies import Policy
from django_slidingwindow.shield import Shield

REFUSAL = Decision(
    allowed=False,
    profile="ip",
    policy=Policy(limit=10, window=60),
    limit=10,
    remaining=0,
    retry_after=30.0,
    reset_after=30.0,
    reason=decisions.LIMIT,
    source=decisions.REDIS,
)
Question: TypeAlias = "tuple[tuple[str, int, int], ...]"
ONE: Question = (("k", 10, 1),)
TEN: Question = (("k", 10, 10),)
BOTH: Question = (("k", 10, 1), ("l", 5, 1))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shield(clock: Clock) -> Shield:
    return Shield(1.0, max_entries=3, clock=clock)


def remember(shield: Shield, question: Question, decision: Decision) -> None:
    shield.remember(question, tuple(key for key, _, _ in question), decision)


def test_refusal_is_found_with_its_age(shield: Shield, clock: Clock) -> None:
    remember(shield, ONE, REFUSAL)
    clock.now += 0.25
    assert shield.find(ONE) == (REFUSAL, 0.25)


def test_nothing_is_found_for_another_cost_limit_or_set(shield: Shield) -> None:
    remember(shield, TEN, REFUSAL)
    assert shield.find(ONE) is None
    assert shield.find((("k", 20, 10),)) is None
    assert shield.find((*TEN, ("l", 5, 1))) is None


def test_refusal_is_kept_no_longer_than_its_seconds(shield: Shield, clock: Clock) -> None:
    remember(shield, ONE, REFUSAL)
    clock.now += 1.0
    assert shield.find(ONE) is None
    assert len(shield) == 0


def test_refusal_is_kept_no_longer_than_it_holds(shield: Shield, clock: Clock) -> None:
    remember(shield, ONE, replace(REFUSAL, retry_after=0.5))
    clock.now += 0.5
    assert shield.find(ONE) is None


def test_refusal_for_good_is_kept_as_long_as_any(shield: Shield, clock: Clock) -> None:
    remember(shield, ONE, replace(REFUSAL, retry_after=None))
    clock.now += 0.9
    assert shield.find(ONE) is not None
    clock.now += 0.1
    assert shield.find(ONE) is None


def test_refusal_that_is_over_is_not_kept(shield: Shield) -> None:
    remember(shield, ONE, replace(REFUSAL, retry_after=0.0))
    assert len(shield) == 0


def test_oldest_refusal_goes_first_when_there_are_too_many(shield: Shield) -> None:
    questions: list[Question] = [((f"k{i}", 10, 1),) for i in range(3)]
    for question in questions:
        remember(shield, question, REFUSAL)
    remember(shield, questions[0], REFUSAL)
    remember(shield, ONE, REFUSAL)
    assert len(shield) == 3
    assert shield.find(questions[1]) is None
    assert shield.find(questions[0]) is not None


def test_memory_stays_bounded_under_a_flood(shield: Shield) -> None:
    for i in range(1000):
        remember(shield, ((f"k{i}", 10, 1), (f"l{i % 7}", 10, 1)), REFUSAL)
    assert len(shield) == 3
    assert len(shield._questions) <= 6


def test_forgotten_window_frees_every_refusal_it_has_a_part_in(shield: Shield) -> None:
    for question in (ONE, TEN, BOTH):
        remember(shield, question, REFUSAL)
    shield.forget(["l", "unknown"])
    assert shield.find(BOTH) is None
    assert shield.find(ONE) is not None
    shield.forget(["k"])
    assert len(shield) == 0
    assert not shield._questions


def test_cleared_shield_knows_nothing(shield: Shield) -> None:
    remember(shield, BOTH, REFUSAL)
    shield.clear()
    assert shield.find(BOTH) is None
    assert len(shield) == 0
    shield.forget(["k", "l"])


def test_refusal_of_two_windows_with_one_key_is_dropped_once(shield: Shield) -> None:
    twice: Question = (("k", 10, 1), ("k", 5, 1))
    remember(shield, twice, REFUSAL)
    shield.forget(["k"])
    assert len(shield) == 0


def test_refusal_that_was_renewed_meanwhile_stays(shield: Shield, clock: Clock) -> None:
    class Renewing:
        """A lock that another thread held, and renewed the refusal under it."""

        def __enter__(self) -> None:
            shield._lock = lock
            remember(shield, ONE, REFUSAL)

        def __exit__(self, *_: object) -> None:
            pass

    remember(shield, ONE, REFUSAL)
    clock.now += 1
    lock, shield._lock = shield._lock, Renewing()  # type: ignore[assignment]
    assert shield.find(ONE) is None
    assert shield.find(ONE) is not None
