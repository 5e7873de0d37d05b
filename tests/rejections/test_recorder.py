"""The recorder writes every refusal to the log in the background, and counts what is lost."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias
from weakref import WeakSet

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import DataError, IntegrityError, OperationalError, connections, transaction
from django.db.models import Sum
from django.test import override_settings

from django_slidingwindow import apps, decisions, signals
from django_slidingwindow.conf import conf
from django_slidingwindow.core import background
from django_slidingwindow.core.keys import escape, unescape
from django_slidingwindow.guard.current_limiter import get_limiter
from django_slidingwindow.models import Rejection, Usage
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.rejections import recorder as module
from django_slidingwindow.rejections import testcase, upsert
from django_slidingwindow.rejections.buffer import LogBuffer
from django_slidingwindow.rejections.recorder import Recorder
from django_slidingwindow.rejections.rows import OVERFLOW, Tally, refusals
from django_slidingwindow.rejections.writer import try_to_write
from tests.support.databases import ALIAS, on_every_database
from tests.support.rejection_factories import refusal, request, verdict
from tests.support.servers.redis import wait_until

Make: TypeAlias = "Callable[..., Recorder]"
LONG = "x" * 200


def on_sqlite(test: Any) -> Any:
    """Run a test with the logs in a new SQLite database."""
    kinds = pytest.mark.parametrize("log_database", ["sqlite"], indirect=True)
    return pytest.mark.usefixtures("log_database")(kinds(test))


@pytest.fixture
def make() -> Iterator[Make]:
    """Return a function that makes recorders with a short interval. Stop them at the end."""
    made: list[Recorder] = []

    def make(**options: Any) -> Recorder:
        made.append(Recorder(**{"interval": 0.01, "longest_pause": 0.05, **options}))
        return made[-1]

    yield make
    for recorder in made:
        recorder.stop()


@pytest.fixture
def recorder(make: Make) -> Recorder:
    """A recorder whose thread writes at once."""
    return make()


@pytest.fixture
def idle_recorder(make: Make) -> Recorder:
    """A recorder whose thread writes nothing before `flush` or `stop`."""
    return make(interval=600)


@pytest.fixture
def log_lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return a function that returns the messages of the documented logger."""
    return lambda: [r.getMessage() for r in caplog.records if r.name == "django_slidingwindow.log"]


@pytest.fixture
def log_written() -> Iterator[list[dict[str, Any]]]:
    """The arguments of each `log_written`."""
    received: list[dict[str, Any]] = []

    def listener(**kwargs: Any) -> None:
        received.append(kwargs)

    signals.log_written.connect(listener)
    yield received
    signals.log_written.disconnect(listener)


@contextmanager
def no_new_threads() -> Iterator[None]:
    """Let every start of a thread fail, as on a machine without memory."""

    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        yield


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
def test_flush_writes_a_long_identifier_beside_its_shortened_form(idle_recorder: Recorder) -> None:
    # In both logs the two have the same text. A statement must not have the same row twice.
    shortened = unescape(escape(LONG))
    policy = Policy(limit=9, window=60)
    profile = Profile(name="p", axis="tenant", policies=(policy,), log="all")
    admitted = get_limiter().template(profile, (policy,), 1)
    for identifier in (LONG, shortened, LONG):
        idle_recorder.record(request(), refusal(verdict(identifier)))
        idle_recorder.count(None, admitted.windows(identifier), {"p": (identifier, 1)})
    assert idle_recorder.flush()
    for model in (Rejection, Usage):
        rows = model._default_manager.values_list("identifier", "hits")
        assert sorted(rows) == [(shortened, 1), (shortened, 2)]


@on_every_database
@pytest.mark.usefixtures("log_database")
def test_thread_writes_the_sum_of_refusals(recorder: Recorder) -> None:
    refuse(recorder, 500, identifiers=7)
    wait_until(lambda: recorder.stats().written == 500, "all is written")
    assert hits() == 500
    assert Rejection.objects.count() in (7, 14)  # a minute may have ended in between
    refuse(recorder, 10, identifiers=7)
    wait_until(lambda: hits() == 510, "the rest is written")
    assert recorder.stats().recorded == 510
    assert recorder.stats().waiting == recorder.stats().failed == recorder.stats().dropped == 0


def test_recorder_starts_no_thread_before_the_first_refusal(make: Make) -> None:
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
def test_record_runs_no_query(idle_recorder: Recorder, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        refuse(idle_recorder, 40, identifiers=40)
    assert idle_recorder.stats().waiting >= 40
    with django_assert_num_queries(1):
        assert idle_recorder.flush()
    assert hits() == 40


@pytest.mark.django_db
def test_flush_writes_refusals_when_in_a_test_case(recorder: Recorder) -> None:
    refuse(recorder, 3)
    assert not recorder.stats().running
    assert recorder.flush()
    assert hits() == 3


@pytest.mark.django_db
def test_recorder_forgets_refusals_of_the_previous_test(recorder: Recorder) -> None:
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
    idle_recorder: Recorder, log_database: str
) -> None:
    refuse(idle_recorder, 3)
    test_database = connections.settings[ALIAS]["NAME"]
    connections.settings[ALIAS]["NAME"] = "the real one"
    assert idle_recorder.flush()
    connections.settings[ALIAS]["NAME"] = test_database
    assert idle_recorder.stats().dropped == 3
    assert hits() == 0


@on_sqlite
def test_thread_writes_without_flush_when_not_testing(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "testing", lambda: False)
    refuse(recorder, 3)
    wait_until(lambda: hits() == 3, "it is written")


def test_testing_detects_the_test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert testcase.testing()
    monkeypatch.delattr("django.core.mail.outbox")
    assert not testcase.testing()


@on_sqlite
def test_thread_writes_early_when_the_buffer_is_half_full(make: Make) -> None:
    recorder = make(interval=600, max_rows=20)
    refuse(recorder, 30, identifiers=10)
    wait_until(lambda: recorder.stats().written >= 10, "it is written")


@on_every_database
def test_record_works_when_the_database_is_down(
    make: Make,
    log_database: str,
    log_lines: Callable[[], list[str]],
    log_written: list[dict[str, Any]],
) -> None:
    table = connections[log_database].ops.quote_name(Rejection._meta.db_table)
    with connections[log_database].cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO elsewhere")
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
    # The thread notes this last.
    wait_until(lambda: len(log_lines()) == 2, "it is written again")
    assert not recorder.stats().down
    assert hits() == recorder.stats().written == 200 - recorder.stats().dropped
    assert log_written[0]["error"] is not None
    assert log_written[-1]["error"] is None
    assert sum(one["hits"] for one in log_written if one["error"] is None) == hits()
    assert sum(one["dropped"] for one in log_written) == recorder.stats().dropped
    assert log_lines()[0].startswith("cannot write the rejection log (")
    assert f"{recorder.stats().dropped} refusals were lost" in log_lines()[1]


@on_sqlite
def test_thread_retries_when_the_database_is_locked(recorder: Recorder, log_database: str) -> None:
    connections.settings[ALIAS]["OPTIONS"]["timeout"] = 0.01
    with transaction.atomic(using=log_database):
        Rejection.objects.update(hits=0)
        refuse(recorder, 40, identifiers=4)
        wait_until(lambda: recorder.stats().failed >= 2, "it is tried again")
    wait_until(lambda: recorder.stats().written == 40, "it is written")
    assert hits() == 40


@on_sqlite
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
    idle_recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    log_lines: Callable[[], list[str]],
) -> None:
    write = upsert.write

    def refusing(rows: Any, using: str) -> None:
        if any(row.identifier == "10.0.0.3" for row in rows):
            raise error
        write(rows, using)

    refuse(idle_recorder, 50, identifiers=5)
    monkeypatch.setattr(upsert, "write", refusing)
    assert idle_recorder.flush()
    assert (idle_recorder.stats().dropped, idle_recorder.stats().waiting) == (10, 0)
    assert hits() == idle_recorder.stats().written == 40
    assert log_lines() == ["the database rejected rows of the rejection log: 10 refusals are lost"]


@on_sqlite
def test_thread_survives_an_unexpected_error(
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
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
def test_thread_survives_when_a_connection_cannot_be_closed(
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    log_lines: Callable[[], list[str]],
) -> None:
    errors: list[BaseException] = [OSError("bad descriptor")]
    monkeypatch.setattr(connections, "close_all", failing(errors))
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
    assert log_lines() == ["could not write the rejection log and the usage log"]


@on_sqlite
def test_recorder_replaces_and_counts_a_dead_thread(
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(connections, "close_all", failing([SystemExit("enough")], once=True))
    refuse(recorder, 5)
    wait_until(lambda: recorder.stats().deaths == 1, "it died")
    wait_until(lambda: recorder.stats().running, "another one runs")
    refuse(recorder, 2)
    wait_until(lambda: recorder.stats().unwritten == 0, "later refusals are written")
    assert hits() == 7
    assert "the thread django_slidingwindow.log died" in caplog.text


@on_sqlite
def test_new_thread_writes_waiting_rows_when_the_old_one_died_writing(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, lost = upsert.write, []

    def dying(rows: Any, using: str) -> None:
        if not lost:
            # Not always 5: the thread may wake up before the last of them.
            lost.append(sum(row.hits for row in rows))
            refuse(recorder, 3)
            raise SystemExit
        write(rows, using)

    monkeypatch.setattr(upsert, "write", dying)
    refuse(recorder, 5)
    wait_until(lambda: recorder.stats().unwritten == 0, "without another refusal it is written")
    stats, written = recorder.stats(), 8 - sum(lost)
    assert (stats.recorded, stats.written, hits()) == (8, written, written)
    assert stats.dropped == sum(lost) > 0


@on_sqlite
def test_next_refusal_starts_the_thread_when_the_first_start_failed(
    recorder: Recorder, log_lines: Callable[[], list[str]]
) -> None:
    with no_new_threads():
        refuse(recorder, 5)
    stats = recorder.stats()
    assert (stats.running, stats.unwritten) == (False, 5)
    assert stats.error == "RuntimeError: can't start new thread"
    assert log_lines() == ["could not start the thread django_slidingwindow.log"]
    refuse(recorder, 1)
    wait_until(lambda: hits() == 6, "all is written")
    wait_until(lambda: not recorder.stats().error, "it is over")


@on_sqlite
@pytest.mark.parametrize("down", [False, True])
def test_stop_writes_or_drops_waiting_rows_when_the_thread_is_dead(
    idle_recorder: Recorder, monkeypatch: pytest.MonkeyPatch, down: bool
) -> None:
    refuse(idle_recorder, 5)
    first = thread_of(idle_recorder)

    def dies() -> None:
        raise SystemExit

    with monkeypatch.context() as patch, no_new_threads():
        patch.setattr(idle_recorder, "_write", dies)
        idle_recorder._background.wake()
        first.join(60)
    assert idle_recorder.stats().deaths == 1
    assert idle_recorder.stats().unwritten == 5
    if down:
        monkeypatch.setattr(upsert, "write", lambda rows, using: 1 / 0)
    idle_recorder.stop()
    stats = idle_recorder.stats()
    assert hits() == stats.written == (0 if down else 5)
    assert stats.dropped == (5 if down else 0)
    assert stats.unwritten == 0


@on_sqlite
def test_stop_writes_when_no_thread_could_start(recorder: Recorder) -> None:
    with no_new_threads():
        refuse(recorder, 5)
    recorder.stop()
    assert hits() == 5


@on_sqlite
def test_stop_writes_refusals_recorded_after_the_last_round(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(recorder, 5)
    assert recorder._background.stop(60)
    refuse(recorder, 2)
    recorder.stop()
    assert hits() == 7
    assert recorder.stats().unwritten == 0
    assert not caplog.records


@on_sqlite
def test_stop_drops_refusals_recorded_in_a_last_round_that_fails(
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
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
def test_stop_writes_everything_and_prevents_new_threads(idle_recorder: Recorder) -> None:
    refuse(idle_recorder, 5)
    idle_recorder.stop()
    assert hits() == 5
    refuse(idle_recorder, 1)
    assert not idle_recorder.stats().running


@on_sqlite
def test_stop_keeps_trying_when_the_database_is_down(
    idle_recorder: Recorder, log_database: str
) -> None:
    with connections[log_database].cursor() as cursor:
        cursor.execute(f"DROP TABLE {Rejection._meta.db_table}")
    refuse(idle_recorder, 5)
    ending = threading.Thread(target=idle_recorder.stop, args=(60, 60))
    ending.start()
    wait_until(lambda: idle_recorder.stats().failed >= 2, "it keeps trying while it stops")
    assert idle_recorder.stats().waiting <= 1
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
def test_stop_waits_while_batches_are_written(
    idle_recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refuse(idle_recorder, 80, identifiers=8)
    database = SlowDatabase(idle_recorder, monkeypatch, batches=100)
    idle_recorder.stop()
    database.recover()
    assert hits() == 80
    assert len(database.waits) >= 4
    assert not caplog.records


@on_sqlite
@pytest.mark.parametrize(("batches", "longest"), [(1, 60.0), (100, 0.0)])
def test_stop_logs_lost_refusals_when_time_is_up(
    idle_recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    log_lines: Callable[[], list[str]],
    batches: int,
    longest: float,
    log_written: list[dict[str, Any]],
) -> None:
    refuse(idle_recorder, 80, identifiers=8)
    database = SlowDatabase(idle_recorder, monkeypatch, batches=batches)
    idle_recorder.stop(longest=longest)
    lost = 80 - hits()
    assert lost == (60 if longest else 80)
    assert sum(one["dropped"] for one in log_written) == idle_recorder.stats().dropped == lost
    assert all(seconds <= longest for seconds in database.waits)
    (line,) = log_lines()
    assert line.startswith("the process exits before the rejection log is written")
    assert line.endswith(f": {lost} refusals are lost")
    database.recover()


@on_sqlite
def test_exiting_process_stops_only_once(
    idle_recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refuse(idle_recorder, 80, identifiers=8)
    database = SlowDatabase(idle_recorder, monkeypatch, batches=0)
    monkeypatch.setattr(background, "_all", WeakSet([idle_recorder._background]))
    background._stop_all()
    background._stop_all()
    assert len(database.waits) == 1
    assert len(caplog.records) == 1
    database.recover()


def test_start_called_twice_starts_one_thread(
    idle_recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "testing", lambda: False)
    before = threading.active_count()
    idle_recorder._background.start()
    idle_recorder._background.start()
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
def test_log_stays_bounded_when_identifiers_rotate(make: Make) -> None:
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
    recorder: Recorder,
    log_database: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "testing", lambda: False)

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
