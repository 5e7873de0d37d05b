"""A circuit breaker: stops calls to a store that fails, and finds out when it works again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half-open"

THRESHOLD = 3
"""Consecutive failures that open a breaker: one lost packet is not an outage."""
# Seconds between probes: doubled from the first delay to the last, minus up to a quarter at random,
# so that the processes of a site do not probe in step. The last one keeps recovery below a second.
_FIRST_DELAY, LAST_DELAY = 0.1, 0.8
_JITTER = 0.25
# Seconds after which a probe without a result (its task was cancelled) counts as lost.
_PROBE_LOST = 5.0


def most_probes(seconds: float) -> int:
    """Return the most probes that a breaker sends while it is open for `seconds`."""
    probes, delay = 0, _FIRST_DELAY
    left = seconds - delay * (1 - _JITTER)
    while left >= 0:
        probes += 1
        delay = min(2 * delay, LAST_DELAY)
        left -= delay * (1 - _JITTER)
    return probes


class Breaker:
    """Closed: every call may be sent. Open: none. Half-open: one probe, whose result decides."""

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
        self._incidents: set[int] = set()
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
    def is_healthy(self) -> bool:
        """Whether the last report was a success, or there was no report yet."""
        return self._opened_at is None and self._failures == 0

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
        """Whether the caller may ask the store. If so, it has to report the result."""
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
        """Report an answer. If that closes the breaker, return the seconds that it was open."""
        if self._opened_at is None:
            self._failures = 0
            self._incidents.clear()
            return None
        with self._lock:
            if self._opened_at is None or self._probing_since is None:
                # An answer to a call from before it opened proves nothing.
                return None
            open_for = self._clock() - self._opened_at
            self._opened_at = self._probing_since = None
            self._failures = 0
            self._delay = _FIRST_DELAY
            return open_for

    def failed(self, incident: int | None = None) -> bool:
        """Report a failure; return True if that opens the breaker.

        Calls that share a connection fail together. They have the same `incident`, and count once.
        """
        with self._lock:
            if incident is not None and self._opened_at is None:
                if incident in self._incidents:
                    return False
                self._incidents.add(incident)
            self._failures += 1
            if self._opened_at is not None:
                if self._probing_since is not None:
                    self._probing_since = None
                    self._delay = min(2 * self._delay, LAST_DELAY)
                    self._schedule()
                return False
            if self._failures < THRESHOLD:
                return False
            self._opened_at = self._clock()
            self._incidents.clear()
            self._schedule()
            return True

    def abandoned(self) -> None:
        """Report that the result will never be known, so that another caller may probe."""
        with self._lock:
            self._probing_since = None

    def _schedule(self) -> None:
        self._probe_at = self._clock() + self._delay * (1 - _JITTER * self._jitter())


class Breakers:
    """The breakers of a store: one for each node that can fail separately.

    An outage lasts from the time that the first breaker opens until the last one closes.
    """

    def __init__(self, make: Callable[[], Breaker] = Breaker) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._breakers: dict[str, Breaker] = {}
        self.open: dict[str, Breaker] = {}
        """The breakers that are not closed, by node."""
        self._longest = 0.0
        self.is_healthy = True
        """Whether the breakers of all nodes are healthy: then successes need not be reported."""

    def of(self, node: str) -> Breaker:
        found = self._breakers.get(node)
        if found is None:
            found = self._breakers.setdefault(node, self._make())
        return found

    @property
    def state(self) -> str:
        """The state of all breakers together: closed only if all are closed."""
        states = [breaker.state for breaker in list(self.open.values())]
        return OPEN if OPEN in states else HALF_OPEN if states else CLOSED

    @property
    def probe_in(self) -> float:
        """Seconds until the next probe may be sent."""
        return min((breaker.probe_in for breaker in list(self.open.values())), default=0.0)

    def permit(self, nodes: Sequence[str]) -> bool:
        """Whether the caller may ask all of these nodes. If so, it has to report for each."""
        if not self.open:
            return True
        for asked, node in enumerate(nodes):
            if not self.of(node).permits():
                self.abandoned(nodes[:asked])
                return False
        return True

    def failed(self, node: str, incident: int | None = None) -> int:
        """Report a failure. If that opens a breaker, return the number of open ones, otherwise 0.

        An outage begins if the number is 1.
        """
        with self._lock:
            self.is_healthy = False
            breaker = self.of(node)
            if not breaker.failed(incident):
                return 0
            self.open[node] = breaker
            return len(self.open)

    def succeeded(self, node: str, nodes: Callable[[], Iterable[str]]) -> float | None:
        """Report an answer. If that ends an outage, return its length in seconds.

        `nodes` returns the nodes that exist: the breaker of a removed node could never close.
        """
        if self.is_healthy:
            return None
        with self._lock:
            was_open = bool(self.open)
            seconds = self.of(node).succeeded()
            if seconds is not None:
                self.open.pop(node)
                self._longest = max(self._longest, seconds)
            existing = set(nodes())
            for gone in set(self.open) - existing:
                self._longest = max(self._longest, self.open.pop(gone).open_for)
                del self._breakers[gone]
            self.is_healthy = all(self.of(node).is_healthy for node in existing)
            if self.open or not was_open:
                return None
            longest, self._longest = self._longest, 0.0
        return longest

    def abandoned(self, nodes: Iterable[str]) -> None:
        """Report that the results of calls to these nodes will never be known."""
        for node in nodes:
            self.of(node).abandoned()
