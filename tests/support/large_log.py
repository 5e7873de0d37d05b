"""A log with many rows, and assertions about the queries that read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_slidingwindow.models import Rejection

TABLE = Rejection._meta.db_table
MOST_QUERIES = 12
MINUTES = 30 * 24 * 60

# The values of row n, all in the past 30 days: five profiles, 100,000 identifiers, and a few
# reasons and sources, some of them rare.
VALUES = {
    "minute": "{minute}",
    "digest": "{digest}",
    "profile": "{pick:n % 5|ip_public|tenant_free|tenant_paid|endpoint_expensive|login}",
    "limit": "120",
    "window": "60",
    "algorithm": "'compact'",
    "override": "''",
    "axis": "{pick:n % 5|ip|tenant|tenant|endpoint|ip}",
    "identifier": "{identifier}",
    "scope": "'shared'",
    "view": "'api/orders/'",
    "method": "'GET'",
    "reason": "{pick:n % 100003|deny|identity_error|observe|limit}",
    "source": "{pick:n % 100003|deny|local|shield|redis}",
    "hits": "1 + n % 50",
    "first_at": "{minute}",
    "last_at": "{minute}",
    "retry_after": "12.5",
    "client": "''",
    "user_agent": "''",
}
NUMBERS = {
    "sqlite": "WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers"
    " WHERE n < {last}) SELECT {values} FROM numbers",
    "postgresql": "SELECT {values} FROM generate_series(0, {last}) AS numbers(n)",
    "mysql": "SELECT {values} FROM (SELECT seq AS n FROM seq_0_to_{last}) AS numbers",
}
DIALECTS = {
    "sqlite": {
        "minute": "datetime('{now}', '-' || ({back}) || ' minutes')",
        "digest": "printf('%032x', n)",
        "identifier": "'10.' || (n % 100) || '.' || (n % 1000)",
    },
    "postgresql": {
        "minute": "timestamptz '{now}+00' - ({back}) * interval '1 minute'",
        "digest": "lpad(to_hex(n), 32, '0')::uuid",
        "identifier": "'10.' || (n % 100) || '.' || (n % 1000)",
    },
    "mysql": {
        "minute": "timestamp('{now}') - interval floor({back}) minute",
        "digest": "concat('00000000-0000-5000-8000-', lpad(hex(n), 12, '0'))",
        "identifier": "concat('10.', n % 100, '.', n % 1000)",
    },
}


def picked(text: str) -> str:
    """Return `n % 5|a|b|c` as a CASE expression: a for 0, b for 1, and c for all others."""
    number, *names = text.split("|")
    cases = " ".join(f"WHEN {i} THEN '{name}'" for i, name in enumerate(names[:-1]))
    return f"CASE {number} {cases} ELSE '{names[-1]}' END"


def fill(alias: str, rows: int) -> None:
    """Insert rows with one statement of the database, and create the indexes afterwards."""
    connection = connections[alias]
    now = timezone.now().strftime("%Y-%m-%d %H:%M:00")
    # The oldest first, as in a real log.
    back = f"({rows - 1} - n) / {max(1, rows // MINUTES)}"
    words = {
        name: text.replace("{now}", now).replace("{back}", back)
        for name, text in DIALECTS[connection.vendor].items()
    }
    values = []
    for text in VALUES.values():
        if text.startswith("{pick:"):
            values.append(picked(text[6:-1]))
        else:
            values.append(text.format(**words) if text.startswith("{") else text)
    columns = ", ".join(connection.ops.quote_name(name) for name in VALUES)
    select = NUMBERS[connection.vendor].format(values=", ".join(values), last=rows - 1)
    with connection.schema_editor() as editor:
        for index in Rejection._meta.indexes:
            editor.remove_index(Rejection, index)
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {TABLE} ({columns}) {select}")
    with connection.schema_editor() as editor:
        for index in Rejection._meta.indexes:
            editor.add_index(Rejection, index)
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE TABLE {TABLE}" if connection.vendor == "mysql" else "ANALYZE")


class Watched:
    """The queries that pages run on the log's database."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.connection = connections[alias]

    @contextmanager
    def page(self) -> Iterator[None]:
        """Assert that the block runs few queries, and that each one of the log uses an index."""
        with (
            CaptureQueriesContext(connections["default"]) as others,
            CaptureQueriesContext(self.connection) as queries,
        ):
            yield
        assert len(queries) + len(others) <= MOST_QUERIES
        for query in queries.captured_queries:
            assert "COUNT(" not in query["sql"].upper()
            assert "DISTINCT" not in query["sql"].upper()
            assert self.uses_an_index(query["sql"]), f"{query['sql']}\n{self.plan(query['sql'])}"

    def plan(self, sql: str) -> list[Any]:
        with self.connection.cursor() as cursor:
            cursor.execute(
                f"{'EXPLAIN QUERY PLAN' if self.vendor == 'sqlite' else 'EXPLAIN'} {sql}"
            )
            return list(cursor.fetchall())

    @property
    def vendor(self) -> str:
        return self.connection.vendor

    def uses_an_index(self, sql: str) -> bool:
        plan = self.plan(sql)
        if self.vendor == "sqlite":
            # Reading an index in the order of the list up to its limit is not a table scan.
            return not any(f"SCAN {TABLE}" in line[3] and "USING" not in line[3] for line in plan)
        if self.vendor == "postgresql":
            return not any("Seq Scan" in line[0] for line in plan)
        return all(line[3] != "ALL" for line in plan if line[2] == TABLE)
