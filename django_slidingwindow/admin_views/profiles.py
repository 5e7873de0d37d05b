"""The page of profiles: their configuration, where they are used, and their refusals today."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from django.contrib.admin import ModelAdmin
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext, pgettext_lazy

from ..conf import conf
from ..durations import duration_exact
from ..exceptions import translated
from ..guard.rules import read_rule, rule_problems
from ..guard.usages import usages
from ..inspection.profiles import (
    BUILT,
    REGISTERED,
    SETTINGS,
    ProfileState,
    column_keys,
    profiles,
    remarks,
)
from ..models import Rejection
from ..policies import Policy
from ..rejections.rows import column
from ..rejections.text import printable
from . import what_if
from .formatting import number, rate
from .pages import override_links, page, require_view, url
from .summary import hits_by_profile
from .times import today

_ORIGINS = {
    SETTINGS: pgettext_lazy("rate limit", "settings"),
    REGISTERED: gettext_lazy("registered by an app"),
    BUILT: gettext_lazy("built in"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A profile as it is shown on the page."""

    state: ProfileState
    places: list[str]
    """The views and rules that use the profile."""
    hits: int
    """Refusals today."""
    log_url: str
    live_url: str
    usage_url: str
    what_if_url: str
    override_links: list[dict[str, str]]

    @property
    def hits_text(self) -> str:
        return number(self.hits)

    @property
    def origin(self) -> str:
        return str(_ORIGINS[self.state.origin])

    @property
    def problems(self) -> list[str]:
        """Return the reasons why the profile cannot be used."""
        return [translated(problem) for problem in self.state.problems]

    @property
    def cells(self) -> list[tuple[str, bool]]:
        """Return the value of each key that has a column, and whether it needs attention."""
        return [
            (printable(str(value)), value == key.alert)
            for key in column_keys()
            for value in (self.state.value(key),)
        ]

    @property
    def remarks(self) -> list[str]:
        """Return the keys that have no column, if their values are not the default."""
        return [printable(remark) for remark in remarks(self.state.record())]

    @property
    def policies(self) -> list[tuple[str, str]]:
        """Return the rate of each policy, and how it is counted."""
        return [
            (rate(one.limit, one.window, inflight=one.inflight), _counting(one))
            for one in self.state.policies
        ]

    @property
    def tiers(self) -> list[tuple[str, str]]:
        """Return name and rates of each tier."""
        return [
            (printable(name), ", ".join(rates) if rates else _("no limit"))
            for name, rates in (self.state.tiers or {}).items()
        ]


def _counting(policy: Policy) -> str:
    """Return how a policy counts: the algorithm and the lease, or the hold of slots."""
    if policy.inflight:
        return f"hold {duration_exact(policy.window)}"
    lease = f", lease {number(policy.lease)}" if policy.lease else ""
    return f"{policy.algorithm}{lease}"


def profiles_view(model_admin: ModelAdmin[Rejection], request: HttpRequest) -> HttpResponse:
    """Show all profiles, and the form that tries another limit."""
    require_view(model_admin, request)
    span = today()
    hits, shown = hits_by_profile(span)
    places = _places()
    rows = [
        Row(
            state=state,
            places=places.get(state.name, []),
            hits=hits.get(column(state.name, "profile"), 0),
            log_url=url(model_admin, "changelist", profile=state.name),
            live_url=url(model_admin, "live", profile=state.name),
            usage_url=url(model_admin, "usage", profile=state.name),
            what_if_url=url(model_admin, "profiles", profile=state.name) + "#what-if",
            override_links=(
                [] if state.problems else override_links(model_admin, request, state.name)
            ),
        )
        for state in profiles()
    ]
    return page(
        model_admin,
        request,
        "profiles",
        title=pgettext("rate limit", "Profiles"),
        headings=[pgettext("rate limit", key.heading) for key in column_keys()],
        rows=rows,
        since=None if shown == span else shown.start,
        **what_if.context(model_admin, request),
    )


def _places() -> dict[str, list[str]]:
    """Return the views and rules that use each profile, by its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for usage in usages():
        # A function that chooses profiles for each request has no names to list.
        for name in usage.profiles if isinstance(usage.profiles, tuple) else ():
            found[name].append(usage.view)
    for index, config in enumerate(conf.rules):
        if any(rule_problems(index, config)):
            continue
        rule: Any = read_rule(index, config)
        for name in rule.requirement.profiles:
            text = _("rule %(number)d: %(rule)s")
            found[name].append(text % {"number": index + 1, "rule": _rule_text(config)})
    return found


def _rule_text(config: Any) -> str:
    """Return a rule as one line."""
    parts = []
    for key in ("methods", "path", "name", "namespace"):
        value = config.get(key)
        if value:
            parts.append(value if isinstance(value, str) else " ".join(value))
    return printable(" ".join(parts) or _("all requests"))
