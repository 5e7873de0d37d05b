"""`purge` deletes old rows of the log, in batches that are found through an index."""

from __future__ import annotations

import io
import json
import re
import sys
import uuid
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import InterfaceError, connection, connections
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_slidingwindow.models import Rejection, Usage
from django_slidingwindow.rejections import purge as purging
from tests.support.databases import on_every_database
from tests.support.large_log import Watched, fill

pytestmark = pytest.mark.django_db(databases=["default"])


def add(days: float, rows: int = 1) -> None:
    minute = timezone.now() - timedelta(days=days)
    Rejection.objects.bulk_create(
        Rejection(minute=minute, digest=uuid.uuid4(), hits=1, first_at=minute, last_at=minute)
        for _ in range(rows)
    )


def run(*arguments: str) -> str:
    stream = io.StringIO()
    call_command("slidingwindow", "purge", *arguments, stdout=stream)
    return stream.getvalue()


def test_purge_deletes_rows_older_than_log_days():
    add(31, rows=5)
    add(29, rows=2)
    report = json.loads(run("--json"))
    assert (report["rows"], report["deleted"]) == (5, True)
    assert Rejection.objects.count() == 2


def test_days_option_overrides_log_days():
    add(5, rows=3)
    assert json.loads(run("--json"))["rows"] == 0
    assert json.loads(run("--json", "--days", "0.5", "--dry-run"))["rows"] == 3
    with override_settings(SLIDING_WINDOW={"LOG_DAYS": 4}):
        assert json.loads(run("--json"))["rows"] == 3


def test_purge_deletes_nothing_when_log_days_is_longer_than_the_calendar():
    add(500, rows=3)
    with override_settings(SLIDING_WINDOW={"LOG_DAYS": 1_000_000}):
        assert json.loads(run("--json"))["rows"] == 0


@pytest.mark.parametrize("output", ["plain", "rich"])
def test_dry_run_only_counts(output):
    add(40, rows=3)
    printed = run("--dry-run", "--format", output)
    assert "no, dry run" in printed
    assert Rejection.objects.count() == 3


def test_purge_deletes_in_batches_of_the_given_size(django_assert_num_queries):
    for day in (40, 50, 60):
        add(day, rows=5)
    reported: list[int] = []
    # Four batches, each a SELECT and a DELETE, and a last SELECT of each log that finds nothing.
    with django_assert_num_queries(10):
        assert purging.purge(purging.cutoff(), batch=4, progress=reported.append) == 15
    assert reported == [4, 8, 12, 15]


def test_every_batch_uses_the_same_query():
    for day in range(40, 60):
        add(day)
    with CaptureQueriesContext(connection) as captured:
        assert purging.purge(purging.cutoff(), batch=1) == 20
    first, *others = (
        query["sql"]
        for query in captured
        if query["sql"].startswith("SELECT") and Rejection._meta.db_table in query["sql"]
    )
    assert len(others) == 20
    # One more condition for each batch would make a long purge slower and slower.
    assert {sql.count('"minute" >= ') for sql in others} == {1}
    assert '"minute" >= ' not in first


def test_batch_is_limited_by_max_query_params(monkeypatch):
    add(40, rows=7)
    monkeypatch.setattr(type(connection.features), "max_query_params", 3)
    reported: list[int] = []
    assert purging.purge(purging.cutoff(), progress=reported.append) == 7
    assert reported == [3, 6, 7]


def test_batch_is_not_limited_when_max_query_params_is_none(monkeypatch):
    add(40, rows=7)
    monkeypatch.setattr(type(connection.features), "max_query_params", None)
    assert purging.purge(purging.cutoff(), batch=5) == 7


def test_old_rows_uses_an_index_without_sorting():
    plan = purging.old_rows("default", timezone.now())[:10].explain()
    assert "slidingwindow_minute" in plan or "slidingwindow_rejection" in plan
    assert "SCAN" not in plan
    assert "TEMP B-TREE" not in plan


@on_every_database
def test_purge_uses_the_index_on_every_database(log_database: str) -> None:
    now = timezone.now()
    log = Rejection.objects.using(log_database)
    log.bulk_create(
        (
            Rejection(minute=minute, digest=uuid.uuid4(), hits=1, first_at=now, last_at=now)
            for minute in (now - timedelta(minutes=5 * number) for number in range(4_000))
        ),
        batch_size=1_000,
    )
    with connections[log_database].cursor() as cursor:
        table = connections[log_database].ops.quote_name(Rejection._meta.db_table)
        cursor.execute(f"ANALYZE {'TABLE ' if 'my' in cursor.db.vendor else ''}{table}")
    before = now - timedelta(minutes=5 * 1_999, seconds=1)
    plan = purging.old_rows(log_database, before)[:100].explain()
    assert re.search("slidingwindow_(minute|rejection)", plan), plan
    reported: list[int] = []
    assert purging.purge(before, batch=800, progress=reported.append) == 2_000
    assert reported == [800, 1_600, 2_000]
    assert log.count() == 2_000


@on_every_database
def test_purge_deletes_the_usage_log_through_its_index(log_database: str) -> None:
    now = timezone.now()
    log = Usage.objects.using(log_database)
    log.bulk_create(
        (
            Usage(minute=minute, digest=uuid.uuid4(), hits=1, cost=1)
            for minute in (now - timedelta(minutes=5 * number) for number in range(4_000))
        ),
        batch_size=1_000,
    )
    with connections[log_database].cursor() as cursor:
        table = connections[log_database].ops.quote_name(Usage._meta.db_table)
        cursor.execute(f"ANALYZE {'TABLE ' if 'my' in cursor.db.vendor else ''}{table}")
    before = now - timedelta(minutes=5 * 2_999, seconds=1)
    plan = purging.old_rows(log_database, before, Usage)[:100].explain()
    assert "slidingwindow_usage" in plan, plan
    assert purging.count_old(before) == 1_000
    assert purging.purge(before, batch=400) == 1_000
    assert log.count() == 3_000


@on_every_database
def test_purge_neither_scans_nor_sorts_when_the_log_is_large(log_database: str) -> None:
    fill(log_database, 50_000)
    before = Rejection.objects.order_by("minute")[6_250:].values_list("minute", flat=True)[0]
    watched = Watched(log_database)
    with CaptureQueriesContext(connections[log_database]) as captured:
        assert purging.purge(before, batch=2_500) >= 5_000
    statements = [
        query["sql"]
        for query in captured
        if query["sql"][:6] in ("SELECT", "DELETE") and Rejection._meta.db_table in query["sql"]
    ]
    assert len(statements) >= 7  # three batches, and a last SELECT
    for sql in statements:
        plan = str(watched.plan(sql))
        assert watched.uses_an_index(sql), plan
        assert not re.search("Sort|filesort|TEMP B-TREE", plan), plan


def test_purge_draws_progress_on_a_terminal(monkeypatch):
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    add(40, rows=3)
    monkeypatch.setattr(sys, "stderr", Screen())
    run()
    assert "3 of about 3 rows" in sys.stderr.getvalue()


def test_purge_exits_3_when_the_database_fails():
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {Rejection._meta.db_table} RENAME TO elsewhere")
    with pytest.raises(CommandError, match="The database failed: ") as caught:
        run()
    assert caught.value.returncode == 3


def test_purge_exits_3_when_the_connection_is_lost(monkeypatch):
    def fail(*args, **options):
        raise InterfaceError("connection already closed")

    monkeypatch.setattr(purging, "purge", fail)
    with pytest.raises(CommandError, match="The database failed: connection already") as caught:
        run()
    assert caught.value.returncode == 3
