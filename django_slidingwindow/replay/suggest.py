"""Find the smallest limit that touches at most a share of the identifiers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from ..policies import Policy
from ..rates import MAX_LIMIT
from .store import ReplayStore


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A limit, and how many identifiers it touches."""

    limit: int
    touched: int
    """Identifiers that would be refused at least once."""


class Peaks:
    """The most requests of each identifier in one window: its peak.

    A limit touches exactly the identifiers whose peak is above the limit, because all requests
    before the first refusal of an identifier are admitted. So one pass is enough for every limit.
    """

    def __init__(self, policy: Policy) -> None:
        self._store = ReplayStore(
            (
                Policy(
                    limit=MAX_LIMIT,
                    window=policy.window,
                    algorithm=policy.algorithm,
                    resolution=policy.resolution,
                ),
            )
        )
        self._peaks: dict[str, int] = {}

    def hit(self, stamp: int, identifier: str) -> None:
        count = MAX_LIMIT - self._store.hit(stamp, identifier).remaining[0]
        if count > self._peaks.get(identifier, 0):
            self._peaks[identifier] = count

    def suggest(self, share: Fraction) -> Suggestion:
        """Return the smallest limit that touches at most this share of the identifiers."""
        allowed = int(share * len(self._peaks))
        touched = 0
        for peak, identifiers in sorted(Counter(self._peaks.values()).items(), reverse=True):
            if touched + identifiers > allowed:
                return Suggestion(peak, touched)
            touched += identifiers
        return Suggestion(0, touched)
