"""Write rows to the log, one statement per batch, and add them to the rows that exist.

Django's own upsert can only overwrite a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from django.db import IntegrityError, connections, transaction
from django.db.models import Case, F, Q, Value, When

from ..models import Rejection

BATCH_ROWS = 500

_ON_CONFLICT = ("ON CONFLICT ({minute}, {digest}) DO UPDATE SET", "excluded.{}")
# The clause after the rows, and how it refers to the new value of a column.
# MySQL 8.0.20 and later prefer an alias to VALUES(), but MariaDB does not support it.
CLAUSES = {
    "sqlite": _ON_CONFLICT,
    "postgresql": _ON_CONFLICT,
    "mysql": ("ON DUPLICATE KEY UPDATE", "VALUES({})"),
}
# MySQL applies these from left to right, and an assigned column then has its new value.
# So `last_at`, which other rules compare, comes last.
_MERGE = {
    "hits": "{old} + {new}",
    "client": "CASE WHEN {new_last_at} < {old_last_at} THEN {old} ELSE {new} END",
    "user_agent": "CASE WHEN {new_last_at} < {old_last_at} THEN {old} ELSE {new} END",
    "retry_after": "CASE WHEN {old} IS NULL OR {old} > {new} THEN {old} ELSE {new} END",
    "first_at": "CASE WHEN {old} < {new} THEN {old} ELSE {new} END",
    "last_at": "CASE WHEN {old} > {new} THEN {old} ELSE {new} END",
}
_FIELDS = [field for field in Rejection._meta.concrete_fields if not field.primary_key]

_Row = TypeVar("_Row")


def batches(rows: Sequence[_Row], using: str) -> Iterator[Sequence[_Row]]:
    """Split rows into batches that one statement can write."""
    most = connections[using].features.max_query_params
    size = BATCH_ROWS if most is None else min(BATCH_ROWS, most // len(_FIELDS))
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def lock_order(row: Rejection) -> Any:
    """Return the sort key that prevents deadlocks between writers."""
    return row.minute, row.digest


def write(rows: Sequence[Rejection], using: str) -> None:
    """Add one batch to the table. Rows are unique and in lock order."""
    connection = connections[using]
    if connection.vendor not in CLAUSES:
        _write_each(rows, using)
        return
    values = [
        field.get_db_prep_save(getattr(row, field.attname), connection)
        for row in rows
        for field in _FIELDS
    ]
    with connection.cursor() as cursor:
        cursor.execute(_statement(connection, len(rows)), values)


def _statement(connection: Any, rows: int) -> str:
    quote = connection.ops.quote_name
    table = quote(Rejection._meta.db_table)
    conflict, new_value = CLAUSES[connection.vendor]
    quoted = {field.attname: quote(field.column) for field in _FIELDS}

    def old(name: str) -> str:
        return f"{table}.{quoted[name]}"

    def new(name: str) -> str:
        return new_value.format(quoted[name])

    last = {"old_last_at": old("last_at"), "new_last_at": new("last_at")}
    merge = ", ".join(
        f"{quoted[name]} = {rule.format(old=old(name), new=new(name), **last)}"
        for name, rule in _MERGE.items()
    )
    row = f"({', '.join(['%s'] * len(_FIELDS))})"
    return (
        # Only names and rules of this module are formatted; values are parameters.
        f"INSERT INTO {table} ({', '.join(quoted.values())}) "  # noqa: S608
        f"VALUES {', '.join([row] * rows)} {conflict.format(**quoted)} {merge}"
    )


def _write_each(rows: Sequence[Rejection], using: str) -> None:
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


def _update(row: Rejection, using: str) -> int:
    def unless(condition: Q, name: str) -> Case:
        return Case(When(condition, then=F(name)), default=Value(getattr(row, name)))

    newer = Q(last_at__gt=row.last_at)
    longer = Q(retry_after=None)
    if row.retry_after is not None:
        longer |= Q(retry_after__gt=row.retry_after)
    return (
        Rejection.objects.using(using)
        .filter(minute=row.minute, digest=row.digest)
        .update(
            hits=F("hits") + row.hits,
            client=unless(newer, "client"),
            user_agent=unless(newer, "user_agent"),
            retry_after=unless(longer, "retry_after"),
            first_at=unless(Q(first_at__lt=row.first_at), "first_at"),
            last_at=unless(newer, "last_at"),
        )
    )
