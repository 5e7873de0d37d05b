"""The list of the rejection log. A page costs the same for any size of the log."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ..conf import conf
from ..inspection.spans import Span, last
from ..models import Rejection
from ..rejections.rows import moment
from .filters import TimeFilter
from .formatting import day_of_month
from .summary import Summary, summarize
from .times import RECENT, days

BEFORE = "before"
"""The query parameter with the position of the last row on the previous page."""
_MAX_DAYS = 31
_MICROSECONDS = 1_000_000


class RejectionChangeList(ChangeList):
    """A list that is paged by position, not by page number: no row is counted or skipped."""

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        self.before = _parse_position(request.GET.get(BEFORE, ""))
        self.older = ""
        """The link to the next page; empty on the last page."""
        super().__init__(request, *args, **kwargs)
        self.title = pgettext("rate limit", "Rejections")

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        # A position is only valid for one list, so links to other lists must not keep it.
        self.params.pop(BEFORE, None)
        self.filter_params.pop(BEFORE, None)
        return super().get_queryset(request, *args, **kwargs)

    def get_ordering(self, request: HttpRequest, queryset: Any) -> list[Any]:
        """Return the default order, which indexes serve. Ignore the order in the query string."""
        return list(Rejection._meta.ordering or ())

    def get_results(self, request: HttpRequest) -> None:
        rows: Any = self.queryset
        if self.before is not None:
            rows = rows.before(*self.before)
        found = list(rows[: self.list_per_page + 1])
        self.result_list: Any = found[: self.list_per_page]
        if len(found) > self.list_per_page:
            self.older = self.get_query_string({BEFORE: _position(self.result_list[-1])})
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_full_result_count = self.show_admin_actions = False
        self.can_show_all = self.multi_page = False
        self.paginator: Any = None

    @property
    def newest(self) -> str:
        """Return the link to the first page; empty on the first page."""
        return self.get_query_string() if self.before is not None else ""

    @property
    def time_filter(self) -> TimeFilter:
        return next(spec for spec in self.filter_specs if isinstance(spec, TimeFilter))

    @property
    def span(self) -> Span | None:
        return self.time_filter.span

    @cached_property
    def summary(self) -> Summary | None:
        """Return the chart and the most refused identifiers; None except on the first page."""
        if self.before is not None:
            return None
        return summarize(self.queryset, self.span or last(RECENT["24h"]))

    @property
    def drill_down(self) -> list[dict[str, Any]]:
        """Return links to days, or to the hours of the chosen day, without a query."""
        chosen = self.time_filter.value()
        if chosen is None or chosen in RECENT:
            return [
                {"text": day_of_month(date), "href": self._time_link(date.isoformat())}
                for date in days(min(conf.log_days, _MAX_DAYS))
            ]
        day = chosen.partition("T")[0]
        hours = {f"{day}T{hour:02}": f"{hour:02}:00" for hour in range(24)}
        return [
            {"text": _("All dates"), "href": self._time_link(None)},
            *(
                {"text": text, "href": self._time_link(value), "chosen": value == chosen}
                for value, text in {day: day, **hours}.items()
            ),
        ]

    def _time_link(self, value: str | None) -> str:
        return self.get_query_string({TimeFilter.parameter_name: value})


def _position(row: Rejection) -> str:
    """Return the position of a row in the list, for a query string."""
    return f"{round(row.minute.timestamp() * _MICROSECONDS)}.{row.pk}"


def _parse_position(text: str) -> tuple[datetime, int] | None:
    """Return the minute and the primary key of the row at a position; None for the first page."""
    if not text:
        return None
    stamp, _dot, pk = text.partition(".")
    try:
        return moment(int(stamp) / _MICROSECONDS), int(pk)
    except (ValueError, OverflowError, OSError) as error:
        raise IncorrectLookupParameters(str(error)) from error
