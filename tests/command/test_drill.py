"""manage.py slidingwindow drill: output, options, errors and exit codes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command

from django_slidingwindow.drill.outage import BLACKHOLE
from django_slidingwindow.management.commands.slidingwindow import Command
from django_slidingwindow.management.subcommands import drill
from django_slidingwindow.management.subcommands.drill import EXAMPLE
from tests.support.demo import ROOT, environment

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_django.fixtures import SettingsWrapper
    from redis import Redis

    from tests.support.servers import RedisServer

QUICK = ("--seconds", "0.3", "--requests", "12")
pytestmark = [pytest.mark.urls("tests.support.sites.drill_urls"), pytest.mark.django_db]


@pytest.fixture(autouse=True)
def _site(settings: SettingsWrapper, redis: Redis) -> None:
    settings.ALLOWED_HOSTS = ["*", ".shop.example"]
    profiles = {
        "many": {"axis": "ip", "limit": 1000, "window": 3600},
        "keyed": {"axis": "header:X-API-Key", "limit": 1000, "window": 3600},
    }
    # A large budget: a busy machine must not look like an outage.
    settings.SLIDING_WINDOW = {"PROFILES": profiles, "LATENCY_BUDGET": 5, "LOG": False}


def run(*arguments: str) -> str:
    stream = io.StringIO()
    call_command("slidingwindow", "drill", *arguments, stdout=stream)
    return stream.getvalue()


def fails(*arguments: str) -> tuple[int, str]:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    return caught.value.returncode, str(caught.value)


def test_plain_lists_kept_promises_and_the_affected_process() -> None:
    text = run("--path", "/page/", *QUICK)
    assert "Redis refused connections for this process alone" in text
    assert f"(process {os.getpid()}). Other processes of the site were not affected." in text
    assert "local: 12 admitted" in text
    assert "signals: limit_checked" in text
    assert "metric: slidingwindow_fallbacks_total{alias=default} 1" in text
    assert "recovery: " in text
    assert "LATENCY_BUDGET: 5 s" in text
    assert len([line for line in text.splitlines() if line.startswith("kept ")]) == 7
    assert "BROKEN" not in text


def test_json_is_one_object() -> None:
    (line,) = run("--path", "/page/", "--asgi", "--json", *QUICK).splitlines()
    found = json.loads(line)
    assert found["ok"] is True
    assert found["handler"] == "asgi"
    assert found["paths"] == ["/page/"]
    assert [phase["phase"] for phase in found["phases"]] == ["before", "outage", "after"]


def test_plain_describes_a_black_hole(settings: SettingsWrapper) -> None:
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "LATENCY_BUDGET": 0.4}
    text = run("--path", "/page/", "--way", BLACKHOLE, "--seconds", "0.2", "--requests", "1")
    assert "Redis answered nothing for this process alone" in text
    assert "not seen" in text
    assert "Not seen: send more --requests, or let the outage last for more --seconds." in text
    assert "recovery: " not in text


def test_drill_exits_1_when_a_promise_is_broken() -> None:
    stream = io.StringIO()
    with pytest.raises(CommandError, match=r"^Broken promises: answered\.$") as caught:
        call_command("slidingwindow", "drill", "--path", "/fragile/", *QUICK, stdout=stream)
    assert caught.value.returncode == 1
    assert "BROKEN" in stream.getvalue()
    assert "the first: /fragile/ 500" in stream.getvalue()


def test_options_become_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Any] = []

    def stop(plan: Any) -> None:
        plans.append(plan)
        raise drill.DrillError("stopped")

    monkeypatch.setattr(drill, "rehearse", stop)
    options = ["--method", "head", "--ip", "2001:DB8::1", "--header", "X-API-Key: a:b"]
    assert fails("--path", "/é/?a=1", "--path", "/b/", *options) == (2, "stopped")
    ((first, second),) = [plan.calls for plan in plans]
    assert (first.path, second.path) == ("/%C3%A9/?a=1", "/b/")
    assert (first.method, first.ip, first.host) == ("HEAD", "2001:db8::1", "shop.example")
    assert first.headers == (("X-API-Key", "a:b"),)


@pytest.mark.parametrize("hosts", [[], ["*"]])
def test_host_is_localhost_when_allowed_hosts_names_none(
    hosts: list[str], settings: SettingsWrapper
) -> None:
    settings.ALLOWED_HOSTS = hosts
    assert drill._host() == "localhost"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "Give at least one --path. Its view runs for real"),
        (["--path", "page/"], "'page/' is not a path"),
        (["--path", "//evil\x1b/"], "'//evil%1B/' is not a path"),
        (["--path", "/free/"], "No limit was checked for GET /free/ from 127.0.0.1 (status 200)"),
        (["--path", "/page/", "--ip", "here"], "'here' does not appear to be an IPv4 or IPv6"),
        (["--path", "/page/", "--method", "G T"], "'G T' is not a method"),
    ],
)
def test_drill_exits_2_when_an_option_is_invalid(arguments: list[str], problem: str) -> None:
    code, text = fails(*arguments)
    assert code == 2
    assert problem in text


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--seconds", "0", "'0' is not a number above 0 and up to 600"),
        ("--seconds", "soon", "is not a number above 0"),
        ("--seconds", "601", "is not a number above 0"),
        ("--requests", "0", "'0' is not a whole number from 1 to 10,000"),
        ("--requests", "10001", "is not a whole number"),
        ("--requests", "9" * 5000, "is not a whole number"),
        ("--header", "X-API-Key", "'X-API-Key' is not a header field, such as"),
        ("--way", "flood", "invalid choice: 'flood'"),
    ],
)
def test_parser_rejects_invalid_values(option: str, value: str, problem: str) -> None:
    _, text = fails("--path", "/page/", option, value)
    assert problem in text


with_headers = pytest.mark.parametrize(
    "arguments",
    [
        ["drill", "--path", "/page/"],
        ["explain", "GET", "/page/"],
        ["load", "http://127.0.0.1:1/", "--limit", "5/m"],
    ],
    ids=["drill", "explain", "load"],
)


@with_headers
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("X-Key:abc", ("X-Key", "abc")),
        ("Forwarded: for=1;by=2:3 ", ("Forwarded", "for=1;by=2:3")),
        ("X.Key: a", ("X.Key", "a")),
    ],
)
def test_header_is_split_into_name_and_value(
    arguments: list[str], text: str, expected: tuple[str, str]
) -> None:
    parser = Command().create_parser("manage.py", "slidingwindow")
    assert parser.parse_args([*arguments, "--header", text]).header == [expected]


@with_headers
@pytest.mark.parametrize(
    "text",
    [
        *("", "X-Key", ":abc", ": abc", "X_Key:abc", "X Key:abc", "X-Key :abc", "X-Key\n:abc"),
        *("X: a\r\nY: b", "X: a\x00b", "X: ü", "Ü: a"),
    ],
)
def test_header_is_rejected_when_it_is_not_a_plain_field(arguments: list[str], text: str) -> None:
    parser = Command().create_parser("manage.py", "slidingwindow")
    with pytest.raises(CommandError, match="is not a header field, such as"):
        parser.parse_args([*arguments, "--header", text])


def test_drill_exits_3_when_redis_is_already_down(
    fresh_server: RedisServer, settings: SettingsWrapper
) -> None:
    location = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}
    settings.CACHES = {"default": location}
    fresh_server.kill()
    code, text = fails("--path", "/page/", *QUICK)
    assert code == 3
    assert text.startswith("Redis is away: ")


@pytest.mark.parametrize("handler", [[], ["--asgi"]], ids=["wsgi", "asgi"])
def test_example_project_keeps_all_promises(
    handler: list[str], tmp_path: Path, redis_server: RedisServer
) -> None:
    command = [sys.executable, ROOT / "example_project" / "manage.py", "slidingwindow", "drill"]
    done = subprocess.run(
        [*command, "--path", "/status/", *QUICK, "--json", *handler],
        env=environment(tmp_path, PYTHONPATH=str(ROOT), REDIS_URL=redis_server.url),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {promise["kept"] for promise in found["promises"]} == {True}
    assert "Redis is away" in done.stderr, "the drill is in the site's own log"


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("--help")
    assert ended.value.code == 0
    assert EXAMPLE.strip() in capsys.readouterr().out
