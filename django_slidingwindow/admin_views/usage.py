"""The page of usage: how much of its limits a profile uses, or one of its identifiers over time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.contrib.admin import ModelAdmin
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from ..durations import duration_exact
from ..inspection.search import configured
from ..inspection.spans import Span, last, minute_number
from ..inspection.usage import (
    SHARES,
    Count,
    Counts,
    WindowUse,
    busiest,
    fullest,
    limit_in_minutes,
    limits_of,
    read,
    whole_minutes,
    window_uses,
)
from ..models import Rejection
from ..policies import LOG_ALL, Profile
from ..registry import registry
from ..rejections.text import printable, restored
from .charts import Chart, Series, share
from .formatting import number, rate
from .pages import page, require_view, url
from .summary import columns_of, label_of
from .times import RECENT, SPANS

DEFAULT_SPAN = "24h"
_MINUTE = 60


@dataclass(frozen=True, slots=True)
class WindowRow:
    """The use of a window as it is shown on the page."""

    use: WindowUse

    @property
    def window(self) -> str:
        return window_text(self.use.limit, self.use.window)

    @property
    def measured(self) -> str:
        """Return the window that requests were counted in, rounded up to whole minutes."""
        return duration_exact(self.use.minutes * _MINUTE)

    @property
    def samples(self) -> str:
        return number(self.use.samples)

    @property
    def cells(self) -> list[tuple[str, bool]]:
        """Return the percentiles and the maximum, and whether each is above the limit."""
        limit = self.use.limit_in_minutes
        values = [*(self.use.percentiles.get(percent, 0) for percent in SHARES), self.use.most]
        return [(number(value), limit is not None and value > limit) for value in values]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentifierRow:
    """An identifier as it is shown in the list of the busiest identifiers."""

    identifier: str
    url: str
    count: Count
    bar: SafeString

    @property
    def admitted(self) -> str:
        return number(self.count.admitted)

    @property
    def refused(self) -> str:
        return number(self.count.refused)


def usage_view(model_admin: ModelAdmin[Rejection], request: HttpRequest) -> HttpResponse:
    """Show the usage of a profile, or of one of its identifiers."""
    require_view(model_admin, request)
    known = sorted(configured(), key=lambda profile: (profile.log != LOG_ALL, profile.name))
    # Without a valid profile, show what is wrong with the first one.
    names = [one.name for one in known] or [*registry.configs()]
    name = request.GET.get("profile", "") or names[0]
    identifier = request.GET.get("identifier", "").strip()
    when = request.GET.get("when", "")
    when = when if when in SPANS else DEFAULT_SPAN
    context: dict[str, Any] = {}
    problem = ""
    try:
        profile = registry.get(name)
    except ImproperlyConfigured as error:
        problem = printable(str(error))
    else:
        context = _context(model_admin, profile, identifier, when)
    return page(
        model_admin,
        request,
        "usage",
        title=pgettext("rate limit", "Usage"),
        subtitle=printable(restored(identifier)),
        profiles=names,
        chosen=name,
        identifier=identifier,
        spans=list(SPANS.items()),
        when=when,
        problem=problem,
        **context,
    )


def _context(
    model_admin: ModelAdmin[Rejection], profile: Profile, identifier: str, when: str
) -> dict[str, Any]:
    span = last(RECENT[when])
    limits = limits_of(profile, identifier or None)
    if not identifier:
        counts = read(profile, span)
        charts: list[Chart] = []
    else:
        # Also read the minutes before the span that its first windows still hold.
        longest = max((whole_minutes(window) for _limit, window in limits), default=0)
        counts = read(profile, Span(span.start - timedelta(minutes=longest), span.end), identifier)
        charts = [_window_chart(i, counts, span, *one) for i, one in enumerate(limits)]
    others, total = counts.others, _total(counts, span)
    return {
        "profile": profile,
        "refused_only": profile.log != LOG_ALL,
        "total": total,
        "others": number(others.admitted + others.refused) if others.demand else "",
        "costs": total.cost != total.admitted,
        "since": counts.span.start if counts.span.start > span.start else None,
        "requests": _requests_chart(counts, span),
        "charts": charts,
        "windows": [] if identifier else [WindowRow(use) for use in window_uses(profile, counts)],
        "headings": [f"{percent} %" for percent in SHARES],
        "busiest": [] if identifier else _busiest_rows(model_admin, profile, counts, when),
        "log_url": url(model_admin, "changelist", profile=profile.name, q=identifier),
        "live_url": url(model_admin, "live", profile=profile.name, identifier=identifier),
    }


def _total(counts: Counts, span: Span) -> Count:
    """Return the sum of all counts in the span, including those of lost identifiers."""
    shown, total = span.minutes, replace(counts.others)
    for minutes in counts.by_identifier.values():
        for minute, count in minutes.items():
            if minute in shown:
                total.add(count.admitted, count.cost, count.refused)
    return total


def _busiest_rows(
    model_admin: ModelAdmin[Rejection], profile: Profile, counts: Counts, when: str
) -> list[IdentifierRow]:
    found = busiest(counts)
    most = found[0][1].demand if found else 0
    return [
        IdentifierRow(
            identifier=who,
            url=url(model_admin, "usage", profile=profile.name, identifier=who, when=when),
            count=count,
            bar=share(count.demand, most),
        )
        for who, count in found
    ]


def _requests_chart(counts: Counts, span: Span) -> Chart:
    """Return the chart of admitted and refused requests over time."""
    labels, column_of = _columns(span)
    shown = span.minutes
    admitted, refused = [0] * len(labels), [0] * len(labels)
    for minutes in counts.by_identifier.values():
        for minute, count in minutes.items():
            if minute in shown:
                admitted[column_of(minute)] += count.admitted
                refused[column_of(minute)] += count.refused
    total = sum(admitted) + sum(refused)
    return Chart(
        id="sw-requests",
        title=_("Requests over time"),
        description=ngettext(
            "%(total)s request. The table shows when.",
            "%(total)s requests. The table shows when.",
            total,
        )
        % {"total": number(total)},
        labels=labels,
        series=[
            Series(name=pgettext("rate limit", "admitted"), values=admitted),
            Series(name=pgettext("rate limit", "refused"), values=refused),
        ],
    )


def _window_chart(
    position: int, counts: Counts, span: Span, limit: int | None, window: float
) -> Chart:
    """Return the chart of the most hits that a window held, with its limit as a line."""
    labels, column_of = _columns(span)
    highest = [0] * len(labels)
    shown = span.minutes
    # An identifier may be stored in more than one spelling.
    for minutes in counts.by_identifier.values():
        for minute, held in zip(shown, fullest(minutes, window, shown), strict=True):
            highest[column_of(minute)] = max(highest[column_of(minute)], held)
    measured = duration_exact(whole_minutes(window) * _MINUTE)
    return Chart(
        id=f"sw-window-{position}",
        title=_("Most hits admitted in %(window)s") % {"window": measured},
        description=_("The limit is %(limit)s. The table shows the hits of the fullest window.")
        % {"limit": window_text(limit, window)},
        labels=labels,
        series=[Series(name=pgettext("rate limit", "hits"), values=highest)],
        limit=None if limit is None else limit_in_minutes(limit, window),
        limit_text=window_text(limit, window),
    )


def _columns(span: Span) -> tuple[list[str], Callable[[int], int]]:
    """Return the labels of the columns, and a function that returns the column of a minute."""
    starts, step = columns_of(span)
    first_minutes = [minute_number(start) for start in starts]

    def column_of(minute: int) -> int:
        return bisect_right(first_minutes, minute) - 1

    return [label_of(start, step) for start in starts], column_of


def window_text(limit: int | None, window: float) -> str:
    """Return a rate; only the window if the limit is not known."""
    return duration_exact(window) if limit is None else rate(limit, window)
