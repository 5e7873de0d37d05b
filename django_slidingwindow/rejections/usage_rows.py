"""Turn admitted requests into rows of the usage log, for profiles with `"log": "all"`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..conf import conf
from ..core.keys import any_key, identifier_in, is_shortened
from ..guard.state import STATE
from ..models import Usage
from .rows import column, digest_of, ends_of, logged_identifier, moment, view_of

# The largest cost that a request adds to a row, so that the sum fits into the column. A request
# that no limit refuses may have any cost.
_MAX_COST = 10**12

if TYPE_CHECKING:
    from ..core.windows import WindowSet


class UsageGroup(NamedTuple):
    """The values shared by all admitted requests that are counted in one row."""

    minute: int
    """Minutes since the epoch."""
    profile: str
    stem: str
    """What all keys of the identifier begin with; empty for requests beyond LOG_ROWS_PER_MINUTE.

    Not a whole key: a row counts the requests of all windows, and a function may choose another
    window for each request."""
    view: str

    def overflow(self) -> UsageGroup:
        """Return the group that collects a profile's requests beyond LOG_ROWS_PER_MINUTE."""
        return self._replace(stem="", view="")

    def row(self, tally: UsageTally) -> Usage:
        """Return the unsaved row."""
        identifier, others = logged_identifier(identifier_in(self.stem)), not self.stem
        identity = (*ends_of(self.stem), identifier, is_shortened(self.stem), others)
        return Usage(
            minute=moment(self.minute * 60),
            digest=digest_of((*identity, self.profile, self.view)),
            profile=column(self.profile, "profile"),
            identifier=identifier,
            others=others,
            view=column(self.view, "view"),
            hits=tally.hits,
            cost=tally.cost,
        )


@dataclass(slots=True)
class UsageTally:
    """The counts of a group."""

    hits: int
    """The number of requests."""
    cost: int
    """The total cost of these requests."""

    def add(self, other: UsageTally) -> None:
        """Add another tally of the same group."""
        self.hits += other.hits
        self.cost += other.cost


def admissions(
    request: Any, windows: WindowSet, counted: Mapping[str, Any], now: float
) -> list[tuple[UsageGroup, UsageTally]]:
    """Return what to log for an admitted request; `request` is None for a call of `limits`.

    `counted` has the identifier and the cost by the name of the profile.
    """
    template, keys = windows
    minute, view = int(now // 60), view_of(request)
    earlier = getattr(request, STATE, ())[:-1]
    found = []
    for profile, position in template.logged:
        identifier, cost = counted[profile.name]
        key = any_key(conf.prefix, profile, identifier) if position is None else keys[position]
        # A later check of the same request only adds to its cost.
        counted_before = earlier and any(check.counted.get(profile.name) for check in earlier)
        hits = 0 if counted_before else 1
        group = UsageGroup(minute, profile.name, key.rpartition(":")[0], view)
        found.append((group, UsageTally(hits, min(cost, _MAX_COST))))
    return found
