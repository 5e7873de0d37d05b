"""The list's filters. Their choices come from the code and the settings, never from the table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from .. import decisions
from ..inspection import profiles as overview
from ..models import Rejection
from ..rejections.rows import OVERFLOW, column
from .times import RECENT, Span, parse_span

REASONS = {
    decisions.LIMIT: _("over the limit"),
    decisions.OBSERVED: _("observed, let in"),
    decisions.FALLBACK: _("over the local limit, Redis away"),
    decisions.DENY: _("denied, Redis away"),
    decisions.IDENTITY_ERROR: _("nobody to count"),
    OVERFLOW: _("beyond LOG_ROWS_PER_MINUTE, counted together"),
}
SOURCES = {
    decisions.REDIS: _("counted there"),
    decisions.SHIELD: _("a refusal remembered by the process"),
    decisions.LOCAL: _("counted by the process, Redis away"),
    decisions.ALLOW: _("nobody counted, let in"),
    decisions.DENY: _("nobody counted, denied"),
}


class _EqualFilter(admin.SimpleListFilter):
    """Rows whose column, which is the parameter's name, has the chosen value."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value, name = self.value(), str(self.parameter_name)
        # A name that cannot be printed, or NUL, stands in the log as %xx.
        return queryset if value is None else queryset.filter(**{name: column(value, name)})


class ProfileFilter(_EqualFilter):
    title = _("profile")
    parameter_name = "profile"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(state.name, state.name) for state in overview.profiles()]


class AxisFilter(_EqualFilter):
    title = _("axis")
    parameter_name = "axis"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(axis, axis) for axis in axes()]


class ReasonFilter(_EqualFilter):
    title = _("reason")
    parameter_name = "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return [(code, f"{code}: {words}") for code, words in REASONS.items()]


class SourceFilter(_EqualFilter):
    title = _("source")
    parameter_name = "source"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return [(code, f"{code}: {words}") for code, words in SOURCES.items()]


class TimeFilter(admin.SimpleListFilter):
    """A stretch of time: a recent one, or a day or an hour of the drill-down."""

    title = _("time")
    parameter_name = "when"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, Any]]:
        names = {"1h": _("Past hour"), "24h": _("Past 24 hours"), "7d": _("Past 7 days")}
        return [(value, names[value]) for value in RECENT]

    @property
    def span(self) -> Span | None:
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
PARAMETERS = frozenset(str(found.parameter_name) for found in FILTERS)


def axes() -> list[str]:
    """The axes of all profiles that can be used."""
    return sorted({state.profile.axis for state in overview.profiles() if state.profile})
