"""The rows of the pages for live keys: a window and its values as text."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.admin import ModelAdmin
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..decisions import BLOCK
from ..durations import duration_exact, duration_rounded_up
from ..inspection.windows import KeyState
from ..models import Rejection
from ..overrides.validation import marked
from ..rejections.text import printable
from .charts import meter
from .formatting import number, rate, wait
from .pages import override_links, url


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A window as it is shown on a page."""

    state: KeyState
    key_url: str
    unblock_url: str
    override_links: list[dict[str, str]]

    @property
    def identifier(self) -> str:
        return printable(self.state.identifier)

    @property
    def window(self) -> str:
        return duration_exact(self.state.window)

    @property
    def policy(self) -> str:
        """Return the rate, or only the window if no limit is known."""
        if self.state.limit is None:
            return self.window
        inflight = self.state.in_flight_for is not None
        return rate(self.state.limit, self.state.window, inflight=inflight)

    @property
    def hits(self) -> str:
        """Return hits and limit, such as "99 / 100"; only the hits if no limit is known."""
        hits, limit = self.state.hits, self.state.limit
        return number(hits) if limit is None else f"{number(hits)} / {number(limit)}"

    @property
    def leased(self) -> str:
        """Return the number of hits that are leased and may not be used yet."""
        return number(self.state.leased or 0)

    @property
    def since(self) -> str:
        """Return how long the oldest request has been in flight; empty for a rate."""
        seconds = self.state.in_flight_for
        return "" if seconds is None else duration_rounded_up(seconds)

    @property
    def only_observed(self) -> bool:
        """Return whether the window is over the limit of a profile that only observes."""
        return self.state.observed and self.state.remaining == 0

    @property
    def override(self) -> str:
        """Return the override in force and when it ends; empty if there is none."""
        state = self.state
        if not state.override or state.override_ends is None:
            return state.override
        ends = duration_rounded_up(state.override_ends)
        return _("%(action)s, ends in %(time)s") % {"action": state.override, "time": ends}

    @property
    def refused(self) -> bool:
        """Return whether an override blocks the identifier. Unblocking does not end an override."""
        return self.state.override == BLOCK

    @property
    def release(self) -> str:
        """Return when the window is released; empty if it is not blocked."""
        if self.state.waits_for_slot:
            return _("when a request ends")
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


def row_of(model_admin: ModelAdmin[Rejection], request: HttpRequest, state: KeyState) -> Row:
    """Return the row of a window, with the links that the user may follow."""
    links = []
    # A form without an identifier would be about all identifiers.
    if state.profile is not None and state.identifier:
        identifier = marked(state.axis, state.identifier)
        links = override_links(model_admin, request, state.profile, identifier)
    return Row(
        state=state,
        key_url=url(model_admin, "key", key=state.key),
        unblock_url=url(model_admin, "unblock", key=state.key),
        override_links=links,
    )
