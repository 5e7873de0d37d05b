"""The keys of a profile's dict in one table: reading, checking, building and showing follow it.

To add a key, add a row to `PROFILE_KEYS`, and its field to `Profile` if there is none yet. The
tests print the row that docs/profiles.md needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from django.utils.module_loading import import_string

from .conf import conf
from .exceptions import PolicyError
from .policies import (
    ANONYMOUS,
    ENFORCE,
    FALLBACKS,
    MODES,
    OBSERVE,
    Policy,
    parse_limit,
    parse_rate,
    parse_window,
)

POLICIES = "policies"
"""The field of the keys that say how much is allowed."""
IN_POLICIES = ("window", "algorithm", "resolution")
"""The fields that every policy of a profile gets."""


def gettext_noop(text: str) -> str:
    """Mark a text for makemessages; Django's own function reads the settings, too early here."""
    return text


class ProfileKey(NamedTuple):
    """One key: what it may hold, what it sets and how people see it."""

    name: str
    field: str
    """The field of `Profile` that it sets."""
    read: Callable[[Any], Any]
    """Return the field's value; raise ValueError with the problem as text."""
    description: str
    """One line of Markdown, for docs/profiles.md."""
    read_item: Callable[[Any], Any] | None = None
    """Does the same for each item, where the value is a list."""
    required: bool = False
    default: Any = None
    """What the field holds without the key."""
    default_text: str = ""
    """The default in docs/profiles.md, where it is not a constant."""
    effective: Callable[[Any], Any] | None = None
    """Return the value that applies, where a setting stands in for a missing one."""
    heading: str = ""
    """Of its own column. Without one, a value is shown if it is not the default."""
    width: int = 0
    """Of its own column, in characters."""
    alert: Any = None
    """A value to draw attention to."""

    @property
    def in_policies(self) -> bool:
        """Whether the policies show the value."""
        return self.field == POLICIES or self.field in IN_POLICIES

    def value(self, written: Any) -> Any:
        """Return what the key sets its field to; ValueError if it is wrong."""
        value = self.read(written)
        return value if self.read_item is None else tuple(map(self.read_item, value))

    def problems(self, written: Any) -> Iterator[tuple[str, str]]:
        """Yield what is wrong, as (path below the key, problem)."""
        try:
            value = self.read(written)
        except ValueError as error:
            yield "", str(error)
            return
        if self.read_item is None:
            return
        for i, item in enumerate(value):
            try:
                self.read_item(item)
            except ValueError as error:
                yield f"[{i}]", str(error)


def config_problems(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the known keys of a profile's dict, as (path, problem)."""
    for key in PROFILE_KEYS.values():
        if key.required or key.name in config:
            for below, problem in key.problems(config.get(key.name)):
                yield f"[{key.name!r}]{below}", problem
    given = [
        key.name for key in PROFILE_KEYS.values() if key.field == POLICIES and key.name in config
    ]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        yield "", f"needs one of limit (with window), rate or rates; found {found}."
    elif given == ["limit"] and "window" not in config:
        yield "", "a limit needs a window, such as 60 or '1m'."
    elif given != ["limit"] and "window" in config:
        yield "['window']", "goes with limit; a rate has its window in it."


def profile_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the `Profile` that a dict without problems describes."""
    fields = {
        key.field: key.value(config[key.name])
        for key in PROFILE_KEYS.values()
        if key.name in config
    }
    rates = fields.pop(POLICIES)
    if callable(rates):
        return {**fields, "limit_for": rates}
    shared = {name: fields.pop(name) for name in IN_POLICIES if name in fields}
    policies = tuple(Policy(**{**shared, **rate}) for rate in rates)
    return {**fields, POLICIES: policies}


def _text(problem: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise ValueError(problem)
        return value

    return read


def _read_bool(value: Any) -> bool:
    if value is not True and value is not False:
        raise ValueError("must be True or False.")
    return value


def _one_of(choices: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{value!r} is not one of {', '.join(choices)}.")
        return str(value)

    return read


def _read_limit(value: Any) -> Any:
    """Return the rates without their window, or the function that returns them."""
    if callable(value):
        return value
    if isinstance(value, str):
        if not _is_path(value):
            raise PolicyError(
                f"limit {value!r} is neither a whole number nor the dotted path of a callable"
            )
        return _imported(value)
    return ({"limit": parse_limit(value)},)


def _read_rate(value: Any) -> Any:
    """Return the rates, or the function that returns them."""
    if callable(value):
        return value
    if isinstance(value, str) and _is_path(value):
        return _imported(value)
    return (_rate(value),)


def _read_rates(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError('must be a list of rates, such as ["5/m", "20/h"].')
    return value


def _rate(value: Any) -> dict[str, Any]:
    limit, window = parse_rate(value)
    return {"limit": limit, "window": window}


def _in_policy(name: str) -> Callable[[Any], Any]:
    return lambda value: getattr(Policy(limit=0, window=1, **{name: value}), name)


def _is_path(text: str) -> bool:
    """Return whether it can be the dotted path of something in a module."""
    return "." in text and all(name.isidentifier() for name in text.split("."))


def _imported(path: str) -> Any:
    try:
        found = import_string(path)
    except ImportError as error:
        raise PolicyError(str(error)) from error
    if not callable(found):
        raise PolicyError(f"{path!r} is not a callable (identifier, request) -> rate")
    return found


_TABLE = (
    ProfileKey(
        name="axis",
        field="axis",
        read=_text("an axis is needed: ip, user, tenant, endpoint, global or one of your own."),
        description="whom it counts: [identities](identities.md) lists them",
        required=True,
        default_text="needed",
        heading=gettext_noop("Counts by"),
        width=12,
    ),
    ProfileKey(
        name="limit",
        field=POLICIES,
        read=_read_limit,
        description="hits in a window, together with `window`",
    ),
    ProfileKey(
        name="window",
        field="window",
        read=parse_window,
        description='its length: seconds (`60`, `0.5`), a `timedelta` or text (`"1m"`)',
    ),
    ProfileKey(
        name="rate",
        field=POLICIES,
        read=_read_rate,
        description='both in one: `"120/m"`, `"10/30s"`, `"100/d"`',
    ),
    ProfileKey(
        name="rates",
        field=POLICIES,
        read=_read_rates,
        read_item=_rate,
        description='several at once: `["5/m", "20/h"]`. '
        "One of `limit`, `rate` and `rates` is needed",
    ),
    ProfileKey(
        name="algorithm",
        field="algorithm",
        read=_in_policy("algorithm"),
        description="how hits are kept: [algorithms](algorithms.md)",
        default="compact",
    ),
    ProfileKey(
        name="resolution",
        field="resolution",
        read=_in_policy("resolution"),
        description="sub-windows of the algorithm `buckets`, 1 to 1,000",
        default=60,
    ),
    ProfileKey(
        name="scope",
        field="scope",
        read=_text("must be text."),
        description="what shares one window: profiles of one axis and scope share their hits",
        default_text="the name",
        heading=gettext_noop("Scope"),
        width=24,
    ),
    ProfileKey(
        name="mode",
        field="mode",
        read=_one_of(MODES),
        description='`"observe"` counts and logs, and never blocks',
        default=ENFORCE,
        heading=gettext_noop("Mode"),
        width=8,
        alert=OBSERVE,
    ),
    ProfileKey(
        name="count_rejected",
        field="count_rejected",
        read=_read_bool,
        description="a refused request counts as well, so who keeps hammering stays out",
        default=False,
    ),
    ProfileKey(
        name="fallback",
        field="fallback",
        read=_one_of(FALLBACKS),
        description="what decides while Redis is away: [failure modes](failure-modes.md)",
        default_text="`FALLBACK`",
        effective=lambda value: value or conf.fallback,
        heading=gettext_noop("Without Redis"),
        width=8,
    ),
    ProfileKey(
        name="anonymous",
        field="anonymous",
        read=_one_of(ANONYMOUS),
        description='what `user` and `session` do without one: count the address, or `"skip"`',
        default="ip",
    ),
)
PROFILE_KEYS = {key.name: key for key in _TABLE}
"""In the order in which people see them."""
