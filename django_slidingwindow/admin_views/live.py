"""Live keys: what Redis holds now, one key with its hits, and letting somebody in again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..conf import conf
from ..core.keys import KeyParts, parse_key
from ..durations import duration_exact, duration_rounded_up, rate_exact
from ..exceptions import StoreError
from ..inspection import profiles as overview
from ..inspection import windows as inspection
from ..inspection.search import Filters
from ..inspection.windows import KeyState
from ..models import Rejection
from ..rejections.rows import column, logged_identifier
from ..rejections.text import printable
from .charts import Chart, Series, meter
from .filters import axes
from .pages import may_unblock, page, require_view, url
from .wording import minute, number, policy, share, wait

KEYS_A_PAGE = 50
KEYS_A_SCAN = 1_000
MOST_SCANS = 50
MOST_SECONDS = 1.0
"""How long a page searches; its last scan may take it some milliseconds further."""
RECENT_REJECTIONS = 20
COLUMNS = 60


@dataclass(frozen=True, slots=True)
class Row:
    """A window as a page shows it."""

    state: KeyState
    key_url: str
    unblock_url: str

    @property
    def identifier(self) -> str:
        return printable(self.state.identifier)

    @property
    def window(self) -> str:
        return duration_exact(self.state.window)

    @property
    def policy(self) -> str:
        """With its limit, where one is known."""
        if self.state.limit is None:
            return self.window
        return rate_exact(self.state.limit, self.state.window)

    @property
    def hits(self) -> str:
        return share(self.state.hits, self.state.limit)

    @property
    def let_in(self) -> bool:
        """Over the limit of a profile that only observes."""
        return self.state.observed and self.state.remaining == 0

    @property
    def release(self) -> str:
        return wait(self.state.retry_after) if self.state.blocked else ""

    @property
    def reset(self) -> str:
        return wait(self.state.reset_after)

    @property
    def expiry(self) -> str:
        return wait(self.state.ttl)

    @property
    def meter(self) -> SafeString:
        return meter(self.state.use, blocked=self.state.blocked)


def live_view(model_admin: ModelAdmin[Rejection], request: HttpRequest) -> HttpResponse:
    """A page of windows that match the search."""
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
        rows=[_row(model_admin, state) for state in found],
        problem=problem,
        more=url(model_admin, "live", **more) if cursor != "0" else "",
        seen=number(seen),
        profiles=[state.name for state in overview.profiles()],
        axes=axes(),
    )


def _search(filters: Filters, cursor: str) -> tuple[list[KeyState], str, int, str]:
    """The windows, the cursor to go on with, the keys looked at, and what is wrong."""
    found: list[KeyState] = []
    seen, until = 0, time.monotonic() + MOST_SECONDS
    try:
        for _scan in range(MOST_SCANS):
            # Every key of a scan is shown, or a cursor could not go on where it ended.
            result = inspection.scan(filters, cursor=cursor, count=KEYS_A_SCAN)
            found += result.states
            seen += result.seen
            cursor = result.cursor
            if cursor == "0" or len(found) >= KEYS_A_PAGE or time.monotonic() >= until:
                break
    except StoreError:
        return found, "0", seen, _redis_is_away()
    except (ImproperlyConfigured, ValueError) as error:
        return [], "0", seen, str(error)
    found.sort(key=lambda state: (not state.blocked, -(state.use or 0.0), state.key))
    return found, cursor, seen, ""


def key_view(model_admin: ModelAdmin[Rejection], request: HttpRequest) -> HttpResponse:
    """One window: its state, its hits, and what the log knows of it."""
    require_view(model_admin, request)
    key = request.GET.get("key", "")
    state, chart, problem = None, None, ""
    try:
        state = inspection.describe(key)
        if state is not None:
            chart = _hits_chart(state, inspection.hits(key))
        elif damaged := inspection.damaged(keys=[key]):
            (state,) = damaged
            problem = _("The stored value is damaged: reset this window.")
        else:
            problem = _("There is no such window: it has no hits.")
    except StoreError:
        problem = _redis_is_away()
    parts = parse_key(key, conf.prefix)
    return page(
        model_admin,
        request,
        "key",
        title=_("Live key"),
        subtitle=printable(key if parts is None else parts.identifier),
        key=printable(key),
        row=None if state is None else _row(model_admin, state),
        chart=chart,
        rejections=[] if parts is None else _rejections(parts),
        problem=problem,
        live_url=url(model_admin, "live"),
    )


def _rejections(parts: KeyParts) -> list[dict[str, Any]]:
    """What the log says of the window, the newest first."""
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
    """Asks, and then forgets all the windows of the identifier in the profile."""
    require_view(model_admin, request)
    if not may_unblock(request):
        raise PermissionDenied
    key = request.GET.get("key", "")
    try:
        states = inspection.describe_all(key) or inspection.damaged(keys=[key])
        if request.method == "POST":
            forgotten = [state for state in states if inspection.reset_key(state.key)]
            _note(request, forgotten)
            return HttpResponseRedirect(url(model_admin, "live"))
    except StoreError:
        messages.error(request, _redis_is_away())
        return HttpResponseRedirect(url(model_admin, "live"))
    if not states:
        messages.warning(request, _("There is no such window: it has no hits."))
        return HttpResponseRedirect(url(model_admin, "live"))
    return page(
        model_admin,
        request,
        "unblock",
        title=_("Unblock?") if any(state.blocked for state in states) else _("Reset?"),
        subtitle=printable(states[0].identifier),
        rows=[_row(model_admin, state) for state in states],
        blocked=any(state.blocked for state in states),
        shield=wait(conf.shield_seconds) if conf.shield_seconds else "",
        back=url(model_admin, "key", key=key),
    )


def _note(request: HttpRequest, forgotten: list[KeyState]) -> None:
    """Tells the user, and the admin's history."""
    if not forgotten:
        messages.warning(request, _("There is no such window: it has no hits."))
        return
    content_type = ContentType.objects.get_for_model(Rejection)
    for state in forgotten:
        LogEntry.objects.create(
            user_id=str(request.user.pk),
            content_type=content_type,
            # No id: there is no row that the entry could link to.
            object_id=None,
            object_repr=_remembered(state)[:200],
            action_flag=CHANGE,
            change_message=f"Unblocked: {state.hits} hits were forgotten.",
        )
    said = ngettext(
        # Not the identifier first: the admin would write it with a capital letter.
        "Let in again: %(who)s. %(count)d window was forgotten.",
        "Let in again: %(who)s. %(count)d windows were forgotten.",
        len(forgotten),
    )
    who = printable(forgotten[0].identifier)
    messages.success(request, said % {"who": who, "count": len(forgotten)})


def _remembered(state: KeyState) -> str:
    """The key as the history may keep it."""
    if conf.log_identifiers != "hash":
        return printable(state.key)
    before, after = state.key.partition("{")[0], state.key.rpartition("}")[2]
    return printable(f"{before}{{{logged_identifier(state.identifier)}}}{after}")


def _row(model_admin: ModelAdmin[Rejection], state: KeyState) -> Row:
    return Row(
        state,
        url(model_admin, "key", key=state.key),
        url(model_admin, "unblock", key=state.key),
    )


def _hits_chart(state: KeyState, hits: list[tuple[float, int]]) -> Chart:
    values = [0] * COLUMNS
    step = state.window / COLUMNS
    for age, count in hits:
        values[COLUMNS - 1 - min(int(age / step), COLUMNS - 1)] += count
    return Chart(
        id="sw-hits",
        title=_("Hits in the window"),
        description=_("%(hits)d hits in the last %(window)s; the newest are at the right.")
        % {"hits": sum(values), "window": duration_exact(state.window)},
        labels=[f"-{duration_rounded_up((COLUMNS - i) * step)}" for i in range(COLUMNS)],
        end=_("now"),
        series=[Series(name=_("hits"), values=values)],
    )


def _redis_is_away() -> str:
    return _("Redis does not answer, so live keys cannot be shown. The log is not affected.")
