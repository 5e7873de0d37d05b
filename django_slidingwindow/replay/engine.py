"""Replay requests against all candidates in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from ..exceptions import PolicyError
from ..policies import Policy
from .bounds import Bounds, bounds_of, tightened
from .candidates import Candidate
from .fixed import FixedWindows
from .readers import Entry
from .store import ReplayStore
from .suggest import Peaks
from .timeline import MINUTE, Minute, Timeline
from .times import SECOND

_REPORTED_EVERY = 10_000


class Trial:
    """One candidate and its refusals."""

    def __init__(self, candidate: Candidate, *, suggest: bool = False) -> None:
        self.candidate = candidate
        self.refused = 0
        self.refused_by: dict[str, int] = {}
        """The number of refusals of each identifier that was refused."""
        self.longest_wait = 0
        """The longest wait of a refusal, in microseconds; -1 if a wait never ends."""
        self.fixed = FixedWindows(candidate.policies)
        self.bounds: Bounds | None = bounds_of(candidate)
        self.peaks = [Peaks(policy) for policy in candidate.policies] if suggest else []
        self.worst_peaks = list(map(_worst_peaks, candidate.policies)) if suggest else []
        """The peaks if each request came at the worst moment of its second; None if unknown."""
        self._store = ReplayStore(candidate.policies, count_rejected=candidate.count_rejected)

    def hit(self, stamp: int, identifier: str) -> None:
        reply = self._store.hit(stamp, identifier)
        refused = not reply.admitted
        if refused:
            self.refused += 1
            self.refused_by[identifier] = self.refused_by.get(identifier, 0) + 1
            waits = reply.retries
            if self.longest_wait >= 0:
                self.longest_wait = -1 if min(waits) < 0 else max(self.longest_wait, *waits)
        if self.bounds is not None:
            self.bounds.hit(stamp, identifier, refused)
        self.fixed.hit(stamp, identifier)
        for peaks in self.peaks:
            peaks.hit(stamp, identifier)
        for worst in self.worst_peaks:
            if worst is not None:
                worst.hit(stamp, identifier)

    def stop_bounds(self) -> None:
        """Stop computing bounds. Stamps with fractions of a second are exact and need none."""
        self.bounds = None
        self.worst_peaks = []


def _worst_peaks(policy: Policy) -> Peaks | None:
    try:
        return Peaks(tightened(policy))
    except PolicyError:
        return None


class Replay:
    """All candidates on the same requests.

    Memory holds the live windows, one count for each identifier, and another one for each candidate
    that has refused this identifier.
    """

    def __init__(self, candidates: Iterable[Candidate], *, suggest: Fraction | None = None) -> None:
        self.suggest = suggest
        self.trials = [Trial(candidate, suggest=suggest is not None) for candidate in candidates]
        self.requests = 0
        self.identifiers: dict[str, int] = {}
        """The number of requests of each identifier."""
        self.whole_seconds = True
        """Whether all stamps so far are whole seconds."""
        self.first: int | None = None
        self.last = 0
        self.timeline = Timeline(len(self.trials))
        self._minute = -1
        # The numbers of requests and refusals before this minute.
        self._counts_before: tuple[int, ...] = ()

    def run(self, entries: Iterable[Entry], progress: Callable[[], None] | None = None) -> None:
        """Replay requests. Their stamps must not decrease."""
        identifiers, trials = self.identifiers, self.trials
        for stamp, identifier in entries:
            if stamp // MINUTE != self._minute:
                self._end_minute()
                self._minute = stamp // MINUTE
            if self.whole_seconds and stamp % SECOND:
                self.whole_seconds = False
                for trial in trials:
                    trial.stop_bounds()
            if self.first is None:
                self.first = stamp
            self.last = stamp
            self.requests += 1
            identifiers[identifier] = identifiers.get(identifier, 0) + 1
            for trial in trials:
                trial.hit(stamp, identifier)
            if progress is not None and self.requests % _REPORTED_EVERY == 0:
                progress()
        self._end_minute()
        self._minute = -1

    def _end_minute(self) -> None:
        counts = self.requests, *(trial.refused for trial in self.trials)
        if self._minute >= 0:
            requests, *refused = (
                now - before for now, before in zip(counts, self._counts_before, strict=True)
            )
            self.timeline.add(
                Minute(stamp=self._minute * MINUTE, requests=requests, refused=tuple(refused))
            )
        self._counts_before = counts
