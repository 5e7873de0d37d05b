"""The recorder writes every refusal to the log in the background, and counts what is lost."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import DataError, IntegrityError, OperationalError, connections, transaction
from django.db.models import Sum
from django.test import override_settings

from django_slidingwindow import apps, decisions, signals
from django_slidingwindow.conf import conf
from django_slidingwindow.core import background
from django_slidingwindow.models import Rejection, Usage
from django_slidingwindow.rejections import recorder as module
from django_slidingwindow.rejections import testcase, upsert
from django_slidingwindow.rejections.buffer import LogBuffer
from django_slidingwindow.rejections.recorder import Recorder
from django_slidingwindow.rejections.rows import OVERFLOW, Tally, refusals
from django_slidingwindow.rejections.writer import try_to_write
from tests.support.databases import ALIAS, on_every_database
from tests.support.rejection_factories import refusal, request, verdict
from tests.support.servers.redis import wait_until

on_sqlite = pytest.mark.parametrize("log_database", ["sqlite"], indirect=True)


@pytest.fixture
def make() -> Iterator[Callable[..., Recorder]]:
    """Return a function that makes recorders with a short interval. Stop them at the end."""
    made: list[Recorder] = []

    def make(**options: Any) -> Recorder:
        made.append(Recorder(**{"interval": 0.01, "longest_pause": 0.05, **options}))
        return made[-1]

    yield make
    for recorder in made:
        recorder.stop()


def hits() -> int:
    return Rejection.objects.aggregate(total=Sum("hits"))["total"] or 0


def thread_of(recorder: Recorder) -> Any:
    return recorder._background._thread


def refuse(recorder: Recorder, count: int = 1, identifiers: int = 1) -> None:
    http_request = request()
    for i in range(count):
        recorder.record(http_request, refusal(verdict(f"10.0.0.{i % identifiers}")))


@on_every_database
@pytest.mark.usefixtures("log_database")
def test_thread_writes_the_sum_of_refusals(make: Callable[..., Recorder]) -> None:
    recorder = make()
    refuse(recorder, 500, identifiers=7)
    wait_until(lambda: recorder.stats().written == 500, "all is written")
    assert hits() == 500
    assert Rejection.objects.count() in (7, 14)  # a minute may have ended in between
    refuse(recorder, 10, identifiers=7)
    wait_until(lambda: hits() == 510, "the rest is written")
    assert recorder.stats().recorded == 510
    assert recorder.stats().waiting == recorder.stats().failed == recorder.stats().dropped == 0


def test_recorder_starts_no_thread_before_the_first_refusal(make: Callable[..., Recorder]) -> None:
    before = threading.active_count()
    recorder = make()
    assert threading.active_count() == before
    assert recorder.stats() == module.Stats(
        recorded=0,
        written=0,
        dropped=0,
        unwritten=0,
        waiting=0,
        batches=0,
        failed=0,
        down=False,
        running=False,
        deaths=0,
        error="",
    )


@pytest.mark.django_db(transaction=True)
def test_record_runs_no_query(
    make: Callable[..., Recorder], django_assert_num_queries: Any
) -> None:
    recorder = make(interval=60)
    with django_assert_num_queries(0):
        refuse(recorder, 40, identifiers=40)
    assert recorder.stats().waiting >= 40
    with django_assert_num_queries(1):
        assert recorder.flush()
    assert hits() == 40


@pytest.mark.django_db
def test_flush_writes_refusals_when_in_a_test_case(
    make: Callable[..., Recorder],
) -> None:
    recorder = make()
    refuse(recorder, 3)
    assert not recorder.stats().running
    assert recorder.flush()
    assert hits() == 3


@pytest.mark.django_db
def test_recorder_forgets_refusals_of_the_previous_test(make: Callable[..., Recorder]) -> None:
    recorder = make()
    for _ in range(2):
        with transaction.atomic() as _nothing:
            block = connections["default"].atomic_blocks[-1]
            block._from_testcase = True  # as each TestCase marks its own
            refuse(recorder, 3)
    refuse(recorder, 2)
    recorder.flush()
    assert hits() == 2


@on_sqlite
def test_flush_drops_refusals_when_the_test_database_is_gone(
    make: Callable[..., Recorder], log_database: str
) -> None:
    recorder = make(interval=60)
    refuse(recorder, 3)
    test_database = connections.settings[ALIAS]["NAME"]
    connections.settings[ALIAS]["NAME"] = "the real one"
    assert recorder.flush()
    connections.settings[ALIAS]["NAME"] = test_database
    assert recorder.stats().dropped == 3
    assert hits() == 0


@on_sqlite
@pytest.mark.usefixtures("log_database")
def test_thread_writes_without_flush_when_not_testing(
    make: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "testing", lambda: False)
    recorder = make()
    refuse(recorder, 3)
    wait_until(lambda: hits() == 3, "it is written")


def test_testing_detects_the_test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert testcase.testing()
    monkeypatch.delattr("django.core.mail.outbox")
    assert not testcase.testing()


@on_sqlite
@pytest.mark.usefixtures("log_database")
def test_thread_writes_early_when_the_buffer_is_half_full(make: Callable[..., Recorder]) -> None:
    recorder = make(interval=600, max_rows=20)
    refuse(recorder, 30, identifiers=10)
    wait_until(lambda: recorder.stats().written >= 10, "it is written")


@on_every_database
def test_record_works_when_the_database_is_down(
    make: Callable[..., Recorder], log_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = connections[log_database].ops.quote_name(Rejection._meta.db_table)
    with connections[log_database].cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO elsewhere")
    received: list[dict[str, Any]] = []

    def listener(**kwargs: Any) -> None:
        received.append(kwargs)

    signals.log_written.connect(listener)
    recorder = make(max_rows=50)
    refuse(recorder, 200, identifiers=100)
    wait_until(lambda: recorder.stats().failed >= 3, "it is tried again")
    stats = recorder.stats()
    assert stats.down
    assert stats.error
    assert (stats.recorded, stats.written) == (200, 0)
    assert stats.unwritten == 200 - stats.dropped
    assert stats.waiting <= 50
    assert stats.dropped >= 100
    with connections[log_database].cursor() as cursor:
        cursor.execute(f"ALTER TABLE elsewhere RENAME TO {table}")
    wait_until(lambda: not recorder.stats().down, "it is written again")
    assert hits() == recorder.stats().written == 200 - recorder.stats().dropped
    signals.log_written.disconnect(listener)
    assert received[0]["error"] is not None
    assert received[-1]["error"] is None
    assert sum(one["hits"] for one in received if one["error"] is None) == hits()
    assert sum(one["dropped"] for one in received) == recorder.stats().dropped
    lines = [r.getMessage() for r in caplog.records if r.name == "django_slidingwindow.log"]
    assert len(lines) == 2
    assert lines[0].startswith("cannot write the rejection log (")
    assert f"{recorder.stats().dropped} refusals were lost" in lines[1]


@on_sqlite
def test_thread_retries_when_the_database_is_locked(
    make: Callable[..., Recorder], log_database: str
) -> None:
    connections.settings[ALIAS]["OPTIONS"]["timeout"] = 0.01
    recorder = make()
    with transaction.atomic(using=log_database):
        Rejection.objects.update(hits=0)
        refuse(recorder, 40, identifiers=4)
        wait_until(lambda: recorder.stats().failed >= 2, "it is tried again")
    wait_until(lambda: recorder.stats().written == 40, "it is written")
    assert hits() == 40


@on_sqlite
@pytest.mark.usefixtures("log_database")
@pytest.mark.parametrize(
    "error",
    [
        DataError("value 'acme' is out of range"),
        IntegrityError("acme"),
        OperationalError(1366, "Incorrect string value 'acme'"),  # as MySQL reports it
    ],
)
def test_writer_drops_only_the_row_that_the_database_rejects(
    error: Exception,
    make: Callable[..., Recorder],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write = upsert.write

    def refusing(rows: Any, using: str) -> None:
        if any(row.identifier == "10.0.0.3" for row in rows):
            raise error
        write(rows, using)

    recorder = make(interval=60)
    refuse(recorder, 50, identifiers=5)
    monkeypatch.setattr(upsert, "write", refusing)
    assert recorder.flush()
    assert (recorder.stats().dropped, recorder.stats().waiting) == (10, 0)
    assert hits() == recorder.stats().written == 40
    lines = [r.getMessage() for r in caplog.records if r.name == "django_slidingwindow.log"]
    assert lines == ["the database rejected rows of the rejection log: 10 refusals are lost"]


@on_sqlite
@pytest.mark.usefixtures("log_database")
def test_thread_survives_an_unexpected_error(
    make: Callable[..., Recorder],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = make()
    with monkeypatch.context() as patch:
        patch.setattr(upsert, "lock_order", lambda row: 1 / 0)
        refuse(recorder, 5)
        wait_until(lambda: recorder.stats().dropped == 5, "it is given up")
        wait_until(lambda: "could not write" in caplog.text, "it is logged")
    refuse(recorder, 2)
    wait_until(lambda: hits() == 2, "it is written")


def failing(errors: list[BaseException], once: bool = False) -> Callable[[], None]:
    """Return a function that closes all connections, and raises an error while there is one."""
    close_all = connections.close_all

    def close() -> None:
        close_all()
        if errors:
            raise errors.pop() if once else errors[0]

    return close


@on_sqlite
@pytest.mark.usefixtures("log_database")
def test_thread_survives_when_a_connection_cannot_be_closed(
    make: Callable[..., Recorder],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors: list[BaseException] = [OSError("bad descriptor")]
    monkeypatch.setattr(connections, "close_all", failing(errors))
    recorder = make()
    refuse(recorder, 5)
    wait_until(lambda: recorder.stats().error == "OSError: bad descriptor", "it is noted")
    # On a busy machine, the thread may have begun before all were refused.
    wait_until(lambda: recorder.stats().written == 5, "all are written")
    errors.clear()
    refuse(recorder, 2)
    wait_until(lambda: hits() == 7, "later refusals are written")
    wait_until(lambda: not recorder.stats().error, "it is over")
    assert recorder.stats().running
    assert recorder.stats().deaths == recorder.stats().unwritten == 0
    lines = [r.getMessage() for r in caplog.records if r.name == "django_slidingwindow.log"]
    assert lines == ["could not write the rejection log and the usage log"]


@on_sqlite
@pytest.mark.usefixtures("log_database")
def test_recorder_replaces_and_counts_a_dead_thread(
    make: Callable[..., Recorder],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(connections, "close_all", failing([SystemExit("enough")], once=True))
    recorder = make()
    refuse(recorder, 5)
    wait_until(lambda: recorder.stats().deaths == 1, "it died")
    wait_until(lambda: recorder.stats().running, "another one runs")
    refuse(recorder, 2)
    wait_until(lambda: recorder.stats().unwritten == 0, "later refusals are written")
    assert hits() == 7
    assert "the thread django_slidingwindow.log died" in caplog.text


@on_sqlite
@pytest.mark.usefixtures("log_database")
def test_new_thread_writes_waiting_rows_when_the_old_one_died_writing(
    make: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = make()
    write, refused = upsert.write, []

    def dying(rows: Any, using: str) -> None:
        if not refused:
            refused.append(len(rows))
            refuse(recorder, 3)
            raise SystemExit
        write(rows, using)

    monkeypatch.setattr(upsert, "write", dying)
    refuse(recorder, 5)
    wait_until(lambda: recorder.stats().unwritten == 0, "without another refusal it is written")
    stats = recorder.stats()
    assert (stats.recorded, stats.written, stats.dropped, hits()) == (8, 3, 5, 3)


@on_sqlite
@pytest.mark.usefixtures("log_database")
def test_next_refusal_starts_the_thread_when_the_first_start_failed(
    make: Callable[..., Recorder],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    recorder = make()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        refuse(recorder, 5)
    stats = recorder.stats()
    assert (stats.running, stats.unwritten) == (False, 5)
    assert stats.error == "RuntimeError: can't start new thread"
    lines = [r.getMessage() for r in caplog.records if r.name == "django_slidingwindow.log"]
    assert lines == ["could not start the thread django_slidingwindow.log"]
    refuse(recorder, 1)
    wait_until(lambda: hits() == 6, "all is written")
    wait_until(lambda: not recorder.stats().error, "it is over")


@on_sqlite
@pytest.mark.usefixtures("log_database")
@pytest.mark.parametrize("down", [False, True])
def test_stop_writes_or_drops_waiting_rows_when_the_thread_is_dead(
    make: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch, down: bool
) -> None:
    recorder = make(interval=600)
    refuse(recorder, 5)
    first = thread_of(recorder)

    def dies() -> None:
        raise SystemExit

    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(recorder, "_write", dies)
        patch.setattr(threading.Thread, "start", full)
        recorder._background.wake()
        first.join(60)
    assert recorder.stats().deaths == 1
    assert recorder.stats().unwritten == 5
    if down:
        monkeypatch.setattr(upsert, "write", lambda rows, using: 1 / 0)
    recorder.stop()
    stats = recorder.stats()
    assert hits() == stats.written == (0 if down else 5)
    assert stats.dropped == (5 if down else 0)
    assert stats.unwritten == 0


@on_sqlite
@pytest.mark.usefixtures("log_database")
def test_stop_writes_when_no_thread_could_start(
    make: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    recorder = make()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        refuse(recorder, 5)
    recorder.stop()
    assert hits() == 5


@on_sqlite
@pytest.mark.usefixtures("log_database")
def test_stop_writes_refusals_recorded_after_the_last_round(
    make: Callable[..., Recorder], caplog: pytest.LogCaptureFixture
) -> None:
    recorder = make()
    refuse(recorder, 5)
    assert recorder._background.stop(60)
    refuse(recorder, 2)
    recorder.stop()
    assert hits() == 7
    assert recorder.stats().unwritten == 0
    assert not caplog.records


@on_sqlite
@pytest.mark.usefixtures("log_database")
def test_stop_drops_refusals_recorded_in_a_last_round_that_fails(
    make: Callable[..., Recorder],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = make()
    refuse(recorder, 5)
    assert recorder._background.stop(60)

    def away(rows: Any, using: str) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(upsert, "write", away)
    refuse(recorder, 2)
    recorder.stop()
    assert hits() == 5
    assert recorder.stats().dropped == 2
    assert "2 refusals are lost" in caplog.text


@on_sqlite
@pytest.mark.usefixtures("log_database")
def test_stop_writes_everything_and_prevents_new_threads(
    make: Callable[..., Recorder],
) -> None:
    recorder = make(interval=600)
    refuse(recorder, 5)
    recorder.stop()
    assert hits() == 5
    refuse(recorder, 1)
    assert not recorder.stats().running


@on_sqlite
def test_stop_keeps_trying_when_the_database_is_down(
    make: Callable[..., Recorder], log_database: str
) -> None:
    recorder = make(interval=600)
    with connections[log_database].cursor() as cursor:
        cursor.execute(f"DROP TABLE {Rejection._meta.db_table}")
    refuse(recorder, 5)
    ending = threading.Thread(target=recorder.stop, args=(60, 60))
    ending.start()
    wait_until(lambda: recorder.stats().failed >= 2, "it keeps trying while it stops")
    assert recorder.stats().waiting <= 1
    with connections[log_database].schema_editor() as editor:
        editor.create_model(Rejection)
    ending.join()
    assert hits() == 5


class SlowDatabase:
    """Write a batch only while the exiting process waits for it, at most `batches` times."""

    def __init__(self, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
        self._recorder = recorder
        self._free = threading.Semaphore(0)
        self._left = batches
        self.waits: list[float] = []
        write = upsert.write

        def slowly(rows: Any, using: str) -> None:
            self._free.acquire()
            write(rows, using)

        monkeypatch.setattr(upsert, "write", slowly)
        monkeypatch.setattr(upsert, "BATCH_ROWS", 2)
        thread = thread_of(recorder)
        self._join = thread.join
        monkeypatch.setattr(thread, "join", self.join)

    def join(self, seconds: float) -> None:
        self.waits.append(seconds)
        batches = self._recorder.stats().batches
        if self._left and seconds:
            self._left -= 1
            self._free.release()
            wait_until(lambda: self._recorder.stats().batches > batches, "a batch is written")

    def recover(self) -> None:
        self._left = 0
        for _ in range(100):
            self._free.release()
        self._join()


@on_sqlite
@pytest.mark.usefixtures("log_database")
def test_stop_waits_while_batches_are_written(
    make: Callable[..., Recorder],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = make(interval=600)
    refuse(recorder, 80, identifiers=8)
    database = SlowDatabase(recorder, monkeypatch, batches=100)
    recorder.stop()
    database.recover()
    assert hits() == 80
    assert len(database.waits) >= 4
    assert not caplog.records


@on_sqlite
@pytest.mark.usefixtures("log_database")
@pytest.mark.parametrize(("batches", "longest"), [(1, 60.0), (100, 0.0)])
def test_stop_logs_lost_refusals_when_time_is_up(
    make: Callable[..., Recorder],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    batches: int,
    longest: float,
) -> None:
    received: list[dict[str, Any]] = []

    def listener(**kwargs: Any) -> None:
        received.append(kwargs)

    recorder = make(interval=600)
    refuse(recorder, 80, identifiers=8)
    database = SlowDatabase(recorder, monkeypatch, batches=batches)
    signals.log_written.connect(listener)
    recorder.stop(longest=longest)
    signals.log_written.disconnect(listener)
    lost = 80 - hits()
    assert lost == (60 if longest else 80)
    assert sum(one["dropped"] for one in received) == recorder.stats().dropped == lost
    assert all(seconds <= longest for seconds in database.waits)
    (line,) = (r.getMessage() for r in caplog.records if r.name == "django_slidingwindow.log")
    assert line.startswith("the process exits before the rejection log is written")
    assert line.endswith(f": {lost} refusals are lost")
    database.recover()


@on_sqlite
@pytest.mark.usefixtures("log_database")
def test_exiting_process_stops_only_once(
    make: Callable[..., Recorder],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = make(interval=600)
    refuse(recorder, 80, identifiers=8)
    database = SlowDatabase(recorder, monkeypatch, batches=0)
    monkeypatch.setattr(background, "_all", WeakSet([recorder._background]))
    background._stop_all()
    background._stop_all()
    assert len(database.waits) == 1
    assert len(caplog.records) == 1
    database.recover()


def test_start_called_twice_starts_one_thread(
    make: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "testing", lambda: False)
    recorder = make(interval=600)
    before = threading.active_count()
    recorder._background.start()
    recorder._background.start()
    assert threading.active_count() == before + 1


def test_buffer_drop_rows_when_full() -> None:
    buffer = LogBuffer(max_rows=4)
    for i in range(10):
        ((group, tally),) = refusals(request(), refusal(verdict(f"10.0.0.{i}")), 0.0)
        half_full = buffer.add(group, tally)
        assert half_full == (i == 1)
    assert (len(buffer), buffer.recorded, buffer.dropped) == (4, 10, 6)
    taken = buffer.take()
    assert len(buffer) == 0
    ((group, _),) = refusals(request(), refusal(verdict("10.0.0.99")), 0.0)
    buffer.add(group, Tally(3, 0.0, 0.0, 0.0))
    buffer.put_back(taken)
    assert (len(buffer), buffer.dropped) == (4, 7)


@on_every_database
@pytest.mark.parametrize("model", [Rejection, Usage])
def test_try_to_write_leaves_no_row(log_database: str, model: Any) -> None:
    try_to_write(log_database, model)
    assert not model.objects.exists()


def collected(buffer: LogBuffer) -> dict[tuple[int, str, str], int]:
    """Return the hits by minute, identifier and reason."""
    rows = [group.row(tally) for group, tally in buffer.take().items()]
    return {
        (int(row.minute.timestamp() // 60), row.identifier, row.reason): row.hits for row in rows
    }


def tally(buffer: LogBuffer, name: str, now: float = 0.0, **values: Any) -> None:
    for group, counted in refusals(request(), refusal(verdict(name, **values)), now):
        buffer.add(group, counted)


@override_settings(SLIDING_WINDOW={"LOG_ROWS_PER_MINUTE": 3})
def test_buffer_collect_overflow_in_one_row_per_profile() -> None:
    buffer = LogBuffer(max_rows=100)
    for name in "abcdeab":
        tally(buffer, name)
    tally(buffer, "f", profile="api")
    tally(buffer, "g", profile="api")
    tally(buffer, "a", 60.0)
    limit, beyond = decisions.LIMIT, OVERFLOW
    rows = [group.row(counted) for group, counted in buffer.take().items()]
    assert sum(row.hits for row in rows) == buffer.recorded == 10
    found = {(row.first_at.minute, row.profile, row.identifier, row.reason): row for row in rows}
    assert {key: row.hits for key, row in found.items()} == {
        (0, "login", "a", limit): 2,
        (0, "login", "b", limit): 2,
        (0, "login", "c", limit): 1,
        (0, "login", "", beyond): 2,
        (0, "api", "", beyond): 2,
        (1, "login", "a", limit): 1,
    }
    row = found[0, "login", "", beyond]
    assert (row.view, row.method, row.source, row.limit) == ("", "", "", None)


@override_settings(SLIDING_WINDOW={"LOG_ROWS_PER_MINUTE": 2})
def test_written_rows_count_for_the_rows_of_their_minute() -> None:
    buffer = LogBuffer(max_rows=100)
    for _ in range(3):
        for name in "abc":
            tally(buffer, name)
        found = collected(buffer)
        assert found == {(0, "a", "limit"): 1, (0, "b", "limit"): 1, (0, "", "overflow"): 1}


@override_settings(SLIDING_WINDOW={"LOG_ROWS_PER_MINUTE": 1})
def test_clock_set_back_starts_a_new_minute_but_a_late_thread_does_not() -> None:
    buffer = LogBuffer(max_rows=100)
    tally(buffer, "a", 600.0)
    tally(buffer, "b", 599.0)
    tally(buffer, "c", 60.0)
    assert collected(buffer) == {
        (10, "a", "limit"): 1,
        (9, "", "overflow"): 1,
        (1, "c", "limit"): 1,
    }


@on_every_database
@pytest.mark.usefixtures("log_database")
@override_settings(SLIDING_WINDOW={"LOG_ROWS_PER_MINUTE": 10})
def test_log_stays_bounded_when_identifiers_rotate(make: Callable[..., Recorder]) -> None:
    recorder = make(interval=600)
    refuse(recorder, 1_000, identifiers=200)
    assert recorder.flush()
    another = make(interval=600)
    refuse(another, 1_000, identifiers=200)
    assert another.flush()
    assert hits() == 2_000
    # In each minute, ten rows of each recorder, and one for the other refusals of both.
    assert Rejection.objects.count() <= 21 * minutes()
    assert Rejection.objects.filter(reason=OVERFLOW, identifier="").exists()


@pytest.mark.django_db(transaction=True)
def test_log_setting_turns_recording_off_and_on() -> None:
    before = module.stats().recorded
    with override_settings(SLIDING_WINDOW={"LOG": False}):
        signals.report_refusal(request(), refusal())
    with conf.forced(log=False):
        signals.report_refusal(request(), refusal())
    assert module.stats().recorded == before
    with override_settings(SECRET_KEY="another"):
        signals.report_refusal(request(), refusal())
    signals.report_refusal(request(), refusal())
    assert module.stats().recorded == before + 2
    assert module.flush()
    assert hits() == 2


def test_first_refusal_loads_the_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[Any] = []
    monkeypatch.setattr(module, "record", lambda *arguments: recorded.append(arguments))
    monkeypatch.setattr(signals, "refusal_log", None)
    signals.refusal_log = apps._start_refusals
    http_request, refused = request(), refusal()
    signals.report_refusal(http_request, refused)
    assert signals.refusal_log is module.record
    signals.report_refusal(http_request, refused)
    assert recorded == [(http_request, refused)] * 2


@on_sqlite
def test_recorder_logs_and_keeps_rows_when_the_router_fails(
    make: Callable[..., Recorder],
    log_database: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "testing", lambda: False)
    recorder = make()

    asked: list[Any] = []

    def failing(model: Any) -> str:
        asked.append(model)
        raise ImproperlyConfigured("no such database")

    with monkeypatch.context() as patch:
        patch.setattr("django_slidingwindow.rejections.writer.log_alias", failing)
        refuse(recorder, 5)
        wait_until(lambda: len(asked) > 2, "it is tried again")
    assert caplog.text.count("could not write") == 1
    assert recorder.stats().deaths == 0
    refuse(recorder, 1)
    wait_until(lambda: hits() == 6, "it is written")


def run(
    log_database: str, way: str, shares: list[tuple[int, int]], *, measured: bool = True
) -> None:
    """Run one process for each share (first number and count) of the refusals.

    With `measured` their coverage is recorded, which makes them several times slower.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if measured or not name.startswith("COVERAGE_PROCESS")
    }
    entry = {**connections.settings[log_database], "TIME_ZONE": None, "CONN_MAX_AGE": 0}
    arguments = [
        json.dumps({"databases": entry, "way": way, "first": first, "count": count})
        for first, count in shares
    ]
    processes = [
        subprocess.Popen(
            # Python warns about a fork in a process with threads; one test does that.
            [
                sys.executable,
                "-W",
                "ignore::DeprecationWarning",
                "-m",
                "tests.support.processes.refusals",
                argument,
            ],
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for argument in arguments
    ]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        assert errors == ""


def minutes() -> int:
    return Rejection.objects.order_by().values("minute").distinct().count()


@pytest.mark.parametrize("log_database", ["sqlite", "postgresql"], indirect=True)
def test_eight_processes_write_every_refusal(log_database: str) -> None:
    run(log_database, "record", [(12_500 * i, 12_500) for i in range(8)], measured=False)
    assert hits() == 100_000
    assert Rejection.objects.order_by().values("identifier").distinct().count() == 1_000
    assert Rejection.objects.count() <= 1_000 * minutes()


@on_sqlite
@pytest.mark.parametrize("way", ["wsgi", "asgi"])
def test_server_logs_every_429(log_database: str, way: str, redis: Any) -> None:
    run(log_database, way, [(400 * i, 400) for i in range(2)])
    assert hits() == 800
    assert set(Rejection.objects.values_list("view", flat=True)) == {"one/", "two/"}
    assert Rejection.objects.count() <= 800 * minutes()


@on_sqlite
def test_forked_child_does_not_write_the_rows_of_its_parent(log_database: str) -> None:
    run(log_database, "fork", [(0, 400)])
    assert hits() == 200 + 100 + 100


@on_sqlite
def test_multiprocessing_child_writes_before_it_exits(log_database: str) -> None:
    run(log_database, "worker", [(0, 400)])
    assert hits() == 400


def test_recorder_uses_the_documented_logger() -> None:
    assert module.logger is logging.getLogger("django_slidingwindow.log")
