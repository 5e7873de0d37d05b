"""Measure how much of its limits a profile uses, from the usage log and the rejection log.

Both logs count requests by the minute. So a window is measured in whole minutes, rounded up.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from django.db.models import Sum

from ..conf import conf
from ..core.tiers import windows_of
from ..decisions import FALLBACK, LIMIT
from ..guard import override_snapshot
from ..guard.current_limiter import get_limiter
from ..guard.identity import canonical, keyed_hash
from ..models import Rejection, Usage
from ..overrides.validation import is_hash, marked, request_identifier
from ..policies import IN_FLIGHT, SLOTS, Profile, rates_of
from ..rejections.rows import OVERFLOW, column, logged_spellings
from ..rejections.text import restored
from .search import policies_of
from .spans import Span, minute_number, newest_rows

SHARES = (50, 95, 99)
"""The percentiles that are shown."""
BUSIEST = 10
"""How many of the busiest identifiers are shown."""
_REFUSED = (LIMIT, FALLBACK, OVERFLOW)
_MINUTE = 60


@dataclass(slots=True)
class Count:
    """The requests of some minutes."""

    admitted: int = 0
    cost: int = 0
    """What the admitted requests cost together, in hits."""
    refused: int = 0
    """Requests over a limit. Their cost is not known."""

    def add(self, admitted: int, cost: int, refused: int) -> None:
        self.admitted += admitted
        self.cost += cost
        self.refused += refused

    @property
    def demand(self) -> int:
        """The hits that clients asked for. A refused request counts as one hit."""
        return self.cost + self.refused


Minutes: TypeAlias = "dict[int, Count]"
"""Counts by minutes since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The requests that the logs have for a profile in a span of time."""

    span: Span
    """The requested span, or its end if the logs have too many rows."""
    by_identifier: Mapping[str, Minutes]
    others: Count
    """Requests beyond LOG_ROWS_PER_MINUTE, whose identifiers are lost."""

    @property
    def total(self) -> Count:
        """All requests, including `others`."""
        known = (count for minutes in self.by_identifier.values() for count in minutes.values())
        return _sum([self.others, *known])


def _sum(counts: Iterable[Count]) -> Count:
    total = Count()
    for count in counts:
        total.add(count.admitted, count.cost, count.refused)
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowUse:
    """How many hits identifiers asked for in one window, for windows that begin by the clock."""

    limit: int | None
    """None if the limit depends on the identifier, or if there is no limit."""
    window: float
    """Seconds."""
    samples: int
    """The number of windows in which an identifier had a request, for all identifiers."""
    percentiles: Mapping[int, int] = field(default_factory=dict)
    """Hits by percentile; empty without samples."""
    most: int = 0
    """The hits of the largest sample."""

    @property
    def minutes(self) -> int:
        """The window in whole minutes, by which the hits were counted."""
        return whole_minutes(self.window)

    @property
    def limit_in_minutes(self) -> int | None:
        """The hits that the limit admits in `minutes`."""
        return None if self.limit is None else limit_in_minutes(self.limit, self.window)


def read(
    profile: Profile, span: Span, identifier: str | None = None, *, only_rates: bool = False
) -> Counts:
    """Return the counts of a profile, or of one of its identifiers.

    `only_rates` leaves out requests that were refused because of others in flight.
    """
    admitted, refused, shown = _rows(profile, span, identifier, only_rates=only_rates)
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
    """Return the requests of an identifier as a dict for each minute and view, the oldest first.

    The second value is the span that they cover.
    """
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


def _rows(
    profile: Profile, span: Span, identifier: str | None, *, only_rates: bool = False
) -> tuple[Any, Any, Span]:
    """Return the rows of the usage log and of the rejection log, and the span that both cover."""
    name = column(profile.name, "profile")
    usage: Any = Usage.objects.filter(profile=name)
    rejections: Any = Rejection.objects.filter(profile=name, reason__in=_REFUSED)
    if only_rates:
        rejections = rejections.exclude(algorithm=SLOTS)
    if identifier is not None:
        spellings = logged_spellings(identifier, canonical(profile.axis, identifier))
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


def _window_use(limit: int | None, window: float, identifiers: Iterable[Minutes]) -> WindowUse:
    length = whole_minutes(window)
    samples: list[int] = []
    for minutes in identifiers:
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
    totals = ((who, _sum(minutes.values())) for who, minutes in counts.by_identifier.items())
    return sorted(totals, key=lambda item: (-item[1].demand, item[0]))[:BUSIEST]


def fullest(minutes: Minutes, window: float, shown: range) -> list[int]:
    """Return for each minute the hits that were admitted in the window that ends with it."""
    length = whole_minutes(window)

    def admitted(minute: int) -> int:
        return minutes[minute].cost if minute in minutes else 0

    found = []
    hits = sum(map(admitted, range(shown.start - length + 1, shown.start)))
    for minute in shown:
        hits += admitted(minute)
        found.append(hits)
        hits -= admitted(minute - length + 1)
    return found


def limits_of(profile: Profile, identifier: str | None = None) -> list[tuple[int | None, float]]:
    """Return limit and window of each rate, without the limit on requests in flight.

    With an identifier, overrides are applied. Without one, a limit that depends on the identifier
    is None.
    """
    if identifier is not None:
        return _limits_of_identifier(profile, identifier)
    if profile.limit_for is None:
        return [(policy.limit, policy.window) for policy in rates_of(profile.policies)]
    # A limit function may return any window, and a profile may have only tiers without a limit.
    windows = windows_of(profile) or (profile.window or float(_MINUTE),)
    return [(None, window) for window in windows if window != IN_FLIGHT]


def _limits_of_identifier(profile: Profile, text: str) -> list[tuple[int | None, float]]:
    # The first call in a process loads the overrides.
    get_limiter()
    # The text may be a hash without a mark, as the log shows it.
    identifier = request_identifier(profile.axis, marked(profile.axis, restored(text)))
    if conf.log_identifiers == "hash" and is_hash(text):
        # The log has only a hash. The identifier is known if it has an override of its own.
        own = override_snapshot.identifiers(profile.name)
        known = next((one for one in own if keyed_hash(one) == text), None)
        if known is None and profile.limit_for is not None:
            return limits_of(profile)
        identifier = identifier if known is None else known
    policies = policies_of(profile, identifier)
    override = override_snapshot.find(profile.name, identifier)
    if override is not None:
        policies = override.change(profile, policies)[1] if override.counts else ()
    return [(policy.limit, policy.window) for policy in rates_of(policies)]


def whole_minutes(window: float) -> int:
    """Return the length of a window in minutes, rounded up."""
    return max(1, math.ceil(window / _MINUTE))


def limit_in_minutes(limit: int, window: float) -> int:
    """Return how many hits a limit admits if its window is rounded up to whole minutes."""
    return int(limit * whole_minutes(window) * _MINUTE / window)


def percentile(ordered: Sequence[Any], share: int) -> Any:
    """Return the smallest value that is at least as large as `share` percent of the values."""
    return ordered[math.ceil(len(ordered) * share / 100) - 1]
