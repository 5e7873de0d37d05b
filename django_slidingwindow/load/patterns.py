"""Patterns of requests: bursts across the boundary of a window, or a steady rate."""

from __future__ import annotations

import time
from collections.abc import Callable

from .client import Answer, Client
from .fields import retry_after

# While waiting for an admission: requests in one window, and the bounds of the pause in seconds.
_POLLS, _MIN_PAUSE, _MAX_PAUSE = 100, 0.05, 1.0
# How much longer a burst may take than the first one.
_SLOWER = 1.5
# Seconds by which Retry-After may be rounded up.
_ROUNDING = 1.0


class Pattern:
    """Sends requests in a pattern, until the client may send no more."""

    def __init__(self, client: Client, *, sleep: Callable[[float], object] = time.sleep) -> None:
        self._client = client
        self._sleep = sleep

    def steady(self, rate: float) -> None:
        """Send `rate` requests per second."""
        begin, number = self._client.clock(), 0
        while self._wait_until(begin + number / rate) and self._client.begin():
            number += 1
        self._client.wait()

    def boundary(self, size: int, window: float) -> None:
        """Send a burst just before a window ends, and another one just after its end.

        The first request wakes the site up, and the first burst reaches the limit. If windows are
        fixed, one of them ends when a request is admitted again, and the next one a window later.
        """
        self._client.ask()
        first = self._client.burst(size)
        refusals = [answer for answer in first if answer.refused]
        found = self._admission(refusals[-1], window) if refusals else None
        if found is None:
            return
        refused, admitted = found
        burst_seconds = _SLOWER * (max(a.came for a in first) - min(a.sent for a in first))
        for moment in (refused.sent + window - burst_seconds, admitted.came + window):
            if not self._wait_until(moment):
                return
            self._client.burst(size)

    def _admission(self, refused: Answer, window: float) -> tuple[Answer, Answer] | None:
        """Ask until a request is admitted; return the last refusal and the admission."""
        pause = min(max(window / _POLLS, _MIN_PAUSE), _MAX_PAUSE)
        wait = retry_after(refused.headers) or 0.0
        moment = refused.came + max(pause, wait - _ROUNDING)
        while self._wait_until(moment):
            answer = self._client.ask()
            if answer is None:
                break
            if answer.admitted:
                return refused, answer
            refused, moment = answer, answer.came + pause
        return None

    def _wait_until(self, moment: float) -> bool:
        """Wait; return False at once if the client may send nothing at that moment."""
        if moment >= self._client.end:
            return False
        self._sleep(max(0.0, moment - self._client.clock()))
        return True
