"""Header fields of responses are compared with later responses."""

from __future__ import annotations

from http.client import HTTPMessage

import pytest

from django_slidingwindow.load.client import Answer
from django_slidingwindow.load.fields import remaining, retry_after, truth_of


def message(**fields: str) -> HTTPMessage:
    made = HTTPMessage()
    for name, value in fields.items():
        made[name.replace("_", "-")] = value
    return made


def answer(sent: float, status: int = 200, *, came: float | None = None, **fields: str) -> Answer:
    return Answer(sent, sent + 0.1 if came is None else came, status, message(**fields))


NOW = "Tue, 17 Nov 2026 10:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        (None, None),
        (message(), None),
        (message(Retry_After="7"), 7.0),
        (message(Retry_After="soon"), None),
        (message(Retry_After="Tue, 17 Nov 2026 10:01:00 GMT", Date=NOW), 60.0),
        (message(Retry_After="Tue, 17 Nov 2026 09:00:00 GMT", Date=NOW), 0.0),
        (message(Retry_After="Tue, 17 Nov 2026 10:01:00 GMT"), None),
        (message(Retry_After=f"Tue, 17 Nov {10**20} 10:01:00 GMT", Date=NOW), None),
    ],
)
def test_retry_after_is_seconds_or_a_date(
    headers: HTTPMessage | None, seconds: float | None
) -> None:
    assert retry_after(headers) == seconds


@pytest.mark.parametrize(
    ("headers", "left"),
    [
        (message(RateLimit='"a";r=5;t=3, "b";r=2;t=9'), 2),
        (message(RateLimit_Remaining="4", X_RateLimit_Remaining="9"), 4),
        (message(X_RateLimit_Remaining="9"), 9),
        (message(RateLimit_Remaining="many"), None),
        (message(RateLimit_Remaining="9" * 5_000), None),
    ],
)
def test_remaining_comes_from_the_strictest_limit(headers: HTTPMessage, left: int | None) -> None:
    assert remaining(headers) == left


def test_limits_and_missing_fields_are_counted() -> None:
    truth = truth_of(
        [
            answer(0, RateLimit_Policy='"a";q=5;w=10', RateLimit='"a";r=4'),
            answer(1, X_RateLimit_Limit="7"),
            answer(2, 429),
            Answer(3, 4, None, error="OSError: no"),
        ]
    )
    assert truth.limits == [5, 7]
    assert truth.retry_after_missing == 1
    assert truth.remaining_seen == 1


def test_retry_after_is_kept_when_the_next_request_is_admitted() -> None:
    refusal = answer(0, 429, Retry_After="2")
    assert truth_of([refusal, answer(1, 429), answer(2.2)]).retry_after_kept == 1
    truth = truth_of([refusal, answer(2.2, 429, Retry_After="9")])
    assert (truth.retry_after_kept, truth.retry_after_broken) == (0, 1)


@pytest.mark.parametrize(
    "later",
    [
        [],  # nothing was asked then
        [answer(2.2, 500)],  # says nothing about the limit
        [answer(1), answer(2.2, 429)],  # what was admitted meanwhile took the room
    ],
)
def test_retry_after_is_not_judged_when_later_answers_prove_nothing(later: list[Answer]) -> None:
    truth = truth_of([answer(0, 429, Retry_After="2"), *later])
    assert truth.retry_after_kept == truth.retry_after_broken == 0


def test_remaining_is_broken_when_a_refusal_comes_too_early() -> None:
    first = answer(0, RateLimit_Remaining="2")
    later = [answer(1), answer(2, 429)]
    assert truth_of([first, *later]).remaining_broken == 1
    assert truth_of([first, answer(0.5), *later]).remaining_broken == 0
    none_left = answer(0, RateLimit_Remaining="0")
    assert truth_of([none_left, *later]).remaining_broken == 0


def test_remaining_is_not_broken_when_other_requests_may_have_used_it() -> None:
    first = answer(0, came=1, RateLimit_Remaining="1")
    beside = answer(0.5, came=3)
    refusal = answer(2, 429)
    assert truth_of([first, refusal]).remaining_broken == 1
    assert truth_of([first, beside, refusal]).remaining_broken == 0
    # A response that came after the refused request was sent promised it nothing.
    late = answer(0, came=2.5, RateLimit_Remaining="9")
    assert truth_of([late, refusal]).remaining_broken == 0


def test_request_without_a_response_counts_as_possibly_admitted() -> None:
    lost = Answer(0.5, 1, None, error="TimeoutError: timed out")
    refusal = answer(0, 429, Retry_After="2")
    later = answer(2.2, 429)
    assert truth_of([refusal, later]).retry_after_broken == 1
    assert truth_of([refusal, lost, later]).retry_after_broken == 0
    first = answer(0, RateLimit_Remaining="1")
    assert truth_of([first, later]).remaining_broken == 1
    assert truth_of([first, lost, later]).remaining_broken == 0
