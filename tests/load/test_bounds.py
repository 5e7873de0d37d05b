"""The bounds hold for every moment at which a request may have been counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from django_slidingwindow.load.bounds import most_in_window

TICKS = st.integers(0, 60)
SPANS = st.lists(st.tuples(TICKS, st.integers(0, 12), st.floats(0, 1)), max_size=25)


def most(times: list[float], window: float) -> int:
    """Return the most of these moments within one window, by brute force."""
    return max((sum(a <= b < a + window for b in times) for a in times), default=0)


@given(SPANS, st.integers(1, 30))
def test_true_number_lies_between_the_bounds(
    spans: list[tuple[int, int, float]], window: int
) -> None:
    known = [(float(sent), float(sent + length)) for sent, length, _ in spans]
    truth = most([sent + length * part for sent, length, part in spans], window)
    least, highest = most_in_window(known, window)
    assert least <= truth <= highest


@given(st.lists(TICKS, max_size=25), st.integers(1, 30))
def test_lower_bound_is_exact_for_known_moments(times: list[int], window: int) -> None:
    spans = [(float(at), float(at)) for at in times]
    least, highest = most_in_window(spans, window)
    assert least == most([float(at) for at in times], window)
    # A client cannot exclude that two moments exactly one window apart are in one window.
    assert highest == most([float(at) for at in times], window + 0.5)


def test_both_bounds_can_be_reached() -> None:
    assert most_in_window([], 10) == (0, 0)
    spans = [(0.0, 5.0), (9.0, 14.0)]
    assert most_in_window(spans, 10) == (1, 2)
    assert most_in_window(spans, 14.5) == (2, 2)
    assert most_in_window(spans, 3.9) == (1, 1)
