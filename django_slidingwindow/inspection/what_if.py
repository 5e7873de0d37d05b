"""What another limit would have refused, as far as the logs can tell.

The logs count by the minute, and do not say when in it a request came. So the answer is a pair of
bounds, which hold wherever in their minutes the requests came:

- Requests of consecutive minutes that are together no longer than the window lie in one window. Of
  them at most `limit` are admitted.
- A window reaches into at most n minutes: its length in minutes, rounded up, and one more. Choose
  requests so that any n consecutive minutes have at most `limit` of them: then no window holds
  more, wherever they came. A sliding window admits requests as early as possible, and so admits at
  least as many as any such choice.

In both cases the most requests are found by admitting as early as possible, minute by minute.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from django.db.models import Sum

from ..decisions import FALLBACK, LIMIT, OBSERVED, OBSERVED_PENALTY
from ..models import Rejection, Usage
from ..policies import LOG_ALL, Policy, Profile
from ..rejections.rows import OVERFLOW, column
from .spans import Span, newest_rows
from .usage import Counts, read

_MINUTE = 60
MOST_AFFECTED = 10
_BY_LIMIT = (LIMIT, FALLBACK, OBSERVED, OVERFLOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """At least and at most how many."""

    least: int
    most: int | None
    """None if the logs cannot tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """An identifier that another limit would have refused, or may have."""

    identifier: str
    requests: int | None
    """None if only refusals are logged."""
    refused: int
    """What was refused in fact."""
    bounds: Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What another limit would have done in a span of time."""

    span: Span
    """From where the logs have all rows; the windows are empty at its start."""
    requests: int | None
    """None if only refusals are logged."""
    refused: int
    """What was refused in fact."""
    bounds: Bounds
    """What would have been refused."""
    identifiers: int | None
    touched: int
    """Identifiers with a refusal in fact."""
    touched_bounds: Bounds
    affected: Sequence[Affected]
    """Those with the most possible refusals."""
    others: int
    """Requests beyond LOG_ROWS_PER_MINUTE, which are left out."""
    has_costs: bool = False
    """Whether requests cost other than one hit, so that the bounds do not hold."""
    for_other_reasons: int = 0
    """Requests that a penalty or an override refused, for example; they are left out."""


def what_if(profile: Profile, policies: Sequence[Policy], span: Span) -> WhatIf:
    """Return what these policies would have refused in place of the profile's own."""
    name = column(profile.name, "profile")
    if profile.log == LOG_ALL:
        logged = Usage.objects.filter(profile=name, minute__gte=span.start, minute__lt=span.end)
        # Before the profile logged all, it logged refusals alone.
        first = logged.order_by("minute").values_list("minute", flat=True).first()
        begins = span.end if first is None else first
        found = _from_counts(profile, policies, read(profile, Span(begins, span.end)))
    else:
        found = _from_refusals(profile, policies, span)
    refused = Rejection.objects.filter(profile=name)
    others, _ = newest_rows(refused.exclude(reason__in=(*_BY_LIMIT, OBSERVED_PENALTY)), found.span)
    return replace(found, for_other_reasons=others.aggregate(sum=Sum("hits"))["sum"] or 0)


def _from_counts(profile: Profile, policies: Sequence[Policy], counts: Counts) -> WhatIf:
    found = []
    has_costs = counts.others.admitted != counts.others.cost
    for identifier, minutes in counts.by_identifier.items():
        demand = {minute: count.admitted + count.refused for minute, count in minutes.items()}
        has_costs |= any(count.admitted != count.cost for count in minutes.values())
        found.append(
            Affected(
                identifier=identifier,
                requests=sum(demand.values()),
                refused=sum(count.refused for count in minutes.values()),
                bounds=refusals(demand, policies, count_rejected=profile.count_rejected),
            )
        )
    return _summary(
        found,
        span=counts.span,
        requests=sum(one.requests or 0 for one in found),
        identifiers=len(found),
        others=counts.others.admitted + counts.others.refused,
        has_costs=has_costs,
    )


def refusals(
    demand: Mapping[int, int], policies: Iterable[Policy], *, count_rejected: bool = False
) -> Bounds:
    """Return how many of the requests of one identifier, by minute, are refused."""
    requests = sum(demand.values())
    within, beyond = [], []
    for policy in policies:
        # In a minute that is longer than the window, each window admits `limit`.
        most = 2 * policy.limit - 1 if policy.algorithm == "counter" else policy.limit
        windows = 1 if policy.window >= _MINUTE else math.ceil(_MINUTE / policy.window)
        within.append((max(0, most) * windows, max(1, int(policy.window // _MINUTE))))
        beyond.append((policy.limit, math.ceil(_longest_hold(policy) / _MINUTE) + 1))
    return Bounds(
        least=requests - _admitted(demand, within),
        most=requests - _admitted(demand, beyond, count_rejected=count_rejected),
    )


def _longest_hold(policy: Policy) -> float:
    """Return for how many seconds a hit may count."""
    if policy.algorithm == "buckets":
        return policy.window * (1 + 1 / policy.resolution)
    return policy.window * (2 if policy.algorithm == "counter" else 1)


def _admitted(
    demand: Mapping[int, int],
    bounds: Sequence[tuple[int, int]],
    *,
    count_rejected: bool = False,
) -> int:
    """Return how many can be admitted if a number of minutes admits at most a number of requests.

    `bounds` are pairs of requests and minutes. With `count_rejected`, requests that are not
    admitted count as well.
    """
    total = 0
    held: list[deque[tuple[int, int]]] = [deque() for _ in bounds]
    hits = [0] * len(bounds)
    for minute in sorted(demand):
        room = wanted = demand[minute]
        for i, (limit, length) in enumerate(bounds):
            while held[i] and held[i][0][0] <= minute - length:
                hits[i] -= held[i].popleft()[1]
            room = min(room, max(0, limit - hits[i]))
        total += room
        counted = wanted if count_rejected else room
        for i in range(len(bounds)):
            held[i].append((minute, counted))
            hits[i] += counted
    return total


def _from_refusals(profile: Profile, policies: Sequence[Policy], span: Span) -> WhatIf:
    """Tell what refusals alone can tell.

    Limits that are at most as strict as those in force refuse at most what was refused, and those
    that are at least as strict refuse at least that. About others nothing is known.
    """
    name = column(profile.name, "profile")
    rows, shown = newest_rows(Rejection.objects.filter(profile=name, reason__in=_BY_LIMIT), span)
    in_force = {(policy.limit, policy.window) for policy in profile.policies}
    counts: dict[str, int] = {}
    others = 0
    groups = rows.values_list("reason", "identifier", "limit", "window").annotate(Sum("hits"))
    for reason, identifier, limit, window, hits in groups.iterator():
        if reason == OVERFLOW:
            others += hits
        else:
            counts[identifier] = counts.get(identifier, 0) + hits
            in_force.add((limit, window))
    limits = {policy.window: policy.limit for policy in policies}
    # Identifiers that were never refused may have another limit if a function says it.
    looser = profile.limit_for is None and set(limits) <= {window for _, window in in_force}
    looser &= all(limits.get(window, limit) >= limit for limit, window in in_force)
    stricter = all(limits.get(window, limit + 1) <= limit for limit, window in in_force)
    found = [
        Affected(
            identifier=identifier,
            requests=None,
            refused=hits,
            bounds=Bounds(least=hits if stricter else 0, most=hits if looser else None),
        )
        for identifier, hits in counts.items()
    ]
    return _summary(found, span=shown, others=others, unseen=not looser)


def _summary(
    found: Sequence[Affected],
    *,
    span: Span,
    requests: int | None = None,
    identifiers: int | None = None,
    others: int,
    has_costs: bool = False,
    unseen: bool = False,
) -> WhatIf:
    """Add up what was found. `unseen`: others than the identifiers found may be refused."""
    most: int | None = None
    touched: int | None = None
    if not unseen:
        most = sum(one.bounds.most or 0 for one in found)
        touched = sum(1 for one in found if one.bounds.most)
    possible = [one for one in found if one.bounds.most != 0]
    possible.sort(key=lambda one: (-(one.bounds.most or one.refused), one.identifier))
    return WhatIf(
        span=span,
        requests=requests,
        refused=sum(one.refused for one in found),
        bounds=Bounds(least=sum(one.bounds.least for one in found), most=most),
        identifiers=identifiers,
        touched=sum(1 for one in found if one.refused),
        touched_bounds=Bounds(least=sum(1 for one in found if one.bounds.least), most=touched),
        affected=possible[:MOST_AFFECTED],
        others=others,
        has_costs=has_costs,
    )
