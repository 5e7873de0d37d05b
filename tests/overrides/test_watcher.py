"""A process notices changed overrides, and keeps the last ones while the database is away."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, connections, transaction
from django.db.models import QuerySet
from django.test import TestCase
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_slidingwindow import limits
from django_slidingwindow.guard import current_limiter, override_snapshot
from django_slidingwindow.guard.override import Override as Active
from django_slidingwindow.models import Override
from django_slidingwindow.overrides import watcher as watching
from django_slidingwindow.overrides.watcher import Watcher, watcher
from django_slidingwindow.testing import limits_in_memory

ROOT = Path(__file__).parent.parent.parent
PROFILES = {"one": {"axis": "ip", "rate": "3/m"}}


@pytest.fixture(autouse=True)
def _profiles(settings: Any) -> Iterator[None]:
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES}
    with limits_in_memory():
        yield
    if override_snapshot.current is not None and override_snapshot.current.lasts is None:
        override_snapshot.publish(None)
    watcher.begin()


def reason() -> str:
    return limits.check("one", "203.0.113.9").reason


@pytest.mark.django_db
def test_saved_override_applies_at_once_in_a_test_case() -> None:
    assert reason() == "allowed"
    override = Override.objects.create(profile="one", action="block")
    assert reason() == "block"
    override.end()
    assert reason() == "allowed"


class InOneTransaction(TestCase):
    """Overrides end with the transaction of the test that made them."""

    @classmethod
    def setUpTestData(cls) -> None:
        Override.objects.create(profile="ip_public", action="observe")

    def test_a(self) -> None:
        assert limits.check("ip_public", "203.0.113.9").override == "observe"
        Override.objects.create(profile="ip_public", action="block")
        assert limits.check("ip_public", "203.0.113.9").reason == "block"

    def test_b(self) -> None:
        assert limits.check("ip_public", "203.0.113.9").override == "observe"
        Override.objects.all().delete()
        assert limits.check("ip_public", "203.0.113.9").override == ""

    def test_c(self) -> None:
        assert limits.check("ip_public", "203.0.113.9").override == "observe"


@pytest.mark.django_db(transaction=True)
def test_change_applies_only_when_it_is_committed() -> None:
    with transaction.atomic():
        Override.objects.create(profile="one", action="block")
        assert reason() == "allowed"
    assert reason() == "block"
    with transaction.atomic():
        Override.objects.all().delete()
        transaction.set_rollback(True)
    assert reason() == "block"


@pytest.mark.django_db(transaction=True)
def test_second_look_reads_one_row() -> None:
    Override.objects.create(profile="one", action="block")
    with CaptureQueriesContext(connection) as queries:
        assert watcher.refresh()
    assert len(queries) == 1


@pytest.mark.django_db(transaction=True)
def test_migrate_in_a_running_process_keeps_the_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    Override.objects.create(profile="one", action="block")
    assert reason() == "block"
    with monkeypatch.context() as patched:
        patched.setattr(watching, "testing", lambda: False)
        call_command("migrate", verbosity=0)
        assert reason() == "block"
    # A data migration has changed the table, but not its version.
    QuerySet(Override).update(action="exempt")
    assert watcher.refresh()
    assert reason() == "exempt"


@pytest.mark.django_db(transaction=True)
def test_overrides_are_read_again_after_the_database_was_flushed() -> None:
    Override.objects.create(profile="one", action="block")
    call_command("flush", verbosity=0, interactive=False, inhibit_post_migrate=False)
    assert override_snapshot.current is None
    Override.objects.create(profile="one", action="exempt")
    assert reason() == "exempt"


@pytest.mark.django_db
def test_last_overrides_apply_when_the_database_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own, now = Watcher(clock=lambda: now), 0.0

    def away(using: str) -> Any:
        raise OperationalError("gone")

    monkeypatch.setattr(watching, "read_version", away)
    assert not own.refresh()
    assert not own.refresh()
    assert [record.getMessage() for record in caplog.records] == [
        "could not read the overrides, so the settings hold: OperationalError: gone"
    ]
    assert own.status().age is None
    monkeypatch.undo()
    Override.objects.create(profile="one", action="block")
    assert own.refresh()
    now = 30.0
    monkeypatch.setattr(watching, "read_version", away)
    assert not own.refresh()
    assert "so the last ones hold" in caplog.records[-1].getMessage()
    assert reason() == "block"
    status = own.status()
    assert (status.count, status.age, status.error) == (1, 30.0, "OperationalError: gone")


def test_processes_see_what_others_save(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.processes.override_watcher", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        ["saved in a process that checks no limit", "", False],
        ["first check", "block", True],
        ["saved in a process that checks limits", "exempt"],
        ["child", "exempt", False, True],
        ["saved by another process", "observe", 0],
        ["database away", "observe", True],
        ["database back", ""],
    ]
    # Logged once, and not at each look.
    assert done.stderr.count("could not read the overrides, so the last ones hold") == 1


def test_thread_does_not_start_in_tests_or_without_overrides(settings: Any) -> None:
    own = Watcher()
    own.start()
    assert not own.status().running
    settings.SLIDING_WINDOW = {"OVERRIDES_SECONDS": 0}
    own.start()
    assert not own.status().running
    own.saved("default")
    assert own.status().age is None


def test_thread_does_not_start_when_there_is_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "testing", lambda: False)
    dummy = "django.db.backends.dummy"
    monkeypatch.setitem(connections.settings["default"], "ENGINE", dummy)
    own = Watcher()
    own.start()
    assert not own.status().running


def test_thread_that_cannot_start_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(watching, "testing", lambda: False)
    Watcher().start()
    assert "could not start the thread" in caplog.text


def test_first_limiter_starts_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    monkeypatch.setattr(watcher, "start", lambda: started.append(1))
    with current_limiter.limiters_from(current_limiter._make_limiter):
        limits.get_limiter()
        limits.get_limiter()
        limits.get_limiter().close()
    assert started == [1]


def test_override_ends_by_the_clock_of_a_test() -> None:
    snapshot = override_snapshot.Snapshot()
    known = snapshot["one"] = override_snapshot.ProfileOverrides()
    ends = (timezone.now() + timedelta(hours=1)).timestamp()
    known.everybody = (Active("block", (), ends),)
    override_snapshot.publish(snapshot)
    with limits_in_memory() as clock:
        assert reason() == "block"
        clock.advance(timedelta(hours=1, seconds=1))
        assert reason() == "allowed"
