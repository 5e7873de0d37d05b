"""Compare what the header fields of responses say about limits with what happened.

The comparison is valid only if no other client is counted together with this one.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPMessage
from operator import attrgetter

from .client import Answer

# How many answers before a refusal are compared with it. Older answers can prove no more.
_COMPARED = 20
# The number of digits is bounded, because int() raises an error for thousands of them.
_NUMBER = r"[0-9]{1,18}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """How often fields were seen, and how often they were wrong."""

    limits: Sequence[int]
    """The limits that responses named."""
    retry_after_missing: int
    """Refusals without Retry-After."""
    retry_after_kept: int
    """Refusals after which the first request past Retry-After was admitted."""
    retry_after_broken: int
    """Refusals after which that request was refused, although nothing was admitted meanwhile."""
    remaining_seen: int
    """Responses that say how many requests are left."""
    remaining_broken: int
    """Refusals although an earlier response said that requests were left."""


def truth_of(answers: Sequence[Answer]) -> Truth:
    """Compare each response with the responses that came later."""
    ordered = sorted(
        (answer for answer in answers if answer.headers is not None), key=attrgetter("sent")
    )
    refused = [answer for answer in ordered if answer.refused]
    # A request without a response may have been admitted.
    admitted = _Spans(answer for answer in answers if answer.admitted or answer.status is None)
    kept = [_retry_kept(answer, ordered, admitted) for answer in refused]
    by_end = sorted(ordered, key=attrgetter("came"))
    with_remaining = [(a, left) for a in by_end if (left := remaining(a.headers)) is not None]
    spans = _Spans(answers)
    limits = {limit for answer in ordered if (limit := _limit(answer.headers)) is not None}
    return Truth(
        limits=sorted(limits),
        retry_after_missing=len([a for a in refused if retry_after(a.headers) is None]),
        retry_after_kept=kept.count(True),
        retry_after_broken=kept.count(False),
        remaining_seen=len(with_remaining),
        remaining_broken=len([a for a in refused if _had_room(a, with_remaining, spans)]),
    )


def retry_after(headers: HTTPMessage | None) -> float | None:
    """Return the seconds of Retry-After; None if the field is missing or cannot be read."""
    text = _text(headers, "Retry-After")
    if text.isdecimal():
        return float(text)
    try:
        until, now = parsedate_to_datetime(text), parsedate_to_datetime(_text(headers, "Date"))
        return max(0.0, (until - now).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return None


def remaining(headers: HTTPMessage | None) -> int | None:
    """Return how many requests are left by the strictest limit of a response."""
    return _smallest(headers, "RateLimit", "r", "RateLimit-Remaining", "X-RateLimit-Remaining")


def _limit(headers: HTTPMessage | None) -> int | None:
    return _smallest(headers, "RateLimit-Policy", "q", "RateLimit-Limit", "X-RateLimit-Limit")


def _smallest(headers: HTTPMessage | None, draft: str, key: str, *others: str) -> int | None:
    """Return the smallest number of the draft's field, else of the older fields."""
    found = re.findall(rf";\s*{key}=({_NUMBER})\b", _text(headers, draft))
    texts = (_text(headers, name) for name in others)
    found = found or [text for text in texts if re.fullmatch(_NUMBER, text)]
    return min(map(int, found), default=None)


def _text(headers: HTTPMessage | None, name: str) -> str:
    return "" if headers is None else str(headers.get(name, "")).strip()


class _Spans:
    """Counts the requests that may have been decided between two moments."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        spans = [(answer.sent, answer.came) for answer in answers]
        self._sent = sorted(sent for sent, _ in spans)
        self._came = sorted(came for _, came in spans)

    def between(self, begin: float, end: float) -> int:
        return bisect_left(self._sent, end) - bisect_right(self._came, begin)


def _retry_kept(refusal: Answer, ordered: Sequence[Answer], admitted: _Spans) -> bool | None:
    """Whether the first request after Retry-After was admitted; None if that proves nothing."""
    seconds = retry_after(refusal.headers)
    if seconds is None:
        return None
    first = bisect_right(ordered, refusal.came + seconds, key=attrgetter("sent"))
    if first == len(ordered):
        return None
    later = ordered[first]
    if later.admitted:
        return True
    # Requests that were admitted meanwhile may have used up the limit; other statuses than 429
    # prove nothing.
    is_broken = later.refused and not admitted.between(refusal.sent, later.came)
    return False if is_broken else None


def _had_room(refusal: Answer, with_remaining: Sequence[tuple[Answer, int]], spans: _Spans) -> bool:
    """Whether an earlier response said that there was room for this request."""
    end = bisect_right(with_remaining, refusal.sent, key=lambda pair: pair[0].came)
    return any(
        # All other requests may have been counted in between. `between` also counts both of these.
        left > spans.between(earlier.sent, refusal.came) - 2
        for earlier, left in with_remaining[max(0, end - _COMPARED) : end]
        if left
    )
