"""The overrides that operators have made at run time, in the memory of this process.

A check reads one dict. `overrides.watcher` publishes a new dict when the table of overrides has
changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
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
        """The interface of `override.Override`.

        That module is imported with the first override, because most sites have none.
        """

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
"""Returns seconds since the epoch. Overrides end by this clock."""


class ProfileOverrides(dict[str, "tuple[Override, ...]"]):
    """The overrides of one profile, by identifier. The newest override comes first."""

    def __init__(self) -> None:
        self.everybody: tuple[Override, ...] = ()
        """The overrides for all identifiers."""
        self.shortened = False
        """Whether an identifier is so long that only its beginning and a hash are stored."""


class Snapshot(dict[str, ProfileOverrides]):
    """All overrides, by the name of the profile."""

    size = 0
    """The number of overrides."""
    lasts: Callable[[], bool] | None = None
    """Returns whether this snapshot is still valid; None for always. A snapshot that was read in
    the transaction of a test ends with that transaction."""
    before: Snapshot | None = None
    """The snapshot to go back to when this one ends."""

    def find(self, profile: str, identifier: str) -> Override | None:
        """Return the override in force. One for the identifier comes before those for all."""
        if self.lasts is not None and not self.lasts():
            publish(self.before)
            return None if self.before is None else self.before.find(profile, identifier)
        overrides = self.get(profile)
        if overrides is None:
            return None
        own = overrides.get(identifier, ())
        if not own and overrides.shortened:
            own = overrides.get(unescape(escape(identifier)), ())
        for override in (*own, *overrides.everybody):
            if override.until is None or override.until > clock():
                return override
        return None


current: Snapshot | None = None
"""The overrides that this process obeys; None if there are none."""

saved: Callable[[str], None] | None = None
"""Called with the alias of the database after an override was saved or deleted."""


def find(profile: str, identifier: str) -> Override | None:
    """Return the override in force for an identifier, if any."""
    return None if current is None else current.find(profile, identifier)


def identifiers(profile: str) -> Iterable[str]:
    """Return the identifiers that have an override of their own."""
    return () if current is None else current.get(profile, ())


def publish(snapshot: Snapshot | None) -> None:
    """Replace the overrides that this process obeys."""
    global current
    # The snapshot of a test stays even if it is empty: it knows the one to go back to.
    current = snapshot if snapshot is not None and (snapshot or snapshot.lasts) else None
    limiter = current_limiter.current
    if limiter is not None:
        limiter.shield.clear()
