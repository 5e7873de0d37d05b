"""What the fields of responses say about limits, and whether it came true.

All of it holds only if nobody else is counted with this client.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPMessage
from operator import attrgetter

from .client import Answer

# Answers before a refusal that are compared with it: older ones promise nothing sharper.
_COMPARED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """How often fields were seen, and how often they were wrong."""

    limits: Sequence[int]
    """The limits that responses named."""
    retry_after_missing: int
    """Refusals that did not say when to come back."""
    retry_after_kept: int
    """Requests after that time that were admitted."""
    retry_after_broken: int
    """Requests after that time that were refused, although nothing was admitted meanwhile."""
    remaining_seen: int
    """Responses that said how many requests were left."""
    remaining_broken: int
    """Refusals of a request that was still among those."""


def truth_of(answers: Sequence[Answer]) -> Truth:
    """Compare what responses said with what came later."""
    ordered = sorted(
        (answer for answer in answers if answer.headers is not None), key=attrgetter("sent")
    )
    refused = [answer for answer in ordered if answer.refused]
    kept = [_retry_kept(answer, ordered) for answer in refused]
    said = [answer for answer in ordered if remaining(answer.headers) is not None]
    limits = {limit for answer in ordered if (limit := _limit(answer.headers)) is not None}
    return Truth(
        limits=sorted(limits),
        retry_after_missing=len([a for a in refused if retry_after(a.headers) is None]),
        retry_after_kept=kept.count(True),
        retry_after_broken=kept.count(False),
        remaining_seen=len(said),
        remaining_broken=len([a for a in refused if _had_room(a, ordered, said)]),
    )


def retry_after(headers: HTTPMessage | None) -> float | None:
    """Return the seconds of Retry-After; None if there is none, or if it is not readable."""
    text = _text(headers, "Retry-After")
    if text.isdecimal():
        return float(text)
    try:
        until, now = parsedate_to_datetime(text), parsedate_to_datetime(_text(headers, "Date"))
        return max(0.0, (until - now).total_seconds())
    except (TypeError, ValueError):
        return None


def remaining(headers: HTTPMessage | None) -> int | None:
    """Return how many requests are left, by the strictest limit that a response names."""
    return _least(headers, "RateLimit", "r", "RateLimit-Remaining", "X-RateLimit-Remaining")


def _limit(headers: HTTPMessage | None) -> int | None:
    return _least(headers, "RateLimit-Policy", "q", "RateLimit-Limit", "X-RateLimit-Limit")


def _least(headers: HTTPMessage | None, draft: str, key: str, *others: str) -> int | None:
    """Return the smallest number: of the draft's field by its key, else of the older fields."""
    found = re.findall(rf";\s*{key}=(\d{{1,18}})\b", _text(headers, draft))
    found = found or [text for name in others if (text := _text(headers, name)).isdecimal()]
    return min(map(int, found), default=None)


def _text(headers: HTTPMessage | None, name: str) -> str:
    return "" if headers is None else str(headers.get(name, "")).strip()


def _retry_kept(refusal: Answer, ordered: Sequence[Answer]) -> bool | None:
    """Whether the first request after Retry-After was admitted; None if that says nothing."""
    seconds = retry_after(refusal.headers)
    if seconds is None:
        return None
    first = bisect_right(ordered, refusal.came + seconds, key=attrgetter("sent"))
    if first == len(ordered):
        return None
    later = ordered[first]
    if later.admitted:
        return True
    # What was admitted meanwhile has taken the room; other statuses say nothing.
    between = any(
        answer.admitted and answer.came > refusal.sent and answer.sent < later.came
        for answer in ordered
    )
    return False if later.refused and not between else None


def _had_room(refusal: Answer, ordered: Sequence[Answer], said: Sequence[Answer]) -> bool:
    """Whether an earlier response had said that this request would be admitted."""
    before = [answer for answer in said if answer.came <= refusal.sent][-_COMPARED:]
    for earlier in before:
        left = remaining(earlier.headers) or 0
        if left and left > sum(
            answer.came > earlier.sent and answer.sent < refusal.came
            for answer in ordered
            if answer is not earlier and answer is not refusal
        ):
            return True
    return False
