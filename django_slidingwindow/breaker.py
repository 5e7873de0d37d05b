"""Keeps requests away from a store that is away, and finds out when it is back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half-open"

# Consecutive failures that open it: one lost packet is no outage.
_THRESHOLD = 3
# Seconds between probes: doubled from the first to the last, less up to a quarter,
# so that the processes of a site do not probe in step. The last one keeps recovery
# within a second of the store's return.
_FIRST_DELAY, _LAST_DELAY = 0.1, 0.8
_JITTER = 0.25
# Seconds after which a probe that never reported (its task was cancelled) is given up.
_PROBE_LOST = 5.0


class Breaker:
    """Closed: all may ask. Open: nobody. Half-open: one may, and its answer decides."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self._lock = threading.Lock()
        self._failures = 0
        self._opened_at: float | None = None
        self._probe_at = 0.0
        self._probing_since: float | None = None
        self._delay = _FIRST_DELAY

    @property
    def state(self) -> str:
        if self._opened_at is None:
            return CLOSED
        return OPEN if self._probing_since is None else HALF_OPEN

    @property
    def open_for(self) -> float:
        """Seconds since it opened; 0.0 when closed."""
        opened_at = self._opened_at
        return 0.0 if opened_at is None else self._clock() - opened_at

    @property
    def probe_in(self) -> float:
        """Seconds until the next probe may be sent."""
        return max(0.0, self._probe_at - self._clock())

    def permits(self) -> bool:
        """Whether the caller may ask the store; it then has to report how that went."""
        if self._opened_at is None:
            return True
        now = self._clock()
        if now < self._probe_at:
            return False
        with self._lock:
            if self._opened_at is None:
                return True
            since = self._probing_since
            if since is not None and now - since < _PROBE_LOST:
                return False
            self._probing_since = now
            return True

    def succeeded(self) -> float | None:
        """Reports an answer; the seconds it was open, if this closes it."""
        if self._opened_at is None:
            self._failures = 0
            return None
        with self._lock:
            if self._opened_at is None or self._probing_since is None:
                # A straggler from before it opened proves nothing.
                return None
            open_for = self._clock() - self._opened_at
            self._opened_at = self._probing_since = None
            self._failures = 0
            self._delay = _FIRST_DELAY
            return open_for

    def failed(self) -> bool:
        """Reports a failure; True if this opens it."""
        with self._lock:
            self._failures += 1
            if self._opened_at is not None:
                if self._probing_since is not None:
                    self._probing_since = None
                    self._delay = min(2 * self._delay, _LAST_DELAY)
                    self._schedule()
                return False
            if self._failures < _THRESHOLD:
                return False
            self._opened_at = self._clock()
            self._schedule()
            return True

    def abandoned(self) -> None:
        """Reports that the caller will never know; the next one may probe."""
        with self._lock:
            self._probing_since = None

    def _schedule(self) -> None:
        self._probe_at = self._clock() + self._delay * (1 - _JITTER * self._jitter())
