"""Overrides: what operators have changed at run time, as this process knows it.

A check reads one dict in memory. `overrides.watcher` publishes another one when the table of
overrides has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..core.keys import escape, unescape
from ..decisions import BLOCK, EXEMPT, LIMIT, OBSERVED
from . import current_limiter

if TYPE_CHECKING:
    from typing import Protocol

    from ..core.limiter import Limiter
    from ..core.windows import WindowSet
    from ..policies import Policy, Profile

    class Override(Protocol):
        """`override.Override`, which is loaded with the first override: most sites have none."""

        @property
        def action(self) -> str: ...
        @property
        def until(self) -> float | None: ...
        @property
        def counts(self) -> bool: ...
        @property
        def refuses(self) -> bool: ...
        def windows(
            self,
            limiter: Limiter,
            profile: Profile,
            policies: tuple[Policy, ...],
            identifier: str,
            cost: int,
        ) -> WindowSet: ...
        def change(
            self, profile: Profile, policies: tuple[Policy, ...]
        ) -> tuple[Profile, tuple[Policy, ...]]: ...


ACTIONS = (LIMIT, EXEMPT, OBSERVED, BLOCK)

clock: Callable[[], float] = time.time
"""Seconds since the epoch: by it overrides end."""


class ProfileOverrides(dict[str, "tuple[Override, ...]"]):
    """The overrides of one profile by identifier, the newest first."""

    def __init__(self) -> None:
        self.everybody: tuple[Override, ...] = ()
        """Those for all identifiers."""
        self.shortened = False
        """Whether one has an identifier that is only its beginning and a hash."""


class Snapshot(dict[str, ProfileOverrides]):
    """All overrides by the name of the profile."""

    size = 0
    """How many overrides it has."""
    lasts: Callable[[], bool] | None = None
    """Whether it still holds: one that was read in the transaction of a test ends with it."""
    before: Snapshot | None = None
    """The one that holds then."""

    def find(self, profile: str, identifier: str) -> Override | None:
        """Return the override in force; one for the identifier comes before one for all."""
        if self.lasts is not None and not self.lasts():
            publish(self.before)
            return None if self.before is None else self.before.find(profile, identifier)
        known = self.get(profile)
        if known is None:
            return None
        own = known.get(identifier, ())
        if not own and known.shortened:
            own = known.get(unescape(escape(identifier)), ())
        for override in (*own, *known.everybody):
            if override.until is None or override.until > clock():
                return override
        return None


current: Snapshot | None = None
"""The overrides that this process obeys; None if there are none."""

saved: Callable[[str], None] | None = None
"""Called with the alias of the database when an override was saved or deleted."""


def find(profile: str, identifier: str) -> Override | None:
    """Return the override in force for an identifier, if any."""
    return None if current is None else current.find(profile, identifier)


def publish(snapshot: Snapshot | None) -> None:
    """Replace the overrides that this process obeys."""
    global current
    # That of a test stays even if it is empty: it knows which one comes after it.
    current = snapshot if snapshot is not None and (snapshot or snapshot.lasts) else None
    limiter = current_limiter.current
    if limiter is not None:
        limiter.shield.clear()
