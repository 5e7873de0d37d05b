"""`manage.py slidingwindow usage`."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings
from django.utils import timezone

from django_slidingwindow.inspection import spans
from tests.support.rejection_factories import row
from tests.support.usage_factories import usage_row

pytestmark = pytest.mark.django_db

PROFILES = {
    "api": {"axis": "tenant", "rates": ["10/m", "200/h"], "log": "all"},
    "plain": {"axis": "tenant", "rate": "10/m"},
    "slots": {"axis": "tenant", "inflight": 2, "hold": "30s"},
}
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    with override_settings(SLIDING_WINDOW={"PROFILES": PROFILES}):
        yield


def run(*arguments: str) -> str:
    stream = io.StringIO()
    call_command("slidingwindow", "usage", *arguments, stdout=stream)
    return stream.getvalue()


def minute(back: int) -> Any:
    return timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=back)


def fill() -> None:
    for back in range(1, 101):
        usage_row(minute=minute(back), hits=back % 12 + 1).save()
    usage_row(minute=minute(3), identifier="globex", hits=2, cost=8).save()
    row(profile="api", identifier="acme", minute=minute(3), hits=4).save()


def test_plain_prints_percentiles_and_the_busiest_identifiers() -> None:
    fill()
    printed = run("--profile", "api")
    lines = printed.splitlines()
    assert lines[0].split()[-7:] == ["50", "%", "95", "%", "99", "%", "MOST"]
    assert lines[1].split() == ["10", "1", "min", "1", "min", "101", "6", "12", "12", "12"]
    assert lines[2].split()[:5] == ["200", "1", "h", "1", "h"]
    assert "2 identifiers" in printed
    assert "4 refused" in printed
    assert "globex" in printed


def test_json_has_a_record_for_each_window() -> None:
    fill()
    records = [json.loads(line) for line in run("--profile", "api", "--json").splitlines()]
    assert [(one["limit"], one["window"], one["minutes"]) for one in records] == [
        (10, 60.0, 1),
        (200, 3600.0, 60),
    ]
    first = records[0]
    assert (first["p50"], first["p95"], first["p99"], first["most"]) == (6, 12, 12, 12)
    assert (first["windows"], first["identifiers"], first["others"]) == (101, 2, 0)
    assert first["refused"] == 4
    assert first["cost"] == first["admitted"] + 6
    assert first["busiest"][0]["identifier"] == "acme"


def test_totals_are_printed_when_the_profile_has_no_window_to_measure() -> None:
    row(profile="slots", identifier="acme", minute=minute(3), hits=4).save()
    printed = run("--profile", "slots")
    assert printed.startswith("Most requests:")
    assert "\n1 identifier, 0 requests admitted, which cost 0 hits, 4 refused.\n" in printed
    assert "4 refused" in printed
    (record,) = map(json.loads, run("--profile", "slots", "--json").splitlines())
    assert (record["profile"], record["refused"], "window" in record) == ("slots", 4, False)


def test_identifier_has_a_record_for_each_minute_and_view() -> None:
    fill()
    records = [
        json.loads(line)
        for line in run("--profile", "api", "--id", "globex", "--json", "--since", "1h").split("\n")
        if line
    ]
    assert records == [
        {
            "minute": minute(3).isoformat(timespec="minutes"),
            "profile": "api",
            "identifier": "globex",
            "view": "api/orders/",
            "admitted": 2,
            "cost": 8,
            "refused": 0,
        }
    ]
    assert run("--profile", "api", "--id", "acme", "--since", "10m").count("api/orders/") == 9


@pytest.mark.parametrize("output", ["plain", "rich"])
def test_output_escapes_hostile_identifiers_and_views(output: str) -> None:
    usage_row(identifier=HOSTILE, view="\x1b[2J").save()
    printed = run("--profile", "api", "--format", output)
    printed += run("--profile", "api", "--id", HOSTILE, "--format", output)
    assert "\x1b[31m" not in printed
    assert "\u202e" not in printed
    assert "\x1b[2J" not in printed


def test_usage_mentions_lost_identifiers() -> None:
    usage_row(identifier="", others=True, hits=5).save()
    printed = run("--profile", "api")
    assert "5 of them are beyond LOG_ROWS_PER_MINUTE" in printed


def test_usage_mentions_that_the_profile_logs_only_refusals() -> None:
    row(profile="plain", identifier="acme", hits=3).save()
    printed = run("--profile", "plain")
    assert "logs refused requests only" in printed
    assert "logs refused requests only" not in run("--profile", "plain", "--json")


def test_usage_mentions_when_there_are_too_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    fill()
    monkeypatch.setattr(spans, "MOST_ROWS", 20)
    printed = run("--profile", "api")
    assert re.search(r"The logs have too many rows: only those from \S+:\d\d\+00:00 on", printed)


def test_since_accepts_times() -> None:
    usage_row(minute=minute(90)).save()
    naive = timezone.make_naive(minute(100)).isoformat()
    assert run("--profile", "api", "--since", naive)
    assert run("--profile", "api", "--since", minute(100).isoformat())
    assert run("--profile", "api", "--since", minute(100).strftime("%Y-%m-%dT%H:%MZ"))
    with pytest.raises(CommandError):
        run("--profile", "api", "--since", "1h")


@override_settings(USE_TZ=False)
def test_since_accepts_times_when_use_tz_is_off() -> None:
    usage_row(minute=minute(90)).save()
    assert run("--profile", "api", "--since", minute(100).isoformat())
    assert run("--profile", "api", "--since", timezone.make_aware(minute(100)).isoformat())


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["--profile", "api"], 1, "no such request"),
        (["--profile", "api", "--id", "acme"], 1, "no such request"),
        (["--profile", "apo"], 2, "did you mean 'api'"),
    ],
)
def test_usage_exits_1_or_2_when_it_fails(arguments: list[str], code: int, problem: str) -> None:
    with pytest.raises(CommandError, match=problem) as raised:
        run(*arguments)
    assert raised.value.returncode == code


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--profile", "api", "--since", "yesterday"], "neither a duration such as 7d"),
        (["--profile", "api", "--since", "500d"], "such as 7d, at most 400d, nor a time"),
        (["--profile", "api", "--since", "2999-01-01"], "in the future"),
        (["--profile", "api", "--since", "0001-01-01T00:00+05:00"], "neither a duration"),
        (["--profile", "api", "--since", "2026-13-01T00:00Z"], "neither a duration"),
        (["--profile", "api", "--id", ""], "the value is empty"),
        ([], "--profile"),
    ],
)
def test_parser_rejects_invalid_arguments(arguments: list[str], problem: str) -> None:
    # In a process of its own, argparse exits with 2.
    with pytest.raises(CommandError, match=problem):
        run(*arguments)


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--help")
    assert "manage.py slidingwindow usage --profile stripe --since 7d" in capsys.readouterr().out
