"""The keys of a profile's dict in one table, which says how each is read, checked and shown.

To add a key, add a row to `PROFILE_KEYS`, and its field to `Profile` if there is none yet. The
tests print the row that docs/profiles.md needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..conf import conf
from ..exceptions import gettext_noop, pgettext_noop, text_of
from ..policies import (
    ANONYMOUS,
    DEFAULT_HOLD,
    ENFORCE,
    FALLBACKS,
    LOG_REFUSED,
    LOGS,
    MODES,
    OBSERVE,
)
from ..rates import parse_inflight, parse_lease, parse_window
from .values import (
    HOLD,
    INFLIGHT,
    one_of,
    penalty_problems,
    rate_fields,
    read_algorithm,
    read_bool,
    read_function,
    read_limit,
    read_penalty,
    read_rate,
    read_rates,
    read_resolution,
    read_tiers,
    string_value,
)

POLICIES = "policies"
"""The field that the keys limit, rate, rates and tiers set."""
TIER = "tier"
"""The field of the function that chooses among `tiers`."""
IN_POLICIES = ("window", "algorithm", "resolution", "lease", "lease_seconds")
"""The fields that are copied to every policy of a profile."""


class ProfileKey(NamedTuple):
    """One key: how it is read, the field that it sets, and how it is shown."""

    name: str
    field: str
    """The field of `Profile` that the key sets."""
    read: Callable[[Any], Any]
    """Return the field's value; raise ValueError with the problem as text."""
    description: str
    """One line of Markdown, for docs/profiles.md."""
    read_item: Callable[[Any], Any] | None = None
    """Like `read`, for each item of a list."""
    find_problems: Callable[[Any], Iterator[tuple[str, str]]] | None = None
    """Yield the problems of a value that has parts, as (path below the key, problem)."""
    required: bool = False
    default: Any = None
    """The value of the field without the key."""
    default_text: str = ""
    """The default in docs/profiles.md, if it is not a constant."""
    effective: Callable[[Any], Any] | None = None
    """Return the value to show, if it differs from the value of the field."""
    heading: str = ""
    """The heading of its column. Without a column, the value is shown if it is not the default."""
    width: int = 0
    """The width of its column, in characters."""
    alert: Any = None
    """A value that is highlighted."""

    @property
    def in_policies(self) -> bool:
        """Whether the value is shown as a part of the policies."""
        return self.field in (POLICIES, TIER, INFLIGHT, HOLD, *IN_POLICIES)

    def value(self, written: Any) -> Any:
        """Return the value of the field. Raise ValueError if it is wrong."""
        value = self.read(written)
        return value if self.read_item is None else tuple(map(self.read_item, value))

    def problems(self, written: Any) -> Iterator[tuple[str, str]]:
        """Yield the problems of a value, as (path below the key, problem)."""
        if self.find_problems is not None:
            yield from self.find_problems(written)
            return
        try:
            value = self.read(written)
        except ValueError as error:
            yield "", text_of(error)
            return
        if self.read_item is None:
            return
        for i, item in enumerate(value):
            try:
                self.read_item(item)
            except ValueError as error:
                yield f"[{i}]", text_of(error)


_TABLE = (
    ProfileKey(
        name="axis",
        field="axis",
        read=string_value(
            gettext_noop("is required, such as ip, user, tenant, endpoint or global.")
        ),
        description="what is counted separately: see [identities](identities.md)",
        required=True,
        default_text="required",
        heading=pgettext_noop("rate limit", "Counts by"),
        width=12,
    ),
    ProfileKey(
        name="limit",
        field=POLICIES,
        read=read_limit,
        description="the number of hits that are allowed in `window`",
    ),
    ProfileKey(
        name="window",
        field="window",
        read=parse_window,
        description='the length: seconds (`60`, `0.5`), a `timedelta` or a string (`"1m"`)',
    ),
    ProfileKey(
        name="rate",
        field=POLICIES,
        read=read_rate,
        description='limit and window in one: `"120/m"`, `"10/30s"`, `"100/d"`',
    ),
    ProfileKey(
        name="rates",
        field=POLICIES,
        read=read_rates,
        read_item=rate_fields,
        description='several rates, which all apply: `["5/m", "20/h"]`. '
        "Exactly one of `limit`, `rate`, `rates` and `tiers` is required, or `inflight`",
    ),
    ProfileKey(
        name="tiers",
        field=POLICIES,
        read=read_tiers,
        description='the rates of each plan: `{"free": "100/d", "internal": None}`, '
        "see [tiers](tiers.md)",
    ),
    ProfileKey(
        name=TIER,
        field=TIER,
        read=read_function,
        description="the function that returns the tier of an identifier; `tiers` needs it",
    ),
    ProfileKey(
        name="algorithm",
        field="algorithm",
        read=read_algorithm,
        description="how hits are stored: see [algorithms](algorithms.md)",
        default="compact",
    ),
    ProfileKey(
        name="resolution",
        field="resolution",
        read=read_resolution,
        description="the number of sub-windows of the algorithm `buckets`, 1 to 1,000",
        default=60,
    ),
    ProfileKey(
        name="lease",
        field="lease",
        read=parse_lease,
        description="the most hits that a process takes ahead: "
        "see [fewer round trips](fewer-round-trips.md)",
        default=0,
    ),
    ProfileKey(
        name="lease_seconds",
        field="lease_seconds",
        read=parse_window,
        description="how long a process may hand them out",
        default_text="a hundredth of the window, at most 30",
    ),
    ProfileKey(
        name=INFLIGHT,
        field=INFLIGHT,
        read=parse_inflight,
        description="how many requests may run at once, alone or beside rates: "
        "see [requests in flight](inflight.md)",
        default=0,
    ),
    ProfileKey(
        name=HOLD,
        field=HOLD,
        read=parse_window,
        description="when a slot is free again if its process has died",
        default=DEFAULT_HOLD,
        default_text='`"2m"`',
    ),
    ProfileKey(
        name="scope",
        field="scope",
        read=string_value(gettext_noop("must be a string that is not empty.")),
        description="profiles with the same axis and scope share their hits",
        default_text="the name of the profile",
    ),
    ProfileKey(
        name="mode",
        field="mode",
        read=one_of(MODES),
        description='`"observe"` counts and logs, and never refuses; `"deferred"` never waits for '
        "Redis: [fewer round trips](fewer-round-trips.md#deferred-evaluation)",
        default=ENFORCE,
        heading=pgettext_noop("rate limit", "Mode"),
        width=8,
        alert=OBSERVE,
    ),
    ProfileKey(
        name="count_rejected",
        field="count_rejected",
        read=read_bool,
        description="refused requests count as well: a client that keeps retrying stays blocked",
        default=False,
    ),
    ProfileKey(
        name="penalty",
        field="penalty",
        read=read_penalty,
        find_problems=penalty_problems,
        description="how many refusals block an identifier, and for how long: "
        "see [penalties](penalties.md)",
        effective=lambda penalty: penalty and penalty.text,
    ),
    ProfileKey(
        name="fallback",
        field="fallback",
        read=one_of(FALLBACKS),
        description="what decides while Redis is away: see [failure modes](failure-modes.md)",
        default_text="`FALLBACK`",
        effective=lambda value: value or conf.fallback,
        heading=pgettext_noop("rate limit", "Without Redis"),
        width=8,
    ),
    ProfileKey(
        name="anonymous",
        field="anonymous",
        read=one_of(ANONYMOUS),
        description='count anonymous requests by address (`"ip"`), or not at all (`"skip"`)',
        default="ip",
    ),
    ProfileKey(
        name="log",
        field="log",
        read=one_of(LOGS),
        description='`"all"` logs admitted requests as well: see [usage](usage.md)',
        default=LOG_REFUSED,
    ),
)
PROFILE_KEYS = {key.name: key for key in _TABLE}
"""By name, in the order in which they are shown."""
