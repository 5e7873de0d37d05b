"""The bounds hold wherever in its interval a request was counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from django_slidingwindow.load.bounds import most_in_window

TICKS = st.integers(0, 60)
SPANS = st.lists(st.tuples(TICKS, st.integers(0, 12), st.floats(0, 1)), max_size=25)


def most(times: list[float], window: float) -> int:
    """The most of these moments that are less than a window apart, by brute force."""
    return max((sum(a <= b < a + window for b in times) for a in times), default=0)


@given(SPANS, st.integers(1, 30))
def test_truth_lies_between_the_bounds(spans: list[tuple[int, int, float]], window: int) -> None:
    answers = [(float(sent), float(sent + length)) for sent, length, _ in spans]
    truth = most([sent + length * part for sent, length, part in spans], window)
    least, highest = most_in_window(answers, window)
    assert least <= truth <= highest


@given(st.lists(TICKS, max_size=25), st.integers(1, 30))
def test_lower_bound_is_exact_for_known_moments(times: list[int], window: int) -> None:
    answers = [(float(at), float(at)) for at in times]
    least, highest = most_in_window(answers, window)
    assert least == most([float(at) for at in times], window)
    # Two moments exactly one window apart may be in one window, for all that a client knows.
    assert highest == most([float(at) for at in times], window + 0.5)


def test_both_bounds_can_be_reached() -> None:
    assert most_in_window([], 10) == (0, 0)
    answers = [(0.0, 5.0), (9.0, 14.0)]
    assert most_in_window(answers, 10) == (1, 2)
    assert most_in_window(answers, 14.5) == (2, 2)
    assert most_in_window(answers, 3.9) == (1, 1)
