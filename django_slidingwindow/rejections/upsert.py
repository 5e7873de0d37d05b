"""Write rows to the logs, one statement per batch. Counts are added to rows that already exist.

Django's own upsert can only overwrite an existing row, not add to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from django.db import IntegrityError, connections, transaction
from django.db.models import Case, F, Q, Value, When

from ..models import Rejection, Usage

BATCH_ROWS = 500

LogRow: TypeAlias = "Rejection | Usage"

_ON_CONFLICT = ("ON CONFLICT ({minute}, {digest}) DO UPDATE SET", "excluded.{}")
# By vendor: the clause after the rows, and how the clause refers to the new value of a column.
# MySQL 8.0.20 and later prefer an alias to VALUES(), but MariaDB does not support it.
CLAUSES = {
    "sqlite": _ON_CONFLICT,
    "postgresql": _ON_CONFLICT,
    "mysql": ("ON DUPLICATE KEY UPDATE", "VALUES({})"),
}
# Rules that combine the old and the new value of a column. `retry_after` is NULL for "for ever".
_SUM = "{old} + {new}"
_NEWEST = "CASE WHEN {new_last_at} < {old_last_at} THEN {old} ELSE {new} END"
_LONGEST = "CASE WHEN {old} IS NULL OR {old} > {new} THEN {old} ELSE {new} END"
_FIRST = "CASE WHEN {old} < {new} THEN {old} ELSE {new} END"
_LAST = "CASE WHEN {old} > {new} THEN {old} ELSE {new} END"
# The rule of each column. MySQL assigns the columns from left to right, and later rules see the new
# values. So `last_at`, which other rules compare, comes last.
_MERGE: dict[type[LogRow], dict[str, str]] = {
    Rejection: {
        "hits": _SUM,
        "client": _NEWEST,
        "user_agent": _NEWEST,
        "retry_after": _LONGEST,
        "first_at": _FIRST,
        "last_at": _LAST,
    },
    Usage: {"hits": _SUM, "cost": _SUM},
}
_FIELDS = {
    model: [field for field in model._meta.concrete_fields if not field.primary_key]
    for model in _MERGE
}

_Row = TypeVar("_Row")


def batches(rows: Sequence[_Row], model: type[LogRow], using: str) -> Iterator[Sequence[_Row]]:
    """Yield the rows in batches that fit into one statement."""
    max_params = connections[using].features.max_query_params
    size = BATCH_ROWS if max_params is None else min(BATCH_ROWS, max_params // len(_FIELDS[model]))
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def lock_order(row: LogRow) -> Any:
    """Return the sort key of rows. Writers that lock rows in the same order cannot deadlock."""
    return row.minute, row.digest


def write(rows: Sequence[LogRow], using: str) -> None:
    """Add one batch to its table. The rows are of one model, unique, and in lock order."""
    connection = connections[using]
    if connection.vendor not in CLAUSES:
        _write_each(rows, using)
        return
    model = type(rows[0])
    values = [
        field.get_db_prep_save(getattr(row, field.attname), connection)
        for row in rows
        for field in _FIELDS[model]
    ]
    with connection.cursor() as cursor:
        cursor.execute(_statement(connection, model, len(rows)), values)


def _statement(connection: Any, model: type[LogRow], rows: int) -> str:
    """Return the statement that inserts or updates this number of rows."""
    quote = connection.ops.quote_name
    table = quote(model._meta.db_table)
    conflict, new_value = CLAUSES[connection.vendor]
    quoted = {field.attname: quote(field.column) for field in _FIELDS[model]}

    def values(name: str, prefix: str = "") -> dict[str, str]:
        old, new = f"{table}.{quoted[name]}", new_value.format(quoted[name])
        return {f"old{prefix}": old, f"new{prefix}": new}

    last = values("last_at", "_last_at") if "last_at" in quoted else {}
    merge = ", ".join(
        f"{quoted[name]} = {rule.format(**values(name), **last)}"
        for name, rule in _MERGE[model].items()
    )
    row = f"({', '.join(['%s'] * len(quoted))})"
    return (
        # Only names and rules of this module are formatted; values are parameters.
        f"INSERT INTO {table} ({', '.join(quoted.values())}) "  # noqa: S608
        f"VALUES {', '.join([row] * rows)} {conflict.format(**quoted)} {merge}"
    )


def _write_each(rows: Sequence[LogRow], using: str) -> None:
    """Update or insert row by row, for databases that are not in CLAUSES."""
    with transaction.atomic(using=using):
        for row in rows:
            if _update(row, using):
                continue
            try:
                with transaction.atomic(using=using):
                    row.save(using=using, force_insert=True)
            except IntegrityError:
                row.pk = None
                _update(row, using)


def _update(row: LogRow, using: str) -> int:
    """Add a row to the existing one. Return 0 if there is none."""
    model: Any = type(row)
    values = {name: _merged(row, name, rule) for name, rule in _MERGE[model].items()}
    same = model._default_manager.using(using).filter(minute=row.minute, digest=row.digest)
    return int(same.update(**values))


def _merged(row: Any, name: str, rule: str) -> Any:
    """Return the expression that applies a rule to a column of the existing row."""
    new = getattr(row, name)
    if rule == _SUM:
        return F(name) + new
    kept = {
        _NEWEST: Q(last_at__gt=row.last_at),
        _LONGEST: Q(**{name: None}),
        _FIRST: Q(**{f"{name}__lt": new}),
        _LAST: Q(last_at__gt=row.last_at),
    }[rule]
    if rule == _LONGEST and new is not None:
        kept |= Q(**{f"{name}__gt": new})
    return Case(When(kept, then=F(name)), default=Value(new))
