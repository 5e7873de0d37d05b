"""Bounds on the most requests that were admitted in any window, as far as a client can know."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence


def most_in_window(spans: Sequence[tuple[float, float]], window: float) -> tuple[int, int]:
    """Return the least and the most that the true number can be.

    Each span is the time when a request was sent and the time when its response came. The request
    was counted at some moment in between.
    """
    return _certainly(spans, window), _possibly(spans, window)


def _certainly(spans: Sequence[tuple[float, float]], window: float) -> int:
    """Return the most spans that lie completely within one window; at least 1 if there are any."""
    most = min(1, len(spans))
    ends: list[float] = []
    for sent, came in sorted(spans, reverse=True):
        # `ends` has the ends of all spans that begin when this one does, or later.
        insort(ends, came)
        most = max(most, bisect_left(ends, sent + window))
    return most


def _possibly(spans: Sequence[tuple[float, float]], window: float) -> int:
    """Return the most spans that one window can touch."""
    # A window touches a span if it begins between `sent - window` and `came`.
    begins = sorted(sent - window for sent, _ in spans)
    ends = sorted(came for _, came in spans)
    most = ended = 0
    for begun, begin in enumerate(begins, 1):
        while ends[ended] < begin:
            ended += 1
        most = max(most, begun - ended)
    return most
