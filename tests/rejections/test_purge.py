"""The log ends at an age, in batches that an index finds."""

from __future__ import annotations

import io
import json
import re
import sys
import uuid
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_slidingwindow.models import Rejection
from django_slidingwindow.rejections import purge as purging
from tests.admin.test_plans import Watched, fill
from tests.support.databases import on_every_database

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


def test_rows_older_than_log_days_are_deleted():
    add(31, rows=5)
    add(29, rows=2)
    report = json.loads(run("--json"))
    assert (report["rows"], report["deleted"]) == (5, True)
    assert Rejection.objects.count() == 2


def test_log_days_and_days_say_the_age():
    add(5, rows=3)
    assert json.loads(run("--json"))["rows"] == 0
    assert json.loads(run("--json", "--days", "0.5", "--dry-run"))["rows"] == 3
    with override_settings(SLIDING_WINDOW={"LOG_DAYS": 4}):
        assert json.loads(run("--json"))["rows"] == 3


@pytest.mark.parametrize("output", ["plain", "rich"])
def test_dry_run_only_counts(output):
    add(40, rows=3)
    printed = run("--dry-run", "--format", output)
    assert "no, dry run" in printed
    assert Rejection.objects.count() == 3


def test_batches_are_of_the_size_that_was_asked_for(django_assert_num_queries):
    for day in (40, 50, 60):
        add(day, rows=5)
    told: list[int] = []
    # Four batches, and a last look that finds nothing.
    with django_assert_num_queries(9):
        assert purging.purge(purging.cutoff(), batch=4, progress=told.append) == 15
    assert told == [4, 8, 12, 15]


def test_every_batch_is_asked_for_in_the_same_words():
    for day in range(40, 60):
        add(day)
    with CaptureQueriesContext(connection) as captured:
        assert purging.purge(purging.cutoff(), batch=1) == 20
    first, *others = (query["sql"] for query in captured if query["sql"].startswith("SELECT"))
    assert len(others) == 20
    # A condition more for each batch would make a long purge slower and slower.
    assert {sql.count('"minute" >= ') for sql in others} == {1}
    assert '"minute" >= ' not in first


def test_batch_is_no_larger_than_a_statement_may_be(monkeypatch):
    add(40, rows=7)
    monkeypatch.setattr(type(connection.features), "max_query_params", 3)
    told: list[int] = []
    assert purging.purge(purging.cutoff(), progress=told.append) == 7
    assert told == [3, 6, 7]


def test_database_without_a_bound_on_parameters_takes_the_batch(monkeypatch):
    add(40, rows=7)
    monkeypatch.setattr(type(connection.features), "max_query_params", None)
    assert purging.purge(purging.cutoff(), batch=5) == 7


def test_oldest_are_found_by_the_index_without_sorting():
    plan = purging.old_rows("default", timezone.now())[:10].explain()
    assert "slidingwindow_minute" in plan or "slidingwindow_rejection" in plan
    assert "SCAN" not in plan
    assert "TEMP B-TREE" not in plan


@on_every_database
def test_every_database_deletes_batch_by_batch_through_the_index(log_database: str) -> None:
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
    told: list[int] = []
    assert purging.purge(before, batch=800, progress=told.append) == 2_000
    assert told == [800, 1_600, 2_000]
    assert log.count() == 2_000


@on_every_database
def test_no_batch_scans_the_log_or_sorts_it(log_database: str) -> None:
    fill(log_database, 50_000)
    before = Rejection.objects.order_by("minute")[6_250:].values_list("minute", flat=True)[0]
    watched = Watched(log_database)
    with CaptureQueriesContext(connections[log_database]) as captured:
        assert purging.purge(before, batch=2_500) >= 5_000
    statements = [query["sql"] for query in captured if query["sql"][:6] in ("SELECT", "DELETE")]
    assert len(statements) >= 7  # three batches, and a last look
    for sql in statements:
        plan = str(watched.plan(sql))
        assert watched.uses_an_index(sql), plan
        assert not re.search("Sort|filesort|TEMP B-TREE", plan), plan


def test_progress_is_drawn_on_a_terminal(monkeypatch):
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    add(40, rows=3)
    monkeypatch.setattr(sys, "stderr", Screen())
    run()
    assert "3 of about 3 rows" in sys.stderr.getvalue()


def test_database_that_fails_is_exit_code_3():
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {Rejection._meta.db_table} RENAME TO elsewhere")
    with pytest.raises(CommandError, match="The database fails: ") as caught:
        run()
    assert caught.value.returncode == 3
