"""The columns of tables for keys, profiles and findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...durations import duration_exact, rate_exact
from ...inspection.profiles import column_keys, remarks
from ...profile_keys import ProfileKey
from .outputs import BAD, DIM, GOOD, WARN, Cell, Column, Layout, Record
from .text import as_key, bar, harmless, number, percent, size, wait

_NEAR = 0.8
_LEVELS = {"ok": GOOD, "info": "", "warning": WARN, "error": BAD}


def _plain(name: str, render: Callable[[Any], str] = harmless) -> Callable[[Record], Cell]:
    return lambda record: Cell(render(record[name]))


def _or_dash(value: Any) -> str:
    return "-" if value is None else harmless(value)


def _by_use(render: Callable[[float | None], str]) -> Callable[[Record], Cell]:
    def cell(record: Record) -> Cell:
        tone = BAD if record["blocked"] else WARN if (record["use"] or 0) >= _NEAR else GOOD
        return Cell(render(record["use"]), tone)

    return cell


def _retry(record: Record) -> Cell:
    if record["observed"] and record["remaining"] == 0:
        return Cell("observed", WARN)
    if not record["blocked"]:
        return Cell("-", DIM)
    return Cell(wait(record["retry_after"]), BAD)


KEYS = Layout(
    [
        Column("use", _by_use(percent), 4, right=True),
        Column("", _by_use(bar), graphic=True),
        Column("hits", _plain("hits", number), 9, right=True),
        Column("limit", _plain("limit", number), 9, right=True),
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
        Column("hits", _plain("hits", number)),
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
    if record["dynamic"]:
        return Cell("by identifier")
    rates = (f"{rate_exact(p['limit'], p['window'])} {p['algorithm']}" for p in record["policies"])
    return Cell(", ".join(rates))


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

PURGE = Layout(
    [
        Column("older than", _plain("before")),
        Column("rows", _plain("rows", number)),
        Column("deleted", lambda r: Cell("yes") if r["deleted"] else Cell("no, dry run", DIM)),
    ]
)
