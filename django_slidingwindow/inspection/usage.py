"""How much of its limits a profile uses, from the usage log and the rejection log.

Both count by the minute. So a window is measured in whole minutes, rounded up.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import unquote

from django.db.models import Sum

from ..conf import conf
from ..core.tiers import windows_of
from ..decisions import FALLBACK, LIMIT
from ..guard import overriding
from ..guard.current_limiter import get_limiter
from ..guard.identity import canonical
from ..models import Rejection, Usage
from ..policies import Profile
from ..rejections.rows import OVERFLOW, column, logged_identifier
from .search import policies_of
from .spans import Span, minute_number, newest_rows

SHARES = (50, 95, 99)
"""The percentiles that are shown."""
BUSIEST = 10
_REFUSED = (LIMIT, FALLBACK, OVERFLOW)
_MINUTE = 60


@dataclass(slots=True)
class Count:
    """The requests of some minutes."""

    admitted: int = 0
    cost: int = 0
    """What the admitted ones cost together, in hits."""
    refused: int = 0
    """Requests over a limit. Their cost is not known."""

    def add(self, admitted: int, cost: int, refused: int) -> None:
        self.admitted += admitted
        self.cost += cost
        self.refused += refused

    @property
    def demand(self) -> int:
        """The hits that were asked for; a refused request counts as one."""
        return self.cost + self.refused


Minutes: TypeAlias = "dict[int, Count]"
"""Counts by minutes since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the logs have about a profile in a span of time."""

    span: Span
    """The span that was asked for, or its end if there were too many rows to read."""
    by_identifier: Mapping[str, Minutes]
    others: Count
    """Requests beyond LOG_ROWS_PER_MINUTE, whose identifiers are lost."""

    @property
    def total(self) -> Count:
        """All requests, with those of others."""
        found = Count(self.others.admitted, self.others.cost, self.others.refused)
        for minutes in self.by_identifier.values():
            for count in minutes.values():
                found.add(count.admitted, count.cost, count.refused)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowUse:
    """How many hits identifiers asked for in one window of the clock."""

    limit: int | None
    """None if it depends on the identifier, or if there is none."""
    window: float
    """Seconds."""
    samples: int
    """Pairs of an identifier and a window in which it had a request."""
    percentiles: Mapping[int, int] = field(default_factory=dict)
    """Hits by percentile; empty without samples."""
    most: int = 0

    @property
    def minutes(self) -> int:
        """The length in which the hits were counted."""
        return whole_minutes(self.window)

    @property
    def limit_in_minutes(self) -> int | None:
        """What the limit admits in `minutes`."""
        return None if self.limit is None else limit_in_minutes(self.limit, self.window)


def read(profile: Profile, span: Span, identifier: str | None = None) -> Counts:
    """Return the counts of a profile, or of one of its identifiers."""
    admitted, refused, shown = _rows(profile, span, identifier)
    found: dict[str, Minutes] = defaultdict(lambda: defaultdict(Count))
    others = Count()
    groups = admitted.values_list("others", "identifier", "minute")
    for is_other, who, minute, hits, cost in groups.annotate(Sum("hits"), Sum("cost")).iterator():
        count = others if is_other else found[who][minute_number(minute)]
        count.add(hits, cost, 0)
    groups = refused.values_list("reason", "identifier", "minute")
    for reason, who, minute, hits in groups.annotate(Sum("hits")).iterator():
        count = others if reason == OVERFLOW else found[who][minute_number(minute)]
        count.add(0, 0, hits)
    return Counts(span=shown, by_identifier=found, others=others)


def trail(profile: Profile, span: Span, identifier: str) -> tuple[list[dict[str, Any]], Span]:
    """Return what an identifier did, as a dict for each minute and view, the oldest first."""
    admitted, refused, shown = _rows(profile, span, identifier)
    found: dict[tuple[Any, str, str], Count] = defaultdict(Count)
    groups: Any = admitted.values_list("minute", "identifier", "view")
    for *key, hits, cost in groups.annotate(Sum("hits"), Sum("cost")).iterator():
        found[tuple(key)].add(hits, cost, 0)
    groups = refused.values_list("minute", "identifier", "view")
    for *key, hits in groups.annotate(Sum("hits")).iterator():
        found[tuple(key)].add(0, 0, hits)
    return [
        {
            "minute": minute.isoformat(timespec="minutes"),
            "profile": profile.name,
            "identifier": who,
            "view": view,
            "admitted": count.admitted,
            "cost": count.cost,
            "refused": count.refused,
        }
        for (minute, who, view), count in sorted(found.items(), key=lambda item: item[0])
    ], shown


def _rows(profile: Profile, span: Span, identifier: str | None) -> tuple[Any, Any, Span]:
    """Return the rows of both logs, and the span in which both are complete."""
    name = column(profile.name, "profile")
    usage: Any = Usage.objects.filter(profile=name)
    rejections: Any = Rejection.objects.filter(profile=name, reason__in=_REFUSED)
    if identifier is not None:
        spellings = sorted(
            {identifier, *map(logged_identifier, (identifier, canonical(profile.axis, identifier)))}
        )
        usage = usage.filter(identifier__in=spellings, others=False)
        rejections = rejections.filter(identifier__in=spellings).exclude(reason=OVERFLOW)
    admitted, shown = newest_rows(usage, span)
    refused, shown = newest_rows(rejections, shown)
    return admitted.filter(minute__gte=shown.start), refused, shown


def window_uses(profile: Profile, counts: Counts) -> list[WindowUse]:
    """Return the use of each window of a profile."""
    return [
        _window_use(limit, window, counts.by_identifier.values())
        for limit, window in limits_of(profile)
    ]


def _window_use(limit: int | None, window: float, found: Iterable[Minutes]) -> WindowUse:
    length = whole_minutes(window)
    samples: list[int] = []
    for minutes in found:
        hits: dict[int, int] = defaultdict(int)
        for minute, count in minutes.items():
            hits[minute // length] += count.demand
        samples += hits.values()
    if not samples:
        return WindowUse(limit=limit, window=window, samples=0)
    samples.sort()
    return WindowUse(
        limit=limit,
        window=window,
        samples=len(samples),
        percentiles={share: percentile(samples, share) for share in SHARES},
        most=samples[-1],
    )


def busiest(counts: Counts) -> list[tuple[str, Count]]:
    """Return the identifiers with the most requests."""
    totals = {}
    for who, minutes in counts.by_identifier.items():
        totals[who] = Count()
        for count in minutes.values():
            totals[who].add(count.admitted, count.cost, count.refused)
    ordered = sorted(totals.items(), key=lambda item: (-item[1].demand, item[0]))
    return ordered[:BUSIEST]


def fullest(minutes: Minutes, window: float, shown: range) -> list[int]:
    """Return for each minute the hits that were admitted in the window that ends with it."""
    length = whole_minutes(window)
    found, hits = (
        [],
        sum(
            minutes[minute].cost
            for minute in range(shown.start - length + 1, shown.start)
            if minute in minutes
        ),
    )
    for minute in shown:
        hits += minutes[minute].cost if minute in minutes else 0
        found.append(hits)
        oldest = minute - length + 1
        hits -= minutes[oldest].cost if oldest in minutes else 0
    return found


def limits_of(profile: Profile, identifier: str | None = None) -> list[tuple[int | None, float]]:
    """Return limit and window of each policy, as overrides have changed it.

    The limit is None where it depends on the identifier, and that is not given.
    """
    if identifier is not None:
        return _limits_of_identifier(profile, unquote(identifier))
    if profile.limit_for is None:
        return [(policy.limit, policy.window) for policy in profile.policies]
    # A function may say any window, and tiers may all have no limit.
    windows = windows_of(profile) or (profile.window or float(_MINUTE),)
    return [(None, window) for window in windows]


def _limits_of_identifier(profile: Profile, identifier: str) -> list[tuple[int | None, float]]:
    if conf.log_identifiers == "hash":
        # Of a hash the log cannot tell which identifier it stands for.
        return limits_of(profile)
    policies = policies_of(profile, identifier)
    # Reads the overrides, if this process has not done it yet.
    get_limiter()
    override = overriding.find(profile.name, identifier)
    if override is not None:
        policies = override.change(profile, policies)[1] if override.counts else ()
    return [(policy.limit, policy.window) for policy in policies]


def whole_minutes(window: float) -> int:
    """Return a window in minutes, rounded up."""
    return max(1, math.ceil(window / _MINUTE))


def limit_in_minutes(limit: int, window: float) -> int:
    """Return what a limit admits in the window that is rounded up to whole minutes."""
    return int(limit * whole_minutes(window) * _MINUTE / window)


def percentile(ordered: Sequence[Any], share: int) -> Any:
    """Return the smallest value that is not below this share of the values."""
    return ordered[math.ceil(len(ordered) * share / 100) - 1]
