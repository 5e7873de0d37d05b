"""The filters of the list. Their choices come from code and settings, never from the table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from .. import decisions
from ..inspection.profiles import profiles
from ..inspection.spans import Span
from ..models import Rejection
from ..rejections.rows import OVERFLOW, column
from .times import SPANS, parse_span

REASONS = {
    decisions.LIMIT: _("over the limit"),
    decisions.OBSERVED: _("over the limit, but only observed"),
    decisions.FALLBACK: _("over the local limit while Redis is away"),
    decisions.DENY: _("denied while Redis is away"),
    decisions.IDENTITY_ERROR: _("the identity could not be resolved"),
    decisions.BLOCK: _("blocked by an override"),
    decisions.PENALTY: _("blocked after too many refusals"),
    decisions.OBSERVED_PENALTY: _("would be blocked after too many refusals (observe mode)"),
    OVERFLOW: _("beyond LOG_ROWS_PER_MINUTE, counted together"),
}
SOURCES = {
    decisions.REDIS: _("counted in Redis"),
    decisions.SHIELD: _("a recent refusal, repeated by the process"),
    decisions.DEFERRED: _("what the process knew, without asking Redis"),
    decisions.LOCAL: _("counted by the process while Redis is away"),
    decisions.ALLOW: _("not counted, admitted"),
    decisions.DENY: _("not counted, denied"),
    decisions.OVERRIDE: _("decided by an override"),
}


class _EqualFilter(admin.SimpleListFilter):
    """Keep the rows with the chosen value. The parameter has the name of its column."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value, name = self.value(), str(self.parameter_name)
        # The log stores unprintable characters as %xx.
        return queryset if value is None else queryset.filter(**{name: column(value, name)})


class ProfileFilter(_EqualFilter):
    title = pgettext_lazy("rate limit", "profile")
    parameter_name = "profile"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(state.name, state.name) for state in profiles()]


class AxisFilter(_EqualFilter):
    title = pgettext_lazy("rate limit", "axis")
    parameter_name = "axis"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(axis, axis) for axis in axes()]


class ReasonFilter(_EqualFilter):
    title = pgettext_lazy("rate limit", "reason")
    parameter_name = "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return [(code, f"{code}: {text}") for code, text in REASONS.items()]


class SourceFilter(_EqualFilter):
    title = pgettext_lazy("rate limit", "source")
    parameter_name = "source"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return [(code, f"{code}: {text}") for code, text in SOURCES.items()]


class TimeFilter(admin.SimpleListFilter):
    """Keep rows of a span of time: a recent one, or a day or an hour of the drill-down."""

    title = pgettext_lazy("rate limit", "time")
    parameter_name = "when"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, Any]]:
        choices: list[tuple[str, Any]] = list(SPANS.items())
        chosen = self.value()
        if chosen is not None and chosen not in SPANS:
            # The day or hour of the drill-down. Themes that show filters as a form need the choice.
            day, _at, hour = chosen.partition("T")
            choices.append((chosen, f"{day} {hour}:00" if hour else day))
        return choices

    @property
    def span(self) -> Span | None:
        """Return the chosen span; None if none is chosen."""
        value = self.value()
        try:
            return None if value is None else parse_span(value)
        except (ValueError, OverflowError) as error:
            raise IncorrectLookupParameters(str(error)) from error

    def queryset(self, request: HttpRequest, queryset: QuerySet[Rejection]) -> Any:
        span = self.span
        if span is None:
            return queryset
        return queryset.filter(minute__gte=span.start, minute__lt=span.end)


FILTERS = (TimeFilter, ProfileFilter, AxisFilter, ReasonFilter, SourceFilter)
PARAMETERS = frozenset(str(one.parameter_name) for one in FILTERS)


def axes() -> list[str]:
    """Return the axes of all valid profiles."""
    return sorted({state.profile.axis for state in profiles() if state.profile})
