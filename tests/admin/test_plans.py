"""The admin with a large log: few queries, each uses an index, and none counts rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from django_slidingwindow.models import Rejection

TABLE = Rejection._meta.db_table
# The more rows there are, the sooner a planner chooses an index.
MANY = {"postgresql": 200_000, "sqlite": 40_000, "mariadb": 40_000}
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


def queries() -> dict[str, str]:
    now = timezone.localtime()
    yesterday = (now - timedelta(days=1)).date().isoformat()
    return {
        "all": "",
        "a profile": "?profile=login",
        "an axis": "?axis=tenant",
        "a common reason": "?reason=limit",
        "a rare reason": "?reason=deny",
        "a source without rows": "?source=allow",
        "a rare source": "?source=local",
        "the past day": "?when=24h",
        "the past week": "?when=7d&profile=login",
        "a day": f"?when={yesterday}",
        "an hour": f"?when={yesterday}T13",
        "an identifier": "?q=10.7.507",
        "a prefix": "?q=10.99.9*",
        "an identifier without rows": "?q=nobody",
        "all at once": "?q=10.7.507&profile=tenant_paid&axis=tenant&reason=limit&when=7d",
        "an old page": f"?before={round((now - timedelta(days=20)).timestamp())}000000.{10**9}",
        "an order without an index": "?o=-8.1",
    }


@pytest.mark.parametrize(
    ("log_database", "rows"),
    MANY.items(),
    indirect=["log_database"],
)
@pytest.mark.django_db
def test_pages_use_indexes_when_the_log_is_large(
    admin_user: User, client: Client, log_database: str, rows: int
) -> None:
    fill(log_database, rows)
    client.force_login(admin_user)
    address = reverse("admin:django_slidingwindow_rejection_changelist")
    watched = Watched(log_database)
    for name, query in queries().items():
        with watched.page():
            response = client.get(address + query)
        assert response.status_code == 200, name
    with watched.page():
        response = client.get(reverse("admin:django_slidingwindow_rejection_profiles"))
    assert response.status_code == 200
    key = "?key=throttle:tenant:{10.7.507}:shared:c60"
    with watched.page():
        response = client.get(reverse("admin:django_slidingwindow_rejection_key") + key)
    assert response.status_code == 200
    with watched.page():
        lines = client.get(reverse("admin:django_slidingwindow_rejection_export") + "?q=10.7.507")
        assert lines.getvalue().count(b"\n") == rows // 1000 + 1
