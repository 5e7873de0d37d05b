"""`slidingwindow doctor` reports what works, what does not, and the ids of system checks."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from django_slidingwindow import limits
from django_slidingwindow.algorithms.scripts import SCRIPT_VERSION
from django_slidingwindow.guard import usages
from django_slidingwindow.inspection import doctor
from django_slidingwindow.models import Rejection, Usage
from django_slidingwindow.overrides.watcher import Status
from django_slidingwindow.rejections import recorder
from tests.support.servers import RedisServer
from tests.support.usage_factories import usage_row

# A large budget: a busy machine must not look like an outage.
PATIENT = {"LATENCY_BUDGET": 5.0}
PROFILES = {"api": {"axis": "global", "rate": "4/h"}}
SERVER = ["connection", "server", "eviction", "latency", "script", "clock"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis", "profiles")]


@pytest.fixture
def profiles(monkeypatch):
    # Forget the views of other tests, because this project lacks their profiles.
    monkeypatch.setattr(usages, "_usages", {})
    with override_settings(
        SLIDING_WINDOW={**PATIENT, "PROFILES": PROFILES, "FALLBACK_PROCESSES": 1}
    ):
        yield


def found() -> dict[str, doctor.Finding]:
    return {finding.name: finding for finding in doctor.examine()}


def cache(url: str, **options: Any) -> dict[str, Any]:
    default = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "OPTIONS": options}
    return {"CACHES": {"default": default}}


def run(*arguments: str) -> str:
    stream = io.StringIO()
    call_command("slidingwindow", "doctor", *arguments, stdout=stream)
    return stream.getvalue()


def test_examine_finds_no_problem():
    findings = found()
    assert list(findings)[:9] == [*SERVER, "breaker", "overrides", "log"]
    assert {finding.level for finding in findings.values()} == {"ok"}
    assert findings["server"].data["version"].count(".") == 2
    assert findings["latency"].data["p50_ms"] <= findings["latency"].data["p99_ms"]
    assert abs(findings["clock"].data["ahead_seconds"]) < 1
    assert findings["breaker"].data == {"state": "closed"}


def test_script_counts_loaded_scripts(redis):
    redis.script_flush()
    limits.check("api", "x")
    script = found()["script"].data
    assert script == {"version": SCRIPT_VERSION, "loaded": 1, "known": 2}


def test_json_is_one_object():
    report = json.loads(run("--json"))
    assert report["ok"] is True
    assert [finding["name"] for finding in report["findings"]][:6] == SERVER
    assert set(report["findings"][0]) == {"name", "level", "text", "data"}


@pytest.mark.parametrize("output", ["plain", "rich"])
def test_doctor_prints_a_line_for_each_finding(output):
    printed = run("--format", output)
    for name in (*SERVER, "breaker", "log"):
        assert f" {name} " in printed


def test_doctor_exits_1_when_the_server_is_down(fresh_server):
    with override_settings(**cache(fresh_server.url)):
        fresh_server.kill()
        findings = found()
        assert findings["connection"].level == "error"
        assert "latency" not in findings
        with pytest.raises(CommandError, match=r"^1 error\.$") as caught:
            run("--json")
        assert caught.value.returncode == 1


def test_connection_is_an_error_when_the_server_hangs(fresh_server):
    with override_settings(**cache(fresh_server.url)):
        fresh_server.freeze()
        try:
            assert found()["connection"].level == "error"
        finally:
            fresh_server.thaw()


def test_connection_is_an_error_when_the_cache_is_not_redis():
    backend = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    with override_settings(CACHES={"default": backend}):
        findings = found()
    assert findings["connection"].level == "error"
    assert findings["E013"].level == "error"


def test_doctor_is_ok_when_there_are_only_warnings():
    evicting = RedisServer("maxmemory 100mb", "maxmemory-policy allkeys-lru")
    with evicting as server, override_settings(**cache(server.url)):
        findings = found()
        assert json.loads(run("--json"))["ok"] is True
    assert findings["eviction"].level == "warning"
    assert findings["W115"].level == "warning"
    assert findings["W115"].data["id"] == "django_slidingwindow.W115"


def test_eviction_is_ok_when_maxmemory_has_noeviction():
    with RedisServer("maxmemory 100mb") as server, override_settings(**cache(server.url)):
        eviction = found()["eviction"]
    assert eviction.level == "ok"
    assert eviction.data == {"policy": "noeviction", "maxmemory": 104857600}


def test_findings_are_unknown_when_the_user_lacks_rights(redis, redis_server):
    redis.acl_setuser("lean", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info"])
    try:
        with override_settings(**cache(redis_server.url.replace("redis://", "redis://lean:x@"))):
            findings = found()
    finally:
        redis.acl_deluser("lean")
    assert findings["server"].level == findings["eviction"].level == "warning"
    assert findings["server"].text.startswith("unknown: ")
    assert findings["clock"].level == "ok"


def test_latency_is_a_warning_when_above_the_budget():
    with override_settings(
        SLIDING_WINDOW={**PATIENT, "PROFILES": PROFILES, "LATENCY_BUDGET": 10.0}
    ):
        assert "LATENCY_BUDGET" not in found()["latency"].text
    assert doctor.latency([0.001] * 97 + [0.2] * 3, 0.1).level == "warning"


def test_clock_is_a_warning_when_clocks_differ():
    assert doctor.clock(3.0).level == "warning"
    assert "ahead of" in doctor.clock(3.0).text
    assert "behind" in doctor.clock(-0.2).text
    assert doctor.clock(-0.2).level == "ok"


def test_breaker_is_a_warning_when_open(fresh_server):
    with override_settings(**cache(fresh_server.url)):
        fresh_server.kill()
        for _ in range(4):
            limits.check("api", "x")
        breaker = found()["breaker"]
    assert (breaker.level, breaker.data["state"]) == ("warning", "open")


def test_log_reports_its_newest_minute():
    minute = timezone.now().replace(second=0, microsecond=0)
    Rejection.objects.create(
        minute=minute, digest="0" * 32, hits=3, first_at=minute, last_at=minute
    )
    log = found()["log"]
    assert log.level == "ok"
    assert log.data["newest"] == minute.isoformat()
    # The stored time is in UTC, so it has its zone.
    assert f"newest minute {minute:%Y-%m-%dT%H:%M}+00:00;" in log.text
    assert {"written", "dropped", "failed", "waiting"} <= set(log.data)


def test_log_is_a_warning_when_refusals_were_dropped(monkeypatch):
    stats = replace(recorder.stats(), dropped=7, down=True)
    monkeypatch.setattr(recorder, "stats", lambda: stats)
    log = found()["log"]
    assert (log.level, log.data["dropped"]) == ("warning", 7)
    assert "7 dropped" in log.text


def test_log_is_a_warning_when_the_thread_died(monkeypatch):
    stats = replace(recorder.stats(), deaths=2, unwritten=9, running=True)
    monkeypatch.setattr(recorder, "stats", lambda: stats)
    log = found()["log"]
    assert (log.level, log.data["deaths"], log.data["unwritten"]) == ("warning", 2, 9)
    assert "deaths of the writing thread: 2" in log.text
    assert "9 waiting" in log.text


@pytest.mark.parametrize(
    ("running", "text"),
    [
        (True, "the last attempt failed: OSError: bad"),
        (False, "the last attempt failed and no writing thread is running: OSError: bad"),
    ],
)
def test_log_is_a_warning_when_the_last_write_failed(monkeypatch, running, text):
    stats = replace(recorder.stats(), error="OSError: bad", running=running)
    monkeypatch.setattr(recorder, "stats", lambda: stats)
    log = found()["log"]
    assert log.level == "warning"
    assert text in log.text


def test_log_test_write_leaves_no_row():
    assert found()["log"].level == "ok"
    assert not Rejection.objects.exists()


def test_log_is_an_error_when_it_cannot_be_written():
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TRIGGER closed BEFORE INSERT ON {Rejection._meta.db_table}"
            " BEGIN SELECT RAISE(ABORT, 'read-only'); END"
        )
    log = found()["log"]
    assert log.level == "error"
    assert log.text == "cannot write to the table in the database 'default': read-only"


def test_log_is_an_error_when_the_table_is_missing():
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {Rejection._meta.db_table} RENAME TO elsewhere")
    assert found()["log"].level == "error"


@pytest.fixture
def logged(profiles: None, settings: Any) -> None:
    every = {**PROFILES, "stripe": {"axis": "tenant", "rate": "9/h", "log": "all"}}
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "PROFILES": every}


def test_usage_is_missing_when_no_profile_logs_admitted_requests(settings: Any) -> None:
    assert "usage" not in found()
    profiles = {"stripe": {"axis": "tenant", "rate": "9/h", "log": "all"}}
    settings.SLIDING_WINDOW = {**PATIENT, "PROFILES": profiles, "LOG": False}
    assert "usage" not in found()


@pytest.mark.usefixtures("logged")
def test_usage_reports_its_newest_minute_and_leaves_no_row() -> None:
    usage = found()["usage"]
    assert (usage.level, usage.text) == ("ok", "the database 'default': empty")
    assert not Usage.objects.exists()
    newest = timezone.now().replace(second=0, microsecond=0)
    for minute in (newest - timedelta(hours=1), newest, newest - timedelta(hours=2)):
        usage_row(profile="stripe", minute=minute).save()
    assert found()["usage"].data == {"database": "default", "newest": newest.isoformat()}


@pytest.mark.usefixtures("logged")
def test_usage_is_an_error_when_it_cannot_be_written() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TRIGGER closed BEFORE INSERT ON {Usage._meta.db_table}"
            " BEGIN SELECT RAISE(ABORT, 'read-only'); END"
        )
    findings = found()
    assert findings["log"].level == "ok"
    assert findings["usage"].level == "error"
    text = "cannot write to the table in the database 'default': read-only"
    assert findings["usage"].text == text


@pytest.mark.usefixtures("logged")
def test_usage_is_an_error_when_the_table_is_missing() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {Usage._meta.db_table} RENAME TO elsewhere")
    usage = found()["usage"]
    assert usage.level == "error"
    assert usage.text.startswith("cannot read the table in the database 'default': ")


def test_log_is_ok_when_it_is_off():
    with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": PROFILES, "LOG": False}):
        assert found()["log"].text == "off: SLIDING_WINDOW['LOG'] is False"


def test_findings_include_system_checks_with_their_ids():
    with override_settings(
        SLIDING_WINDOW={**PATIENT, "PROFILES": {"wrong": {"axis": "ip"}}, "ENABLED": False}
    ):
        findings = found()
    assert findings["E021"].level == "error"
    assert findings["W101"].level == "warning"
    assert findings["I102"].level == "info"
    assert findings["E021"].data["hint"] in findings["E021"].text


def test_overrides_are_ok_when_they_can_be_read(settings: Any) -> None:
    finding = doctor._overrides()
    assert (finding.level, finding.text) == ("ok", "0 read")
    settings.SLIDING_WINDOW = {"OVERRIDES_SECONDS": 0}
    assert doctor._overrides().text.startswith("off")


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (None, "cannot be read, so the settings hold: Error: gone"),
        (31.4, "cannot be read, so those read 31 s ago hold: Error: gone"),
    ],
)
def test_overrides_are_a_warning_when_they_cannot_be_read(age: float | None, text: str) -> None:
    status = Status(count=3, age=age, running=True, error="Error: gone")
    finding = doctor.overrides(status, age)
    assert (finding.level, finding.text) == ("warning", text)
    assert finding.data["count"] == 3
