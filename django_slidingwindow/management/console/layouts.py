"""The columns of the tables that the command prints.

Actions with a module in `subcommands` may have their tables there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...durations import duration_exact, rate_exact
from ...inspection.profiles import column_keys, remarks
from ...inspection.usage import SHARES
from ...policies import SLOTS
from ...profiles.keys import ProfileKey
from ...replay.texts import name_of, refused_text, share_text, wait_text
from .outputs import BAD, DIM, GOOD, WARN, Cell, Column, Layout, Record
from .text import as_key, bar, harmless, number, or_dash, percent, size, wait

# The share of a limit above which its use is highlighted.
_NEAR = 0.8
_LEVELS = {"ok": GOOD, "info": "", "warning": WARN, "error": BAD}


def field(name: str, render: Callable[[Any], str] = harmless) -> Callable[[Record], Cell]:
    """Return a function that makes a cell from one field of a record."""
    return lambda record: Cell(render(record[name]))


def _by_use(render: Callable[[float | None], str]) -> Callable[[Record], Cell]:
    def cell(record: Record) -> Cell:
        tone = BAD if record["blocked"] else WARN if (record["use"] or 0) >= _NEAR else GOOD
        return Cell(render(record["use"]), tone)

    return cell


def _hits_in_words(record: Record) -> Cell:
    hits = number(record["hits"])
    if record["in_flight_for"] is not None:
        return Cell(f"{hits} in flight, the oldest for {wait(record['in_flight_for'])}")
    if record["leased"] is None:
        return Cell(hits)
    return Cell(f"{hits}, at most {number(record['leased'])} of them leased and not used yet")


def _hits(record: Record) -> Cell:
    hits, since = number(record["hits"]), record["in_flight_for"]
    return Cell(hits if since is None else f"{hits} ({wait(since)})")


def blocked_for(retry_after: float | None, *, full: bool, observed: bool, in_flight: bool) -> Cell:
    """Return how long a window refuses requests. `in_flight`: it counts requests in flight."""
    if not full:
        return Cell("-", DIM)
    if observed:
        return Cell("observed", WARN)
    if in_flight and retry_after == 0.0:
        return Cell("one ends", BAD)
    return Cell(wait(retry_after), BAD)


def _blocked_for(record: Record) -> Cell:
    return blocked_for(
        record["retry_after"],
        full=record["blocked"] or (record["observed"] and record["remaining"] == 0),
        observed=record["observed"],
        in_flight=record["in_flight_for"] is not None,
    )


KEYS = Layout(
    [
        Column("use", _by_use(percent), 4, right=True),
        Column("", _by_use(bar), graphic=True),
        Column("hits", _hits, 9, right=True),
        Column("limit", field("limit", number), 9, right=True),
        Column("override", field("override", or_dash), 8),
        Column("blocked for", _blocked_for, 11, right=True),
        Column("profile", field("profile", or_dash), 20),
        Column("identifier", field("identifier"), 24),
        Column("key", field("key", as_key)),
    ]
)

KEY = Layout(
    [
        Column("key", field("key", as_key)),
        Column("profile", field("profile", or_dash)),
        Column("axis", field("axis")),
        Column("identifier", field("identifier")),
        Column("scope", field("scope")),
        Column("algorithm", field("algorithm")),
        Column("window", field("window", duration_exact)),
        Column("limit", field("limit", number)),
        Column("override", field("override", or_dash)),
        Column("hits", _hits_in_words),
        Column("remaining", field("remaining", number)),
        Column("use", _by_use(percent)),
        Column("", _by_use(bar), graphic=True),
        Column("blocked for", _blocked_for),
        Column("oldest hit leaves in", field("reset_after", wait)),
        Column("expires in", field("ttl", wait)),
        Column("memory", field("bytes", size)),
    ]
)


def _reset(record: Record) -> Cell:
    if record["reset"]:
        return Cell("deleted", GOOD)
    return Cell("no, dry run" if record["dry_run"] else "not found", DIM)


RESET = Layout(
    [
        Column("done", _reset, 11),
        Column("hits", field("hits", number), 9, right=True),
        Column("key", field("key", as_key)),
    ]
)


def _rates(record: Record) -> Cell:
    if record["problems"]:
        return Cell(harmless(" ".join(record["problems"])), BAD)
    policies = [_rate(policy) for policy in record["policies"]]
    if record["tiers"]:
        tiers = record["tiers"].items()
        texts = [f"{name}: {', '.join(rates) if rates else 'no limit'}" for name, rates in tiers]
        return Cell(harmless("; ".join(texts + policies)))
    if record["dynamic"]:
        policies.insert(0, "by identifier")
    return Cell(", ".join(policies))


def _rate(policy: Record) -> str:
    if policy["algorithm"] == SLOTS:
        rate = rate_exact(policy["limit"], policy["window"], inflight=True)
        return f"{rate} hold {duration_exact(policy['window'])}"
    lease = f" lease {number(policy['lease'])}" if policy["lease"] else ""
    return f"{rate_exact(policy['limit'], policy['window'])} {policy['algorithm']}{lease}"


def _key_column(key: ProfileKey) -> Column:
    def cell(record: Record) -> Cell:
        value = record[key.name]
        return Cell(or_dash(value), WARN if value is not None and value == key.alert else "")

    return Column(key.name, cell, key.width)


def profiles() -> Layout:
    """Return the layout for profiles, with a column for each profile key that has a heading."""
    return Layout(
        [
            Column("profile", field("name"), 24),
            *map(_key_column, column_keys()),
            Column("policies", _rates, 28),
            Column("other keys", lambda record: Cell(harmless(", ".join(remarks(record))))),
        ]
    )


FINDINGS = Layout(
    [
        Column("level", lambda r: Cell(r["level"], _LEVELS[r["level"]]), 7),
        Column("check", field("name"), 12),
        Column("finding", field("text")),
    ]
)

_ACTIONS = {"limit": WARN, "exempt": GOOD, "observe": WARN, "block": BAD}


def _override(record: Record) -> Cell:
    text = harmless(f"{record['action']} {record['limit']}".strip())
    return Cell(text, _ACTIONS.get(record["action"], "") if record["in_force"] else DIM)


def _stored(name: str, empty: str = "-") -> Callable[[Record], Cell]:
    """Return a function that makes a cell from an identifier in a database table.

    The app stores unprintable characters as %xx, so a printable identifier is not escaped again.
    The project's own code may have stored others.
    """
    return lambda record: Cell(as_key(record[name] or empty))


OVERRIDES = Layout(
    [
        Column("profile", field("profile"), 20),
        Column("identifier", _stored("identifier", "(all)"), 24),
        Column("override", _override, 14),
        Column("until", field("until", or_dash), 25),
        Column("by", field("created_by", or_dash), 10),
        Column("note", field("note")),
    ]
)

PURGE = Layout(
    [
        Column("older than", field("before")),
        Column("rows", field("rows", number)),
        Column("deleted", lambda r: Cell("yes") if r["deleted"] else Cell("no, dry run", DIM)),
    ]
)


def _fixed_window(record: Record) -> Cell:
    fixed = record["fixed_window"]
    if not fixed["beyond"]:
        return Cell("-", DIM)
    most = ", ".join(f"{window['most']:,}/{window['limit']:,}" for window in fixed["windows"])
    return Cell(f"{fixed['beyond']:,} ({most})", WARN)


def _by_refusals(render: Callable[[Record], str]) -> Callable[[Record], Cell]:
    return lambda record: Cell(render(record), BAD if record["refused"] else GOOD)


REPLAY = Layout(
    [
        Column("try", lambda record: Cell(harmless(name_of(record))), 16),
        Column("requests", field("requests", number), 11, right=True),
        Column("refused", _by_refusals(refused_text), 9, right=True),
        Column("share", _by_refusals(lambda r: share_text(r["refused_share"])), 7, right=True),
        Column("identifiers", field("identifiers", number), 11, right=True),
        Column("touched", field("identifiers_refused", number), 9, right=True),
        Column("share", lambda r: Cell(share_text(r["identifiers_share"])), 7, right=True),
        Column("longest wait", field("longest_wait", wait_text), 12, right=True),
        Column("fixed window: beyond", _fixed_window),
    ]
)

AFFECTED = Layout(
    [
        Column("refused", field("refused", number), 9, right=True),
        Column("requests", field("requests", number), 9, right=True),
        Column("identifier", field("identifier")),
    ]
)


def _compared(name: str) -> Callable[[Record], Cell]:
    """Return a function that makes a cell, highlighted if the value is above the limit."""

    def cell(record: Record) -> Cell:
        limit = record["limit_in_minutes"]
        above = limit is not None and record[name] is not None and record[name] > limit
        return Cell(number(record[name]), BAD if above else "")

    return cell


USAGE = Layout(
    [
        Column("limit", field("limit", number), 9, right=True),
        Column("window", field("window", duration_exact), 8),
        Column("counted in", lambda r: Cell(duration_exact(60 * r["minutes"])), 10),
        Column("windows", field("windows", number), 9, right=True),
        *(Column(f"{share} %", _compared(f"p{share}"), 9, right=True) for share in SHARES),
        Column("most", _compared("most"), 9, right=True),
    ]
)

BUSIEST = Layout(
    [
        Column("admitted", field("admitted", number), 9, right=True),
        Column("refused", field("refused", number), 9, right=True),
        Column("identifier", _stored("identifier")),
    ]
)

TRAIL = Layout(
    [
        Column("minute", field("minute"), 22),
        Column("admitted", field("admitted", number), 9, right=True),
        Column("cost", field("cost", number), 9, right=True),
        Column("refused", field("refused", number), 9, right=True),
        Column("view", field("view", or_dash)),
    ]
)
