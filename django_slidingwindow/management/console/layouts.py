"""The columns of tables for keys, profiles and findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...durations import duration_exact, rate_exact
from ...inspection.profiles import column_keys, remarks
from ...inspection.usage import SHARES
from ...policies import SLOTS
from ...profiles.keys import ProfileKey
from ...replay.wording import name_of, refused_text, share_text, wait_text
from .outputs import BAD, DIM, GOOD, WARN, Cell, Column, Layout, Record
from .text import as_key, bar, harmless, number, percent, size, wait

_NEAR = 0.8
_LEVELS = {"ok": GOOD, "info": "", "warning": WARN, "error": BAD}


def _plain(name: str, render: Callable[[Any], str] = harmless) -> Callable[[Record], Cell]:
    return lambda record: Cell(render(record[name]))


def _or_dash(value: Any) -> str:
    return "-" if value in (None, "") else harmless(value)


def _by_use(render: Callable[[float | None], str]) -> Callable[[Record], Cell]:
    def cell(record: Record) -> Cell:
        tone = BAD if record["blocked"] else WARN if (record["use"] or 0) >= _NEAR else GOOD
        return Cell(render(record["use"]), tone)

    return cell


def _hits(record: Record) -> Cell:
    hits = number(record["hits"])
    if record["in_flight_for"] is not None:
        return Cell(f"{hits} in flight, the oldest for {wait(record['in_flight_for'])}")
    if record["leased"] is None:
        return Cell(hits)
    return Cell(f"{hits}, at most {number(record['leased'])} of them leased and not used yet")


def _count(record: Record) -> Cell:
    hits, since = number(record["hits"]), record["in_flight_for"]
    return Cell(hits if since is None else f"{hits} ({wait(since)})")


def _retry(record: Record) -> Cell:
    if record["observed"] and record["remaining"] == 0:
        return Cell("observed", WARN)
    if not record["blocked"]:
        return Cell("-", DIM)
    if record["in_flight_for"] is not None and record["retry_after"] == 0.0:
        return Cell("one ends", BAD)
    return Cell(wait(record["retry_after"]), BAD)


KEYS = Layout(
    [
        Column("use", _by_use(percent), 4, right=True),
        Column("", _by_use(bar), graphic=True),
        Column("hits", _count, 9, right=True),
        Column("limit", _plain("limit", number), 9, right=True),
        Column("override", _plain("override", _or_dash), 8),
        Column("blocked for", _retry, 11, right=True),
        Column("profile", _plain("profile", _or_dash), 20),
        Column("identifier", _plain("identifier"), 24),
        Column("key", _plain("key", as_key)),
    ]
)

KEY = Layout(
    [
        Column("key", _plain("key", as_key)),
        Column("profile", _plain("profile", _or_dash)),
        Column("axis", _plain("axis")),
        Column("identifier", _plain("identifier")),
        Column("scope", _plain("scope")),
        Column("algorithm", _plain("algorithm")),
        Column("window", _plain("window", duration_exact)),
        Column("limit", _plain("limit", number)),
        Column("override", _plain("override", _or_dash)),
        Column("hits", _hits),
        Column("remaining", _plain("remaining", number)),
        Column("use", _by_use(percent)),
        Column("", _by_use(bar), graphic=True),
        Column("blocked for", _retry),
        Column("oldest hit leaves in", _plain("reset_after", wait)),
        Column("expires in", _plain("ttl", wait)),
        Column("memory", _plain("bytes", size)),
    ]
)


def _reset(record: Record) -> Cell:
    if record["reset"]:
        return Cell("deleted", GOOD)
    return Cell("no, dry run" if record["dry_run"] else "not found", DIM)


RESET = Layout(
    [
        Column("done", _reset, 11),
        Column("hits", _plain("hits", number), 9, right=True),
        Column("key", _plain("key", as_key)),
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


def _key(key: ProfileKey) -> Column:
    def cell(record: Record) -> Cell:
        value = record[key.name]
        return Cell(_or_dash(value), WARN if value is not None and value == key.alert else "")

    return Column(key.name, cell, key.width)


def profiles() -> Layout:
    """Return the layout for profiles, with a column for each profile key that has a heading."""
    return Layout(
        [
            Column("profile", _plain("name"), 24),
            *map(_key, column_keys()),
            Column("policies", _rates, 28),
            Column("other keys", lambda record: Cell(harmless(", ".join(remarks(record))))),
        ]
    )


FINDINGS = Layout(
    [
        Column("level", lambda r: Cell(r["level"], _LEVELS[r["level"]]), 7),
        Column("check", _plain("name"), 12),
        Column("finding", _plain("text")),
    ]
)

_ACTIONS = {"limit": WARN, "exempt": GOOD, "observe": WARN, "block": BAD}


def _override(record: Record) -> Cell:
    text = harmless(f"{record['action']} {record['limit']}".strip())
    return Cell(text, _ACTIONS.get(record["action"], "") if record["in_force"] else DIM)


def _stored(name: str, empty: str = "-") -> Callable[[Record], Cell]:
    """Return a cell for an identifier of a table, whose unprintable characters are %xx."""
    # Unless code has stored it.
    return lambda record: Cell(as_key(record[name] or empty))


OVERRIDES = Layout(
    [
        Column("profile", _plain("profile"), 20),
        Column("identifier", _stored("identifier", "(all)"), 24),
        Column("override", _override, 14),
        Column("until", lambda r: Cell(r["until"] or "-"), 25),
        Column("by", lambda r: Cell(harmless(r["created_by"] or "-")), 10),
        Column("note", _plain("note")),
    ]
)

PURGE = Layout(
    [
        Column("older than", _plain("before")),
        Column("rows", _plain("rows", number)),
        Column("deleted", lambda r: Cell("yes") if r["deleted"] else Cell("no, dry run", DIM)),
    ]
)


def _fixed_most(record: Record) -> Cell:
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
        Column("requests", _plain("requests", number), 11, right=True),
        Column("refused", _by_refusals(refused_text), 9, right=True),
        Column("share", _by_refusals(lambda r: share_text(r["refused_share"])), 7, right=True),
        Column("identifiers", _plain("identifiers", number), 11, right=True),
        Column("touched", _plain("identifiers_refused", number), 9, right=True),
        Column("share", lambda r: Cell(share_text(r["identifiers_share"])), 7, right=True),
        Column("longest wait", _plain("longest_wait", wait_text), 12, right=True),
        Column("fixed window: beyond", _fixed_most),
    ]
)

AFFECTED = Layout(
    [
        Column("refused", _plain("refused", number), 9, right=True),
        Column("requests", _plain("requests", number), 9, right=True),
        Column("identifier", _plain("identifier")),
    ]
)


def _above(name: str) -> Callable[[Record], Cell]:
    """Return a cell that is highlighted if the value is above the limit."""

    def cell(record: Record) -> Cell:
        limit = record["limit_in_minutes"]
        above = limit is not None and record[name] is not None and record[name] > limit
        return Cell(number(record[name]), BAD if above else "")

    return cell


USAGE = Layout(
    [
        Column("limit", _plain("limit", number), 9, right=True),
        Column("window", _plain("window", duration_exact), 8),
        Column("counted in", lambda r: Cell(duration_exact(60 * r["minutes"])), 10),
        Column("windows", _plain("windows", number), 9, right=True),
        *(Column(f"{share} %", _above(f"p{share}"), 9, right=True) for share in SHARES),
        Column("most", _above("most"), 9, right=True),
    ]
)

BUSIEST = Layout(
    [
        Column("admitted", _plain("admitted", number), 9, right=True),
        Column("refused", _plain("refused", number), 9, right=True),
        Column("identifier", _stored("identifier")),
    ]
)

TRAIL = Layout(
    [
        Column("minute", _plain("minute"), 22),
        Column("admitted", _plain("admitted", number), 9, right=True),
        Column("cost", _plain("cost", number), 9, right=True),
        Column("refused", _plain("refused", number), 9, right=True),
        Column("view", _plain("view", _or_dash)),
    ]
)
