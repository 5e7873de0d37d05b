"""A panel for django-debug-toolbar: which limits a request met, why, and what Redis took.

    DEBUG_TOOLBAR_PANELS = [
        "debug_toolbar.panels.history.HistoryPanel",
        "django_slidingwindow.contrib.debug_toolbar.RateLimitPanel",
    ]

It listens to `limit_checked` while the toolbar watches a request, and to nothing otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
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
_EXEMPT_VIEW = "The rules of the middleware do not apply to this view: it has rate_limit_exempt."


class _Heard(NamedTuple):
    """A check that was made while the request was handled."""

    decision: Decision
    seconds: float | None
    """What the store took; None if it was not asked."""
    error: Exception | None


class RateLimitPanel(Panel):
    """The limits that a request met."""

    is_async = True
    title = nav_title = "Rate limits"
    template = "django_slidingwindow/debug_toolbar.html"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._heard: list[_Heard] = []
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
            limit_checked.connect(self._hear)

    def disable_instrumentation(self) -> None:
        if self._token is not None:
            limit_checked.disconnect(self._hear)
            _current.reset(self._token)
            self._token = None

    def generate_stats(self, request: HttpRequest, response: HttpResponseBase) -> None:
        """Record what the template shows, as plain values: the toolbar stores them as JSON."""
        took = [heard.seconds for heard in self._heard if heard.seconds is not None]
        checks = _checks_of(request, self._heard)
        self.record_stats(
            {
                "notes": _notes_on(request),
                "checks": checks,
                "refused": any(check["refused"] for check in checks),
                "asked": len(took),
                "ms": 1000 * sum(took),
            }
        )

    def generate_server_timing(self, request: HttpRequest, response: HttpResponseBase) -> None:
        stats = self.get_stats()
        self.record_server_timing("redis", "Rate limits in Redis", stats["ms"])

    def _hear(
        self, *, decision: Decision, seconds: float | None, error: Exception | None, **kwargs: Any
    ) -> None:
        # Other requests are handled at the same time.
        if _current.get() is self:
            self._heard.append(_Heard(decision, seconds, error))


_current: ContextVar[RateLimitPanel | None] = ContextVar("panel", default=None)


def _notes_on(request: HttpRequest) -> list[str]:
    notes = [] if conf.enabled else [_OFF]
    state = state_of(request)
    if state is not None and state[0].exempt:
        notes.append(_EXEMPT)
    if request.resolver_match is not None and is_exempt(request.resolver_match.func):
        notes.append(_EXEMPT_VIEW)
    return notes


def _checks_of(request: HttpRequest, heard: list[_Heard]) -> list[dict[str, Any]]:
    """Return the checks of views, rules and throttles, and then those of `limits`."""
    rest = list(heard)
    shown = []
    state = state_of(request) or RequestState()
    for check in state:
        own = _heard_of(check, rest)
        if own is not None:
            rest.remove(own)
        if check.counted:
            why = _why(check, state, request)
            shown.append(_shown(check.decision, own, check.counted, why))
    for other in rest:
        name = other.decision.profile
        shown.append(_shown(other.decision, other, {name: ("", 0)}, {name: _LIMITS_CALL}))
    return shown


def _heard_of(check: Check, heard: list[_Heard]) -> _Heard | None:
    """Return what was heard of a check."""
    if check.decision is None:
        return None
    for one in heard:
        if one.decision is check.decision:
            return one
    # A refund has put another decision in its place, about the same windows.
    keys = _keys_of(check.decision)
    return next((one for one in heard if keys and keys == _keys_of(one.decision)), None)


def _keys_of(decision: Decision) -> list[str]:
    return [verdict.key for verdict in decision.verdicts]


def _why(check: Check, state: RequestState, request: HttpRequest) -> dict[str, str]:
    """Return the places that require each profile of a check."""
    places: dict[str, dict[str, None]] = {}
    for requirement in check.requirements:
        for name in state.profiles(request, requirement):
            places.setdefault(name, {})[requirement.origin] = None
    return {name: ", ".join(origins) for name, origins in places.items()}


def _shown(
    decision: Decision | None,
    heard: _Heard | None,
    counted: Mapping[str, Counted | None],
    why: Mapping[str, str],
) -> dict[str, Any]:
    """Return what the panel shows of one check."""
    rows = [_window_row(verdict) for verdict in decision.verdicts] if decision else []
    seen = {row["profile"] for row in rows}
    rows += [_plain_row(name, counted[name], decision) for name in counted if name not in seen]
    for row in rows:
        row["why"] = why.get(row["profile"], "")
    seconds = heard.seconds if heard else None
    return {
        "source": decision.source if decision else "",
        "reason": decision.reason if decision else "",
        "refused": decision is not None and not decision.allowed,
        "ms": None if seconds is None else 1000 * seconds,
        "error": str(heard.error) if heard and heard.error else "",
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
    """Return the row of a profile whose windows were not looked at."""
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
