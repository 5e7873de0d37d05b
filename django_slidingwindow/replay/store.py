"""The memory store of real checks, on the clock of a log."""

from __future__ import annotations

import sys

from ..core.windows import WindowCache
from ..policies import Policy, Profile
from ..stores.memory import MemoryStore
from ..stores.protocol import Reply


class _Store(MemoryStore):
    """A memory store that looks for empty windows less often, but at more of them each time."""

    swept_after, swept = 64, 128


class ReplayStore:
    """A store in memory that replays requests against policies.

    Stamps must not decrease. The store never drops a live window and forgets empty ones, so it
    holds the windows that are live on the log's clock, and at most as many empty ones.
    """

    def __init__(self, policies: tuple[Policy, ...], *, count_rejected: bool = False) -> None:
        self._now = 0
        self._store = _Store(clock=lambda: self._now, max_keys=sys.maxsize, max_hits=sys.maxsize)
        profile = Profile(
            name="replay", axis="replay", policies=policies, count_rejected=count_rejected
        )
        self._template = WindowCache("replay").template(profile, policies, 1)
        self._single = len(policies) == 1

    def __len__(self) -> int:
        """Return the number of windows in memory."""
        return len(self._store)

    def hit(self, stamp: int, identifier: str) -> Reply:
        """Charge one request and return the store's reply."""
        self._now = stamp
        # With a single policy, the identifier alone is a unique key, which saves making one.
        keys = (identifier,) if self._single else self._template.windows(identifier).keys
        return self._store.charge(keys, self._template.rules)
