"""The project's own engine on the clock of a log."""

from __future__ import annotations

import sys

from ..core.windows import WindowCache
from ..policies import Policy, Profile
from ..stores.memory import MemoryStore
from ..stores.protocol import Fields, WindowRules


class _Store(MemoryStore):
    """Forgets nothing that is live, and looks for empty windows in larger steps."""

    swept_after, swept = 64, 128


class Lane:
    """A store in memory that replays requests against policies.

    Stamps must not decrease. The store forgets windows when they are empty, so it holds only those
    that are live on the log's clock, and at most as many others.
    """

    def __init__(self, policies: tuple[Policy, ...], *, count_rejected: bool = False) -> None:
        self._now = 0
        self._store = _Store(clock=lambda: self._now, max_keys=sys.maxsize, max_hits=sys.maxsize)
        profile = Profile(
            name="replay", axis="replay", policies=policies, count_rejected=count_rejected
        )
        self._template = WindowCache("replay").template(profile, policies, 1)
        self._rules: WindowRules = self._template.rules
        self._single = len(policies) == 1

    def __len__(self) -> int:
        """Return the number of windows in memory."""
        return len(self._store)

    def hit(self, stamp: int, identifier: str) -> Fields:
        """Return the store's reply to one request."""
        self._now = stamp
        # Nothing else is in the store, so that one window needs no other name.
        keys = (identifier,) if self._single else self._template.windows(identifier).keys
        return self._store.charge(keys, self._rules)
