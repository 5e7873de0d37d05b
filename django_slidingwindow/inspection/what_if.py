"""Estimate from the logs what another limit would have refused.

The logs count requests by the minute, without the second in which a request came. So the result
is a lower and an upper bound. Both hold for any seconds:

- Consecutive minutes that together are not longer than the window lie in one window. At most
  `limit` of their requests are admitted.
- A window touches at most n minutes: its length in minutes, rounded up, plus one. Choose requests
  so that any n consecutive minutes have at most `limit` of them. Then no window has more than
  `limit` of them. A sliding window admits requests as early as possible, so it admits at least as
  many requests as any such choice.

In both cases, admitting as early as possible, minute by minute, finds the largest number.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from django.db.models import Q, Sum

from ..decisions import FALLBACK, LIMIT, OBSERVED, ONLY_OBSERVED
from ..models import Rejection, Usage
from ..policies import LOG_ALL, SLOTS, Policy, Profile, rates_of
from ..rejections.rows import OVERFLOW, column
from .spans import Span, newest_rows
from .usage import Counts, read

_MINUTE = 60
MOST_AFFECTED = 10
# The rows of requests over a rate. Overflow rows have neither limit nor algorithm.
_OVER_A_RATE = Q(reason__in=(LIMIT, FALLBACK, OBSERVED, OVERFLOW)) & ~Q(algorithm=SLOTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A number that is known to be at least `least` and at most `most`."""

    least: int
    most: int | None
    """None if the logs cannot tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """An identifier with requests that another limit would have refused, or may have refused."""

    identifier: str
    requests: int | None
    """None if only refusals are logged."""
    refused: int
    """Requests that were actually refused."""
    bounds: Bounds
    """Requests that would have been refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The effect that another limit would have had in a span of time."""

    span: Span
    """The part of the requested span for which the logs are complete.

    The windows count as empty at its start.
    """
    requests: int | None
    """None if only refusals are logged."""
    refused: int
    """Requests that were actually refused."""
    bounds: Bounds
    """Requests that would have been refused."""
    identifiers: int | None
    """None if only refusals are logged."""
    touched: int
    """Identifiers with a request that was actually refused."""
    touched_bounds: Bounds
    """Identifiers with a request that would have been refused."""
    affected: Sequence[Affected]
    """The MOST_AFFECTED identifiers with the most possible refusals."""
    others: int
    """Requests beyond LOG_ROWS_PER_MINUTE, which are left out."""
    observed: int = 0
    """Requests over the limit that were admitted, because the profile only observed. Always 0 if
    all requests are logged: then they are among the admitted ones."""
    has_costs: bool = False
    """Whether some requests did not cost exactly one hit, so that the bounds do not hold."""
    for_other_reasons: int = 0
    """Requests that were refused for another reason than a rate. They are left out."""


def what_if(profile: Profile, policies: Sequence[Policy], span: Span) -> WhatIf:
    """Return what these policies would have refused in place of the profile's own policies."""
    name = column(profile.name, "profile")
    if profile.log == LOG_ALL:
        logged = Usage.objects.filter(profile=name, minute__gte=span.start, minute__lt=span.end)
        # Before its first row in the usage log, the profile logged only refusals.
        first = logged.order_by("minute").values_list("minute", flat=True).first()
        start = span.end if first is None else first
        counts = read(profile, Span(start, span.end), only_rates=True)
        found = _from_counts(profile, policies, counts)
    else:
        found = _from_refusals(profile, policies, span)
    refused = Rejection.objects.filter(profile=name).exclude(
        _OVER_A_RATE | Q(reason__in=ONLY_OBSERVED)
    )
    others, _ = newest_rows(refused, found.span)
    return replace(found, for_other_reasons=others.aggregate(sum=Sum("hits"))["sum"] or 0)


def _from_counts(profile: Profile, policies: Sequence[Policy], counts: Counts) -> WhatIf:
    """Compute the result from logs that have all requests."""
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
    found.sort(key=lambda one: (-(one.bounds.most or 0), one.identifier))
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
    """Return how many requests of one identifier are refused. `demand` has requests by minute."""
    requests = sum(demand.values())
    # The caps that certainly hold, and stricter caps: a request within those is certainly admitted.
    loose, strict = [], []
    for policy in policies:
        most = 2 * policy.limit - 1 if policy.algorithm == "counter" else policy.limit
        # A minute may have several windows. Each one admits `limit` requests.
        windows = 1 if policy.window >= _MINUTE else math.ceil(_MINUTE / policy.window)
        loose.append((max(0, most) * windows, max(1, int(policy.window // _MINUTE))))
        strict.append((policy.limit, math.ceil(_longest_hold(policy) / _MINUTE) + 1))
    return Bounds(
        least=requests - _admitted(demand, loose),
        most=requests - _admitted(demand, strict, count_rejected=count_rejected),
    )


def _longest_hold(policy: Policy) -> float:
    """Return the longest time that a hit may count, in seconds."""
    if policy.algorithm == "buckets":
        return policy.window * (1 + 1 / policy.resolution)
    return policy.window * (2 if policy.algorithm == "counter" else 1)


def _admitted(
    demand: Mapping[int, int],
    caps: Sequence[tuple[int, int]],
    *,
    count_rejected: bool = False,
) -> int:
    """Return how many requests are admitted under all caps, as early as possible.

    A cap (r, m) means: m consecutive minutes admit at most r requests. With `count_rejected`,
    requests that are not admitted count as well.
    """
    total = 0
    held: list[deque[tuple[int, int]]] = [deque() for _ in caps]
    hits = [0] * len(caps)
    for minute in sorted(demand):
        room = wanted = demand[minute]
        for i, (limit, length) in enumerate(caps):
            while held[i] and held[i][0][0] <= minute - length:
                hits[i] -= held[i].popleft()[1]
            room = min(room, max(0, limit - hits[i]))
        total += room
        counted = wanted if count_rejected else room
        for i in range(len(caps)):
            held[i].append((minute, counted))
            hits[i] += counted
    return total


def _from_refusals(profile: Profile, policies: Sequence[Policy], span: Span) -> WhatIf:
    """Compute the result from logs that have only refusals.

    Limits that are nowhere stricter than those in force refuse at most what was refused. Limits
    that are nowhere looser refuse at least that. For other limits, there are no bounds.
    """
    name = column(profile.name, "profile")
    rows, shown = newest_rows(Rejection.objects.filter(_OVER_A_RATE, profile=name), span)
    in_force = {(policy.limit, policy.window) for policy in rates_of(profile.policies)}
    # Requests over the limit by identifier: all of them, and those that were refused.
    over, refused = Counter[str](), Counter[str]()
    others = 0
    groups = rows.values_list("reason", "identifier", "limit", "window").annotate(Sum("hits"))
    for reason, identifier, limit, window, hits in groups.iterator():
        if reason == OVERFLOW:
            others += hits
            continue
        over[identifier] += hits
        refused[identifier] += 0 if reason == OBSERVED else hits
        in_force.add((limit, window))
    limits: dict[float, int] = {}
    for policy in policies:
        limits[policy.window] = min(policy.limit, limits.get(policy.window, policy.limit))
    # A limit function may return a higher limit for identifiers that were never refused.
    looser = profile.limit_for is None and set(limits) <= {window for _, window in in_force}
    looser &= all(limits.get(window, limit) >= limit for limit, window in in_force)
    stricter = all(limits.get(window, limit + 1) <= limit for limit, window in in_force)
    found = [
        Affected(
            identifier=identifier,
            requests=None,
            refused=refused[identifier],
            bounds=Bounds(least=hits if stricter else 0, most=hits if looser else None),
        )
        for identifier, hits in sorted(over.items(), key=lambda item: (-item[1], item[0]))
    ]
    observed = over.total() - refused.total()
    return _summary(found, span=shown, others=others, observed=observed, has_unseen=not looser)


def _summary(
    found: Sequence[Affected],
    *,
    span: Span,
    requests: int | None = None,
    identifiers: int | None = None,
    others: int,
    observed: int = 0,
    has_costs: bool = False,
    has_unseen: bool = False,
) -> WhatIf:
    """Add up the identifiers. The most affected one comes first.

    `has_unseen`: identifiers that are not in `found` may be refused.
    """
    most: int | None = None
    touched: int | None = None
    if not has_unseen:
        most = sum(one.bounds.most or 0 for one in found)
        touched = sum(1 for one in found if one.bounds.most)
    possible = [one for one in found if one.bounds.most != 0]
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
        observed=observed,
        has_costs=has_costs,
    )
