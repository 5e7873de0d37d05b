"""`upsert.write` adds rows to the existing ones in the same way on every database."""

from __future__ import annotations

import contextlib
import threading
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.test.utils import CaptureQueriesContext

from django_slidingwindow.models import Rejection
from django_slidingwindow.rejections import upsert
from tests.support.databases import on_every_database

MINUTE = datetime(2026, 11, 16, 12, 34, tzinfo=timezone.utc)


def row(number: int = 1, **values: Any) -> Rejection:
    fields: dict[str, Any] = {
        "minute": MINUTE,
        "digest": uuid.UUID(int=number),
        "profile": "login",
        "limit": 5,
        "window": 60.0,
        "algorithm": "compact",
        "axis": "ip",
        "identifier": f"203.0.113.{number}",
        "scope": "login",
        "view": "login/",
        "method": "POST",
        "reason": "limit",
        "source": "redis",
        "hits": 1,
        "first_at": MINUTE + timedelta(seconds=10),
        "last_at": MINUTE + timedelta(seconds=20),
        "retry_after": 30.0,
    }
    return Rejection(**{**fields, **values})


@pytest.fixture(params=["one statement", "row by row"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write in one statement, and row by row as for unknown databases; results must be equal."""
    if request.param == "row by row":
        monkeypatch.setattr(upsert, "CLAUSES", {})
    return str(request.param)


@on_every_database
@pytest.mark.usefixtures("way")
def test_write_adds_hits_and_keeps_extremes(log_database: str) -> None:
    later = {"first_at": MINUTE + timedelta(seconds=5), "last_at": MINUTE + timedelta(seconds=25)}
    upsert.write([row(hits=3, client="192.0.2.1", user_agent="old")], log_database)
    upsert.write(
        [row(hits=4, retry_after=20.5, client="192.0.2.2", user_agent="new", **later)], log_database
    )
    found = Rejection.objects.get()
    assert found.hits == 7
    assert (found.first_at, found.last_at) == (later["first_at"], later["last_at"])
    assert found.retry_after == 30.0
    assert (found.client, found.user_agent) == ("192.0.2.2", "new")


@on_every_database
@pytest.mark.usefixtures("way")
def test_write_keeps_client_and_times_when_the_new_row_is_older(log_database: str) -> None:
    older = {"first_at": MINUTE + timedelta(seconds=12), "last_at": MINUTE + timedelta(seconds=15)}
    upsert.write([row(client="192.0.2.1", user_agent="newest")], log_database)
    upsert.write([row(client="192.0.2.2", retry_after=45.0, **older)], log_database)
    found = Rejection.objects.get()
    assert (found.client, found.user_agent) == ("192.0.2.1", "newest")
    assert found.first_at == MINUTE + timedelta(seconds=10)
    assert found.last_at == MINUTE + timedelta(seconds=20)
    assert found.retry_after == 45.0


@on_every_database
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("waits", [(None, 3.0), (3.0, None), (None, None)])
def test_write_treats_null_as_the_longest_retry_after(log_database: str, waits: Any) -> None:
    for retry_after in waits:
        upsert.write([row(retry_after=retry_after)], log_database)
    assert Rejection.objects.get().retry_after is None


@on_every_database
@pytest.mark.usefixtures("way")
def test_write_mixes_new_and_existing_rows(log_database: str) -> None:
    upsert.write([row(2)], log_database)
    upsert.write([row(1), row(2), row(3)], log_database)
    upsert.write([row(1, minute=MINUTE + timedelta(minutes=1))], log_database)
    found = {(r.minute.minute, r.digest.int): r.hits for r in Rejection.objects.all()}
    assert found == {(34, 1): 1, (34, 2): 2, (34, 3): 1, (35, 1): 1}


@on_every_database
def test_write_uses_one_statement_per_batch(log_database: str) -> None:
    rows = [row(number) for number in range(1, 1201)]
    written = 0
    with CaptureQueriesContext(connections[log_database]) as queries:
        for batch in upsert.batches(rows, Rejection, log_database):
            upsert.write(batch, log_database)
            written += 1
    assert len(queries) == written
    assert Rejection.objects.count() == 1200


def test_batches_fit_max_query_params(monkeypatch: pytest.MonkeyPatch) -> None:
    features = connections["default"].features
    assert len(Rejection._meta.concrete_fields) == 21
    monkeypatch.setattr(type(features), "max_query_params", 999)
    assert [len(b) for b in upsert.batches(range(100), Rejection, "default")] == [49, 49, 2]
    monkeypatch.setattr(type(features), "max_query_params", None)
    assert [len(b) for b in upsert.batches(range(1100), Rejection, "default")] == [500, 500, 100]


@on_every_database
@pytest.mark.usefixtures("way")
def test_concurrent_writers_lose_no_hits(log_database: str) -> None:
    rows = sorted((row(number) for number in range(1, 21)), key=upsert.lock_order)

    def writer() -> None:
        done = 0
        while done < 4:
            # MariaDB also locks gaps, and may report a deadlock where there is none.
            with contextlib.suppress(OperationalError):
                upsert.write([row(r.digest.int) for r in rows], log_database)
                done += 1
        connections.close_all()

    threads = [threading.Thread(target=writer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(Rejection.objects.values_list("hits", flat=True)) == {16}


@on_every_database
def test_write_updates_a_row_inserted_concurrently(
    log_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upsert, "CLAUSES", {})
    update = upsert._update
    answers = []

    def too_early(*args: Any) -> int:
        answers.append(update(*args))
        if len(answers) == 1:
            row().save(using=log_database)  # by another process, just now
        return answers[-1]

    monkeypatch.setattr(upsert, "_update", too_early)
    upsert.write([row()], log_database)
    assert answers == [0, 1]
    assert Rejection.objects.get().hits == 2


@on_every_database
def test_columns_store_the_longest_text_of_any_script(log_database: str) -> None:
    texts = {
        field.name: "漢🎈"[number % 2] * field.max_length
        for number, field in enumerate(Rejection._meta.concrete_fields)
        if field.max_length is not None and field.get_internal_type() == "CharField"
    }
    upsert.write([row(limit=100_000_000, hits=2**40, **texts)], log_database)
    found = Rejection.objects.get()
    assert {name: getattr(found, name) for name in texts} == texts
    assert found.hits == 2**40
