"""A panel for django-debug-toolbar: which limits checked a request, and how long Redis took.

    DEBUG_TOOLBAR_PANELS = [
        "debug_toolbar.panels.history.HistoryPanel",
        "django_slidingwindow.contrib.debug_toolbar.RateLimitPanel",
    ]

The panel is connected to `limit_checked` only while the toolbar records a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Any, NamedTuple

from debug_toolbar.panels import Panel
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..conf import conf
from ..core.keys import parse_key
from ..decisions import Decision, Verdict
from ..durations import duration_rounded_up, rate_exact
from ..guard.requirements import is_exempt
from ..guard.state import Check, Counted, RequestState, state_of
from ..registry import registry
from ..signals import limit_checked

_LIMITS_CALL = "a call of limits"
_OFF = "Nothing is limited: ENABLED is False."
_EXEMPT = "This request is not limited: the setting EXEMPT covers it."
_EXEMPT_LATER = "The later limits of this request do not apply: the setting EXEMPT covers it."
_EXEMPT_VIEW = "The rules of the middleware do not apply to this view: it has rate_limit_exempt."


class _Report(NamedTuple):
    """What `limit_checked` reported about one check during the request."""

    decision: Decision
    seconds: float | None
    """How long the store took; None if it was not asked."""
    error: Exception | None


class RateLimitPanel(Panel):
    """The limits that checked a request."""

    is_async = True
    title = nav_title = "Rate limits"
    template = "django_slidingwindow/debug_toolbar.html"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reports: list[_Report] = []
        self._token: Token[RateLimitPanel | None] | None = None

    @property
    def nav_subtitle(self) -> str:
        stats = self.get_stats()
        number = stats.get("asked", 0)
        took = f"{number} {'call' if number == 1 else 'calls'} in {stats.get('ms', 0):.2f} ms"
        return f"Refused, {took}" if stats.get("refused") else took

    def enable_instrumentation(self) -> None:
        if self._token is None:
            self._token = _current.set(self)
            limit_checked.connect(self._receive)

    def disable_instrumentation(self) -> None:
        if self._token is not None:
            limit_checked.disconnect(self._receive)
            _current.reset(self._token)
            self._token = None

    def generate_stats(self, request: HttpRequest, response: HttpResponseBase) -> None:
        """Record the values for the template. They are plain, because the toolbar stores JSON."""
        durations = [report.seconds for report in self._reports if report.seconds is not None]
        checks = _checks_of(request, self._reports)
        self.record_stats(
            {
                "notes": _notes_on(request),
                "checks": checks,
                "refused": any(check["refused"] for check in checks),
                "asked": len(durations),
                "ms": 1000 * sum(durations),
            }
        )

    def generate_server_timing(self, request: HttpRequest, response: HttpResponseBase) -> None:
        stats = self.get_stats()
        self.record_server_timing("redis", "Rate limits in Redis", stats["ms"])

    def _receive(
        self, *, decision: Decision, seconds: float | None, error: Exception | None, **kwargs: Any
    ) -> None:
        # The signal also reports the checks of other requests that run at the same time.
        if _current.get() is self:
            self._reports.append(_Report(decision, seconds, error))


_current: ContextVar[RateLimitPanel | None] = ContextVar("panel", default=None)


def _notes_on(request: HttpRequest) -> list[str]:
    """Return why some limits, or all of them, do not apply to the request."""
    notes = [] if conf.enabled else [_OFF]
    state = state_of(request) or RequestState()
    if any(check.exempt for check in state):
        notes.append(_EXEMPT if state[0].exempt else _EXEMPT_LATER)
    if request.resolver_match is not None and is_exempt(request.resolver_match.func):
        notes.append(_EXEMPT_VIEW)
    return notes


def _checks_of(request: HttpRequest, reports: list[_Report]) -> list[dict[str, Any]]:
    """Return the checks of views, rules and throttles, and then those of `limits`."""
    rest = list(reports)
    shown = []
    state = state_of(request) or RequestState()
    for check in state:
        found = _reports_of(check, rest)
        for report in found:
            rest.remove(report)
        if check.counted:
            why = _why(check, state, request)
            shown.append(_shown(check.decision, found, check.counted, why))
    for report in rest:
        name = report.decision.profile
        shown.append(_shown(report.decision, [report], {name: ("", 0)}, {name: _LIMITS_CALL}))
    return shown


def _reports_of(check: Check, reports: list[_Report]) -> list[_Report]:
    """Return the reports about a check of the request."""
    if check.decision is None:
        return []
    for report in reports:
        if report.decision is check.decision:
            return [report]
    # A refund has replaced the decision by another one about the same windows. If some of the
    # windows are deferred, they have a report of their own.
    found, left = [], _keys_of(check.decision)
    for report in reports:
        keys = _keys_of(report.decision)
        if keys and keys <= left:
            found.append(report)
            left -= keys
    return found


def _keys_of(decision: Decision) -> set[str]:
    return {verdict.key for verdict in decision.verdicts}


def _why(check: Check, state: RequestState, request: HttpRequest) -> dict[str, str]:
    """Return for each profile of a check the places that require it."""
    places: dict[str, dict[str, None]] = {}
    for requirement in check.requirements:
        for name in state.profiles(request, requirement):
            places.setdefault(name, {})[requirement.origin] = None
    return {name: ", ".join(origins) for name, origins in places.items()}


def _shown(
    decision: Decision | None,
    reports: Sequence[_Report],
    counted: Mapping[str, Counted | None],
    why: Mapping[str, str],
) -> dict[str, Any]:
    """Return the values that the panel shows for one check."""
    rows = [_window_row(verdict) for verdict in decision.verdicts] if decision else []
    seen = {row["profile"] for row in rows}
    rows += [_plain_row(name, counted[name], decision) for name in counted if name not in seen]
    for row in rows:
        row["why"] = why.get(row["profile"], "")
    durations = [report.seconds for report in reports if report.seconds is not None]
    errors = [report.error for report in reports if report.error]
    return {
        "source": decision.source if decision else "",
        "reason": decision.reason if decision else "",
        "refused": decision is not None and not decision.allowed,
        "ms": 1000 * sum(durations) if durations else None,
        "error": str(errors[0]) if errors else "",
        "rows": rows,
    }


def _window_row(verdict: Verdict) -> dict[str, Any]:
    parts = parse_key(verdict.key, conf.prefix)
    outcome = "allowed" if verdict.allowed else "refused"
    if verdict.blocked:
        outcome = "refused: blocked by the penalty"
    if verdict.observed and not verdict.allowed:
        outcome = f"would be {outcome} (observe)"
    wait = verdict.retry_after
    return {
        "profile": verdict.profile,
        "axis": parts.axis if parts else "",
        "identifier": parts.identifier if parts else "",
        "key": verdict.key,
        "policy": rate_exact(
            verdict.policy.limit, verdict.policy.window, inflight=verdict.policy.inflight
        ),
        "limit": verdict.limit,
        "remaining": verdict.remaining,
        "retry_after": "never" if wait is None else duration_rounded_up(wait) if wait else "",
        "outcome": outcome,
    }


def _plain_row(name: str, counted: Counted | None, decision: Decision | None) -> dict[str, Any]:
    """Return the row of a profile for which no window was checked."""
    outcome = "not counted: no identifier"
    if counted is not None and decision is not None:
        outcome = "allowed" if decision.allowed else "refused"
    axis = registry.get(name).axis if name in registry.configs() else ""
    return {
        "profile": name,
        "axis": axis,
        "identifier": counted[0] if counted else "",
        "outcome": outcome,
    }
