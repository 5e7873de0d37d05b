"""The summary above the list: refusals over time by profile, and the most refused identifiers.

Requests that a profile only observed were admitted, so they are shown apart from the refusals.
Its cost is bounded for any size of the table: it reads only the newest rows of a span of time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet, Sum
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from ..decisions import ONLY_OBSERVED
from ..inspection.spans import Span, local, newest_rows
from ..models import Rejection
from .charts import COLORS, Chart, Series, share
from .formatting import day_of_month, number

OFFENDERS = 5
# The longest span for each width of a column. Longer spans have a column for each day.
_STEPS = (
    (timedelta(hours=1), timedelta(minutes=1)),
    (timedelta(hours=3), timedelta(minutes=5)),
    (timedelta(hours=12), timedelta(minutes=15)),
    (timedelta(days=2), timedelta(hours=1)),
)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """An identifier that was refused often."""

    identifier: str
    axis: str
    profile: str
    hits: int
    bar: SafeString

    @property
    def hits_text(self) -> str:
        return number(self.hits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The content of the summary."""

    chart: Chart
    offenders: Sequence[Offender]
    total: int
    """The number of refusals."""
    since: datetime | None
    """The start of the part that is shown; None if the whole span is shown."""

    @property
    def total_text(self) -> str:
        return number(self.total)


def summarize(rows: QuerySet[Rejection], span: Span) -> Summary:
    """Return the summary of these rows in this span of time."""
    within, shown = newest_rows(rows, span)
    groups = within.values_list("minute", "profile", "reason").annotate(total=Sum("hits"))
    counts = list(groups)
    total = sum(hits for *_group, reason, hits in counts if reason not in ONLY_OBSERVED)
    return Summary(
        chart=_chart(counts, total, span),
        offenders=_offenders(_refused(within)),
        total=total,
        since=None if shown == span else shown.start,
    )


def hits_by_profile(span: Span) -> tuple[dict[str, int], Span]:
    """Return the refusals of each profile, and the span in which they were counted."""
    within, shown = newest_rows(Rejection.objects.all(), span)
    counts = _refused(within).values_list("profile").annotate(total=Sum("hits"))
    return dict(counts), shown


def _refused(rows: QuerySet[Rejection]) -> QuerySet[Rejection]:
    return rows.exclude(reason__in=ONLY_OBSERVED)


def _offenders(within: QuerySet[Rejection]) -> list[Offender]:
    found = list(
        within.exclude(identifier="")
        .values_list("identifier", "axis", "profile")
        .annotate(total=Sum("hits"))
        .order_by("-total")[:OFFENDERS]
    )
    most = found[0][3] if found else 0
    return [
        Offender(identifier=who, axis=axis, profile=profile, hits=hits, bar=share(hits, most))
        for who, axis, profile, hits in found
    ]


def _chart(counts: Sequence[tuple[datetime, str, str, int]], total: int, span: Span) -> Chart:
    starts, step = columns_of(span)
    columns: dict[str, list[int]] = defaultdict(lambda: [0] * len(starts))
    observed = [0] * len(starts)
    for minute, profile, reason, hits in counts:
        values = observed if reason in ONLY_OBSERVED else columns[profile]
        values[bisect_right(starts, minute) - 1] += hits
    names = sorted(columns, key=lambda name: -sum(columns[name]))
    most = COLORS - 1 - any(observed)
    series = [Series(name=name, values=columns[name]) for name in names[:most]]
    if names[most:]:
        values = [sum(columns[name][i] for name in names[most:]) for i in range(len(starts))]
        series.append(Series(name=pgettext("rate limit", "others"), values=values))
    if any(observed):
        series.append(Series(name=_("only observed"), values=observed))
    return Chart(
        id="sw-rejections",
        title=_("Rejections over time, by profile"),
        description=ngettext(
            "%(total)s request was refused. The table shows when.",
            "%(total)s requests were refused. The table shows when.",
            total,
        )
        % {"total": number(total)},
        labels=[label_of(start, step) for start in starts],
        series=series,
    )


def columns_of(span: Span) -> tuple[list[datetime], timedelta]:
    """Return the start of each column, and the step between two columns.

    A column starts at a whole number of steps since midnight.
    """
    step = next((step for longest, step in _STEPS if span.length <= longest), _DAY)
    start, end = span.start, span.end
    clock = local(start)
    if step == _DAY:
        # By the local clock: a day in which the clocks change has 23 or 25 hours.
        start, end = clock, local(end)
    midnight = clock.replace(hour=0, minute=0, second=0, microsecond=0)
    start -= (clock - midnight) % step
    count = -(-(end - start) // step)
    return [start + i * step for i in range(count)], step


def label_of(start: datetime, step: timedelta) -> str:
    """Return the label of a column: its day, or its time of day."""
    start = local(start)
    return day_of_month(start) if step == _DAY else f"{start:%H:%M}"
