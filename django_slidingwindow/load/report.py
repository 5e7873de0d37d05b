"""The results of a load test, as one record for people and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from operator import sub
from typing import Any

from ..durations import rate_exact
from ..policies import Policy
from .bounds import most_in_window
from .client import Answer
from .fields import truth_of

OVER, WITHIN, UNSURE = "over", "within", "unsure"


def record(url: str, answers: Sequence[Answer], policies: Sequence[Policy]) -> dict[str, Any]:
    """Return all results. `ok` is false if a limit was certainly exceeded."""
    windows = [_window(answers, policy) for policy in policies]
    begins, ends = [answer.sent for answer in answers], [answer.came for answer in answers]
    statuses = Counter(str(answer.status or answer.error) for answer in answers)
    return {
        "ok": all(window["verdict"] != OVER for window in windows),
        "url": url,
        "requests": len(answers),
        "admitted": len([answer for answer in answers if answer.admitted]),
        "refused": len([answer for answer in answers if answer.refused]),
        "statuses": dict(sorted(statuses.items())),
        "seconds": max(ends, default=0.0) - min(begins, default=0.0),
        "slowest": max(map(sub, ends, begins), default=0.0),
        "windows": windows,
        "fields": asdict(truth_of(answers)),
    }


def _window(answers: Sequence[Answer], policy: Policy) -> dict[str, Any]:
    admitted = [(answer.sent, answer.came) for answer in answers if answer.admitted]
    least, most = most_in_window(admitted, policy.window)
    verdict = OVER if least > policy.limit else WITHIN if most <= policy.limit else UNSURE
    return {
        "rate": rate_exact(policy.limit, policy.window),
        "limit": policy.limit,
        "window": policy.window,
        "most_least": least,
        "most_most": most,
        "verdict": verdict,
    }
