"""The most requests that were admitted in any window, as far as a client can know."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence


def most_in_window(answers: Iterable[tuple[float, float]], window: float) -> tuple[int, int]:
    """Return the least and the most that the true number can be.

    Each answer is the time when its request was sent and the time when the response came. The
    request was counted somewhere in between.
    """
    spans = [(sent, came) for sent, came, *_ in answers]
    return _certainly(spans, window), _possibly(spans, window)


def _certainly(spans: Sequence[tuple[float, float]], window: float) -> int:
    """Return the most spans that lie as a whole within one window; 1 for longer ones."""
    most = min(1, len(spans))
    ends: list[float] = []
    for sent, came in sorted(spans, reverse=True):
        # The ends of all spans that begin no earlier than this one.
        insort(ends, came)
        most = max(most, bisect_left(ends, sent + window))
    return most


def _possibly(spans: Sequence[tuple[float, float]], window: float) -> int:
    """Return the most spans that one window touches."""
    # A window that begins between `sent - window` and `came` touches a span.
    begins = sorted(sent - window for sent, _ in spans)
    ends = sorted(came for _, came in spans)
    most = over = 0
    for begun, begin in enumerate(begins, 1):
        while ends[over] < begin:
            over += 1
        most = max(most, begun - over)
    return most
