"""The pages for live keys: the list of windows, one key with its hits, and unblocking."""

from __future__ import annotations

import time
from typing import Any

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from ..conf import conf
from ..core.keys import KeyParts, parse_key
from ..durations import duration_exact, duration_rounded_up
from ..exceptions import StoreError
from ..inspection import windows as inspection
from ..inspection.profiles import profiles
from ..inspection.search import Filters
from ..inspection.windows import KeyState
from ..models import Rejection
from ..rejections.rows import column, ends_of, logged_identifier
from ..rejections.text import printable
from .charts import Chart, Series
from .filters import axes
from .formatting import minute, number, policy, wait
from .key_rows import row_of
from .pages import may_unblock, page, require_view, url

KEYS_PER_PAGE = 50
"""A page ends with the first scan that reaches this number of windows."""
KEYS_PER_SCAN = 1_000
MAX_SCANS = 50
MAX_SECONDS = 1.0
"""Seconds after which a page starts no other scan. A scan takes some milliseconds."""
RECENT_REJECTIONS = 20
CHART_COLUMNS = 60


def live_view(model_admin: ModelAdmin[Rejection], request: HttpRequest) -> HttpResponse:
    """Show a page of windows that match the search."""
    require_view(model_admin, request)
    filters = Filters.from_query(request.GET)
    found, cursor, seen, problem = _search(filters, request.GET.get("cursor") or "0")
    more = {**filters.query(), "cursor": cursor}
    return page(
        model_admin,
        request,
        "live",
        title=_("Live keys"),
        filters=filters,
        rows=[row_of(model_admin, request, state) for state in found],
        problem=problem,
        more=url(model_admin, "live", **more) if cursor != "0" else "",
        seen=seen,
        seen_text=number(seen),
        profiles=[state.name for state in profiles()],
        axes=axes(),
    )


def _search(filters: Filters, cursor: str) -> tuple[list[KeyState], str, int, str]:
    """Return the windows, the next cursor, the number of keys examined, and an error text."""
    found: list[KeyState] = []
    seen, until = 0, time.monotonic() + MAX_SECONDS
    try:
        for _scan in range(MAX_SCANS):
            # Keep all keys of a scan, because the cursor continues after the last of them.
            result = inspection.scan(filters, cursor=cursor, count=KEYS_PER_SCAN)
            found += result.states
            seen += result.seen
            cursor = result.cursor
            if cursor == "0" or len(found) >= KEYS_PER_PAGE or time.monotonic() >= until:
                break
    except StoreError:
        return found, "0", seen, _no_reply_text()
    except (ImproperlyConfigured, ValueError) as error:
        return [], "0", seen, str(error)
    found.sort(key=lambda state: (not state.blocked, -(state.use or 0.0), state.key))
    return found, cursor, seen, ""


def key_view(model_admin: ModelAdmin[Rejection], request: HttpRequest) -> HttpResponse:
    """Show one window: its state, its hits, and its rejections in the log."""
    require_view(model_admin, request)
    key = request.GET.get("key", "")
    state, chart, problem = None, None, ""
    try:
        state = inspection.describe(key)
        if state is not None:
            chart = _hits_chart(state, inspection.hits(key))
        elif damaged := inspection.damaged(keys=[key]):
            (state,) = damaged
            problem = _damaged_text()
        else:
            problem = _("There is no such window: it has no hits.")
    except StoreError as error:
        # A window that checks can read may still lack something that its chart needs.
        problem = _no_reply_text() if error.outage else _damaged_text()
    parts = parse_key(key, conf.prefix)
    return page(
        model_admin,
        request,
        "key",
        title=_("Live key"),
        subtitle=printable(key if parts is None else parts.identifier),
        key=printable(key),
        row=None if state is None else row_of(model_admin, request, state),
        chart=chart,
        rejections=[] if parts is None else _rejections(parts),
        problem=problem,
        live_url=url(model_admin, "live"),
    )


def _rejections(parts: KeyParts) -> list[dict[str, Any]]:
    """Return the newest rejections of the window."""
    found = Rejection.objects.filter(
        identifier=logged_identifier(parts.identifier),
        axis=column(parts.axis, "axis"),
        scope=column(parts.scope, "scope"),
    )
    return [
        {"row": row, "minute": minute(row.minute), "policy": policy(row), "hits": number(row.hits)}
        for row in found[:RECENT_REJECTIONS]
    ]


def unblock_view(model_admin: ModelAdmin[Rejection], request: HttpRequest) -> HttpResponse:
    """Ask for confirmation (GET), or delete all windows of the identifier in the profile (POST)."""
    require_view(model_admin, request)
    if not may_unblock(request):
        raise PermissionDenied
    key = request.GET.get("key", "")
    try:
        states = inspection.describe_all(key)
        if request.method == "POST":
            deleted = [state for state in states if inspection.reset_key(state.key)]
            _record_unblocking(request, deleted)
            return HttpResponseRedirect(url(model_admin, "live"))
    except StoreError:
        messages.error(request, _no_reply_text())
        return HttpResponseRedirect(url(model_admin, "live"))
    if not states:
        messages.warning(request, _("There is no such window: it has no hits."))
        return HttpResponseRedirect(url(model_admin, "live"))
    rows = [row_of(model_admin, request, state) for state in states]
    blocked = any(row.state.blocked and not row.refused for row in rows)
    return page(
        model_admin,
        request,
        "unblock",
        title=pgettext("rate limit", "Unblock?") if blocked else pgettext("rate limit", "Reset?"),
        subtitle=printable(states[0].identifier),
        rows=rows,
        blocked=blocked,
        shield=wait(conf.shield_seconds) if conf.shield_seconds else "",
        back=url(model_admin, "key", key=key),
    )


def _record_unblocking(request: HttpRequest, deleted: list[KeyState]) -> None:
    """Show a message to the user, and add an entry for each window to the history of the admin."""
    if not deleted:
        messages.warning(request, _("There is no such window: it has no hits."))
        return
    content_type = ContentType.objects.get_for_model(Rejection)
    for state in deleted:
        LogEntry.objects.create(
            user_id=str(request.user.pk),
            content_type=content_type,
            # No id, because there is no row that the entry could link to.
            object_id=None,
            object_repr=_history_key(state)[:200],
            action_flag=CHANGE,
            # English, as all stored texts: the readers of the history may use other languages.
            change_message=f"Unblocked. Hits deleted: {state.hits}.",
        )
    text = ngettext(
        # The identifier is not the first word, because the admin would capitalize it.
        "Unblocked: %(who)s. %(count)d window was deleted.",
        "Unblocked: %(who)s. %(count)d windows were deleted.",
        len(deleted),
    )
    who = printable(deleted[0].identifier)
    messages.success(request, text % {"who": who, "count": len(deleted)})


def _history_key(state: KeyState) -> str:
    """Return the key for the history. The identifier is hashed if LOG_IDENTIFIERS is "hash"."""
    if conf.log_identifiers != "hash":
        return printable(state.key)
    before, after = ends_of(state.key)
    return printable(f"{before}{{{logged_identifier(state.identifier)}}}{after}")


def _hits_chart(state: KeyState, hits: list[tuple[float, int]]) -> Chart:
    values = [0] * CHART_COLUMNS
    step = state.window / CHART_COLUMNS
    for age, count in hits:
        # The newest hits are on the right.
        values[-1 - min(int(age / step), CHART_COLUMNS - 1)] += count
    total = sum(values)
    return Chart(
        id="sw-hits",
        title=_("Hits in the window"),
        description=ngettext(
            "%(hits)s hit in the last %(window)s. The newest are on the right.",
            "%(hits)s hits in the last %(window)s. The newest are on the right.",
            total,
        )
        % {"hits": number(total), "window": duration_exact(state.window)},
        labels=[f"-{duration_rounded_up(i * step)}" for i in range(CHART_COLUMNS, 0, -1)],
        end=pgettext("rate limit", "now"),
        series=[Series(name=pgettext("rate limit", "hits"), values=values)],
    )


def _damaged_text() -> str:
    return _("The stored value is damaged: reset this window.")


def _no_reply_text() -> str:
    return _("Redis does not answer, so live keys cannot be shown. The log is not affected.")
