"""The doctor: what is in order, what is not, and by which id."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from django_slidingwindow import limits
from django_slidingwindow.algorithms.scripts import SCRIPT_VERSION
from django_slidingwindow.guard import usages
from django_slidingwindow.inspection import doctor as diagnosis
from django_slidingwindow.models import Rejection
from django_slidingwindow.rejections import recorder
from tests.support.servers import RedisServer

# A busy machine is no outage.
PATIENT = {"LATENCY_BUDGET": 5.0}
PROFILES = {"api": {"axis": "global", "rate": "4/h"}}
SERVER = ["connection", "server", "eviction", "latency", "script", "clock"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis", "profiles")]


@pytest.fixture
def profiles(monkeypatch):
    # The views of other tests name profiles that this project does not have.
    monkeypatch.setattr(usages, "_usages", {})
    with override_settings(
        SLIDING_WINDOW={**PATIENT, "PROFILES": PROFILES, "FALLBACK_PROCESSES": 1}
    ):
        yield


def found() -> dict[str, diagnosis.Finding]:
    return {finding.name: finding for finding in diagnosis.examine()}


def cache(url: str, **options: Any) -> dict[str, Any]:
    default = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "OPTIONS": options}
    return {"CACHES": {"default": default}}


def run(*arguments: str) -> str:
    stream = io.StringIO()
    call_command("slidingwindow", "doctor", *arguments, stdout=stream)
    return stream.getvalue()


def test_all_in_order_is_said():
    findings = found()
    assert list(findings)[:8] == [*SERVER, "breaker", "log"]
    assert {finding.level for finding in findings.values()} == {"ok"}
    assert findings["server"].data["version"].count(".") == 2
    assert findings["latency"].data["p50_ms"] <= findings["latency"].data["p99_ms"]
    assert abs(findings["clock"].data["ahead_seconds"]) < 1
    assert findings["breaker"].data == {"state": "closed"}


def test_script_that_is_loaded_is_counted(redis):
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
def test_people_get_a_line_for_each(output):
    printed = run("--format", output)
    for name in (*SERVER, "breaker", "log"):
        assert f" {name} " in printed


def test_server_away_is_an_error_and_exit_code_1(fresh_server):
    with override_settings(**cache(fresh_server.url)):
        fresh_server.kill()
        findings = found()
        assert findings["connection"].level == "error"
        assert "latency" not in findings
        with pytest.raises(CommandError, match="1 errors") as caught:
            run("--json")
        assert caught.value.returncode == 1


def test_server_that_hangs_is_an_error_soon(fresh_server):
    with override_settings(**cache(fresh_server.url)):
        fresh_server.freeze()
        try:
            assert found()["connection"].level == "error"
        finally:
            fresh_server.thaw()


def test_cache_that_is_no_redis_is_an_error():
    backend = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    with override_settings(CACHES={"default": backend}):
        findings = found()
    assert findings["connection"].level == "error"
    assert findings["E013"].level == "error"


def test_warnings_are_no_errors():
    evicting = RedisServer("maxmemory 100mb", "maxmemory-policy allkeys-lru")
    with evicting as server, override_settings(**cache(server.url)):
        findings = found()
        assert json.loads(run("--json"))["ok"] is True
    assert findings["eviction"].level == "warning"
    assert findings["W115"].level == "warning"
    assert findings["W115"].data["id"] == "django_slidingwindow.W115"


def test_bound_on_memory_without_eviction_is_in_order():
    with RedisServer("maxmemory 100mb") as server, override_settings(**cache(server.url)):
        eviction = found()["eviction"]
    assert eviction.level == "ok"
    assert eviction.data == {"policy": "noeviction", "maxmemory": 104857600}


def test_what_the_user_may_not_ask_is_not_known(redis, redis_server):
    redis.acl_setuser("lean", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info"])
    try:
        with override_settings(**cache(redis_server.url.replace("redis://", "redis://lean:x@"))):
            findings = found()
    finally:
        redis.acl_deluser("lean")
    assert findings["server"].level == findings["eviction"].level == "warning"
    assert findings["server"].text.startswith("not known: ")
    assert findings["clock"].level == "ok"


def test_latency_above_the_budget_is_a_warning():
    with override_settings(
        SLIDING_WINDOW={**PATIENT, "PROFILES": PROFILES, "LATENCY_BUDGET": 10.0}
    ):
        assert "LATENCY_BUDGET" not in found()["latency"].text
    assert diagnosis.latency([0.001] * 97 + [0.2] * 3, 0.1).level == "warning"


def test_clocks_that_differ_are_a_warning():
    assert diagnosis.clock(3.0).level == "warning"
    assert "ahead of" in diagnosis.clock(3.0).text
    assert "behind" in diagnosis.clock(-0.2).text
    assert diagnosis.clock(-0.2).level == "ok"


def test_open_breaker_is_a_warning(fresh_server):
    with override_settings(**cache(fresh_server.url)):
        fresh_server.kill()
        for _ in range(4):
            limits.check("api", "x")
        breaker = found()["breaker"]
    assert (breaker.level, breaker.data["state"]) == ("warning", "open")


def test_log_tells_its_newest_minute():
    minute = timezone.now().replace(second=0, microsecond=0)
    Rejection.objects.create(
        minute=minute, digest="0" * 32, hits=3, first_at=minute, last_at=minute
    )
    log = found()["log"]
    assert log.level == "ok"
    assert log.data["newest"] == minute.isoformat()
    assert {"written", "dropped", "failed", "waiting"} <= set(log.data)


def test_log_that_drops_is_a_warning(monkeypatch):
    stats = replace(recorder.stats(), dropped=7, down=True)
    monkeypatch.setattr(recorder, "stats", lambda: stats)
    log = found()["log"]
    assert (log.level, log.data["dropped"]) == ("warning", 7)
    assert "7 dropped" in log.text


def test_log_whose_thread_died_is_a_warning(monkeypatch):
    stats = replace(recorder.stats(), deaths=2, unwritten=9, running=True)
    monkeypatch.setattr(recorder, "stats", lambda: stats)
    log = found()["log"]
    assert (log.level, log.data["deaths"], log.data["unwritten"]) == ("warning", 2, 9)
    assert "the thread that writes died 2 times" in log.text
    assert "9 waiting" in log.text


@pytest.mark.parametrize(
    ("running", "said"),
    [
        (True, "the last attempt failed: OSError: bad"),
        (False, "the last attempt failed and no thread writes: OSError: bad"),
    ],
)
def test_log_that_fails_is_a_warning(monkeypatch, running, said):
    stats = replace(recorder.stats(), error="OSError: bad", running=running)
    monkeypatch.setattr(recorder, "stats", lambda: stats)
    log = found()["log"]
    assert log.level == "warning"
    assert said in log.text


def test_log_is_tried_and_keeps_nothing_of_it():
    assert found()["log"].level == "ok"
    assert not Rejection.objects.exists()


def test_log_that_cannot_be_written_is_an_error():
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TRIGGER closed BEFORE INSERT ON {Rejection._meta.db_table}"
            " BEGIN SELECT RAISE(ABORT, 'read-only'); END"
        )
    log = found()["log"]
    assert log.level == "error"
    assert log.text == "the table in the database 'default' cannot be written: read-only"


def test_log_without_its_table_is_an_error():
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {Rejection._meta.db_table} RENAME TO elsewhere")
    assert found()["log"].level == "error"


def test_log_that_is_off_is_in_order():
    with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": PROFILES, "LOG": False}):
        assert found()["log"].text == "off: SLIDING_WINDOW['LOG'] is False"


def test_system_checks_come_with_their_ids():
    with override_settings(
        SLIDING_WINDOW={**PATIENT, "PROFILES": {"wrong": {"axis": "ip"}}, "ENABLED": False}
    ):
        findings = found()
    assert findings["E021"].level == "error"
    assert findings["W101"].level == "warning"
    assert findings["I102"].level == "info"
    assert findings["E021"].data["hint"] in findings["E021"].text
