"""manage.py slidingwindow replay: output, options, errors, and the page in a browser."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.management.commands.slidingwindow import Command
from django_slidingwindow.models import Rejection
from django_slidingwindow.rejections import recorder
from django_slidingwindow.replay.texts import share_text
from tests.support.docs_pages import DOCS
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

HOSTILE = "<script>document.title='owned'</script>\x1b[31m\u202e"
PROFILES: dict[str, Any] = {
    "login": {"axis": "ip", "rates": ["2/m", "20/h"], "algorithm": "log", "count_rejected": True},
    "slots": {"axis": "ip", "inflight": 5},
    "plans": {"axis": "ip", "rate": "tests.command.test_replay.plan", "algorithm": "buckets"},
}


def plan(identifier: str, request: Any) -> str:
    return "1/m"


@pytest.fixture(autouse=True)
def _profiles():
    with override_settings(SLIDING_WINDOW={"PROFILES": PROFILES}):
        yield


def line(second: int, ip: str = "203.0.113.9", path: str = "/a") -> str:
    return f'{ip} - - [17/Nov/2026:03:12:{second:02} +0000] "GET {path} HTTP/1.1" 200 12\n'


@pytest.fixture
def log(tmp_path: Path) -> str:
    """Return a log: three requests in ten seconds, one of another client, and a damaged line."""
    file = tmp_path / "access.log"
    other = line(5, "2001:db8::1")
    file.write_text(line(0) + line(4) + "rubbish\x1b[31m\n" + other + line(9))
    return str(file)


def run(*arguments: str) -> str:
    stream = io.StringIO()
    call_command("slidingwindow", "replay", *arguments, stdout=stream)
    return stream.getvalue()


def found(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in run(*arguments, "--json").splitlines()]


def fails(*arguments: str) -> tuple[int, str]:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    return caught.value.returncode, str(caught.value)


def test_json_is_one_object_per_candidate(log: str) -> None:
    first, second = found(log, "--try", "2/m", "--try", "1/4s,3/m", "--suggest", "50%")
    assert first == {
        "try": "2/m",
        "profile": None,
        "algorithm": "compact",
        "requests": 4,
        "refused": 1,
        "refused_share": 0.25,
        "refused_least": 1,
        "refused_most": 1,
        "identifiers": 2,
        "identifiers_refused": 1,
        "identifiers_share": 0.5,
        "longest_wait": 51.0,
        "busiest_minute": {"minute": "2026-11-17T03:12:00Z", "requests": 4, "refused": 1},
        "most_affected": [{"identifier": "203.0.113.9", "requests": 3, "refused": 1}],
        "fixed_window": {
            "refused": 1,
            "beyond": 0,
            "windows": [{"limit": 2, "window": 60.0, "most": 2}],
        },
        "suggest": [{"window": 60.0, "limit": 1, "identifiers_refused": 1, "limit_most": 1}],
        "first": "2026-11-17T03:12:00Z",
        "last": "2026-11-17T03:12:09Z",
        "lines": 5,
        "unreadable": 1,
        "unreadable_lines": [{"file": log, "line": 3, "text": "rubbish\x1b[31m"}],
        "unidentified": 0,
        "filtered": 0,
        "late": 0,
    }
    assert (second["try"], second["refused_least"], second["refused_most"]) == ("1/4s,3/m", 0, 1)


def test_plain_prints_a_table(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = run(log, "--try", "1/5s", "--try", "1/4s", "--try", "9/m", "--suggest", "0%")
    assert re.search(r"^1/4s +4 +0 to 1 +0\.00% +2 +0 ", printed, re.MULTILINE)
    assert re.search(r"^1/5s +4 +1 +25\.00% +2 +1 +50\.00% +1 s +-$", printed, re.MULTILINE)
    assert re.search(r"^9/m +4 +0 +0\.00% +2 +0 +0\.00% +- +-$", printed, re.MULTILINE)
    assert "Most affected by 1/5s:" in printed
    assert "Most affected by 9/m:" not in printed
    assert "1/4s: the smallest limit is 1 in 4 s, to be sure 2 (identifiers touched: 0)" in printed
    assert "The stamps are whole seconds" in printed
    assert "Busiest minute: 2026-11-17T03:12:00Z, 4 requests." in printed
    assert "Lines that could not be read: 1 of 5." in printed
    assert f"{log}:3: rubbish%1B[31m" in printed
    assert "\x1b" not in printed


def test_plain_prints_remarks(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    stamps = (9.5, 8, 7, 1)
    rows = [{"time": stamp, "ip": "::1", "status": 200} for stamp in stamps]
    file.write_text("\n".join(map(json.dumps, [*rows, {"time": 5}, {"time": 6, "status": 429}])))
    html = tmp_path / "a.html"
    arguments = ("--status", "!429", "--reorder", "1", "--html", str(html))
    printed = run(str(file), "--try", "0/s", *arguments)
    assert "requests without an identifier, not counted" in html.read_text()
    assert "Requests without an identifier, not counted: 1." in printed
    assert "Requests left out by the filters: 1." in printed
    assert "Lines too late to be sorted" in printed
    assert "whole seconds" not in printed
    assert "for ever" in printed
    (record,) = found(str(file), "--try", "2/s")
    assert "refused_least" not in record


def test_share_above_zero_is_never_shown_as_zero() -> None:
    shares = (0, 0.00001, 0.001, 1)
    assert list(map(share_text, shares)) == ["0.00%", "<0.01%", "0.10%", "100.00%"]


def test_fixed_window_admits_more(tmp_path: Path) -> None:
    file = tmp_path / "edge.log"
    edge = [f'::1 - - [17/Nov/2026:00:0{i}:{s} +0000] "-" 200 1' for i, s in ((0, 59), (1, "01"))]
    file.write_text("\n".join(text for text in edge for _ in range(10)))
    (record,) = found(str(file), "--try", "10/m")
    assert record["refused"] == 10
    assert record["fixed_window"] == {
        "refused": 0,
        "beyond": 10,
        "windows": [{"limit": 10, "window": 60.0, "most": 20}],
    }
    assert re.search(r"10 \(20/10\)$", run(str(file), "--try", "10/m"), re.MULTILINE)


def test_profile_sets_rates_axis_and_algorithm(log: str) -> None:
    own, tried = found(log, "--profile", "login", "--try", "1/m")
    assert (own["try"], own["profile"], own["algorithm"]) == ("2/60s,20/3600s", "login", "log")
    assert (tried["algorithm"], tried["profile"]) == ("log", None)
    # There are no bounds for several policies with `count_rejected`.
    assert (own["refused"], own["refused_least"], own["refused_most"]) == (1, None, None)
    assert "login: 2/60s,20/3600s" in run(log, "--profile", "login")
    (chosen,) = found(log, "--profile", "plans", "--try", "1/m", "--algorithm", "counter")
    assert chosen["algorithm"] == "counter"
    (tried,) = found(log, "--profile", "plans", "--try", "1/m")
    assert tried["algorithm"] == "buckets"


def test_options_set_how_logs_are_read(tmp_path: Path) -> None:
    conf, file = tmp_path / "nginx.conf", tmp_path / "a.log"
    conf.write_text("log_format mine '$remote_addr [$time_local] $http_x_tenant';\n")
    file.write_text("::1 [17.11.2026 04:00] acme\n::1 [17.11.2026 05:00] acme\n")
    (record,) = found(
        *(str(file), "--try", "1/d", "--log-format", "mine", "--nginx-conf", str(conf)),
        *("--time", "%d.%m.%Y %H:%M", "--timezone", "Europe/Berlin", "--field", "user=tenant"),
        *("--identify", "field:http_x_tenant", "--since", "2026-11-17 05:00"),
    )
    assert (record["requests"], record["filtered"]) == (1, 1)
    assert record["first"] == "2026-11-17T04:00:00Z"
    with pytest.raises(CommandError, match="no request to replay"):
        run(str(file), "--try", "1/d", "--log-format", "$msec $status")


def test_filters_combine(log: str) -> None:
    arguments = ("--try", "0/s", "--path", "^/a", "--method", "GET", "--status", "2xx")
    (record,) = found(log, *arguments, "--until", "2026-11-17T03:12:05Z")
    assert (record["requests"], record["filtered"]) == (2, 2)
    assert record["longest_wait"] is None
    lists = ("--method", "POST, get", "--status", "404, 2xx")
    assert found(log, "--try", "1/s", *lists)[0]["requests"] == 4
    assert fails(log, "--try", "0/s", "--profile", "login", "--rules")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "there is nothing to try"),
        (["--profile", "plans"], "depends on the identifier: give --try"),
        (["--profile", "slots"], "is on requests in flight: give --try"),
        (["--profile", "lgoin"], "did you mean 'login'"),
        (["--try", "30"], "has no '/'"),
        (["--try", "1/s", "--suggest", "5"], "is not a share"),
        (["--try", "1/s", "--log-format", "mine"], "--nginx-conf says where"),
        (["--try", "1/s", "--log-format", "x", "--nginx-conf", "/gone"], "cannot read /gone"),
        (["--try", "1/s", "--time", "noon"], "is not one of auto"),
        (["--try", "1/s", "--time", "%d %Q"], "'%d %Q' is not a format of strptime"),
        (["--try", "1/s", "--since", "noon"], "is not a time"),
        (["--try", "1/s", "--path", "("], "is not a regular expression"),
        (["--try", "1/s", "--identify", "me"], "is not one of ip"),
        (["--try", "1/s", "--rules"], "--rules needs --profile"),
        (["--try", "1/s", "--html", "/gone/page.html"], "cannot write /gone/page.html"),
        (["--try", "1/s", "--html", "/"], "cannot write /: Is a directory."),
        (["/gone", "--try", "1/s"], "cannot read /gone"),
    ],
)
def test_replay_exits_2_when_an_option_is_invalid(
    log: str, arguments: list[str], problem: str
) -> None:
    code, text = fails(log, *arguments)
    assert code == 2
    assert problem in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--field", "colour=red"], "is not WHAT=NAME"),
        (["--field", "ip"], "is not WHAT=NAME"),
        (["--timezone", "Mars/Olympus"], "is not a time zone"),
        (["--reorder", "0"], "is not a whole number"),
        (["--algorithm", "leaky"], "invalid choice"),
    ],
)
def test_parser_rejects_invalid_values(log: str, arguments: list[str], problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        run(log, "--try", "1/s", *arguments)


def test_replay_exits_1_when_there_is_no_request(tmp_path: Path) -> None:
    file = tmp_path / "empty.log"
    file.write_text("")
    assert fails(str(file), "--try", "1/s") == (1, "There is no request to replay.")
    file.write_text("rubbish\n")
    code, text = fails(str(file), "--try", "1/s", "--log-format", "combined")
    assert code == 1
    assert "Lines that could not be read: 1 of 1." in text
    assert fails(str(file), "--try", "1/s")[0] == 2


def test_progress_is_drawn_on_a_terminal(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_slidingwindow.replay.engine._REPORTED_EVERY", 2)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal.screen)
    run(log, "--try", "1/s")
    assert "of about 0 MB" in terminal.close()


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Command().create_parser("manage.py", "slidingwindow")
    with contextlib.suppress(SystemExit):
        parser.parse_args(["replay", "--help"])
    printed = capsys.readouterr().out
    assert "manage.py slidingwindow replay access.log --try 30/m --try 60/m,500/h" in printed
    named = set(re.findall(r"(?<![\w-])--[a-z-]+", printed))
    page = (DOCS / "commands.md").read_text()
    chapter = re.split(r"^## ", page.split("\n## replay\n")[1], flags=re.MULTILINE)[0]
    django = {"--help", "--format", "--json"}
    assert named - django == set(re.findall(r"(?<=`)--[a-z-]+", chapter)) - django


def test_page_is_self_contained_and_has_no_scripts(tmp_path: Path, log: str) -> None:
    html = tmp_path / "report.html"
    run(log, "--try", "1/4s", "--try", "9/m", "--suggest", "0%", "--html", str(html))
    text = html.read_text()
    assert "0 to 1" in text
    assert "rubbish%1B[31m" in text
    assert "to be sure 2" in text
    assert "Nobody would have been refused." in text
    assert not re.search(r"<script|<link|\bsrc=|https?://|url\(|@import", text)


def page_of_a_site(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


urlpatterns = [path("search/", rate_limit("search", methods="GET")(page_of_a_site))]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("redis")
def test_replay_refuses_what_the_site_refused(tmp_path: Path) -> None:
    """Compare a replay of real requests with the rejection log that the site has written."""
    profile = {"axis": "ip", "rates": ["4/m", "9/h"]}
    settings = {"PROFILES": {"search": profile}, "LATENCY_BUDGET": 30.0, "SHIELD_SECONDS": 0}
    lines = []
    with override_settings(SLIDING_WINDOW=settings, ROOT_URLCONF=__name__):
        for i in range(60):
            address, method = f"203.0.113.{i % 7}", "POST" if i % 10 == 9 else "GET"
            status = Client(REMOTE_ADDR=address).generic(method, "/search/").status_code
            stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime())
            lines.append(f'{address} - - [{stamp}] "{method} /search/ HTTP/1.1" {status} 1')
        assert recorder.flush()
        (tmp_path / "access.log").write_text("\n".join(lines))
        (record,) = found(str(tmp_path / "access.log"), "--profile", "search", "--rules")
    assert record["refused"] == Rejection.objects.aggregate(Sum("hits"))["hits__sum"] > 0
    assert record["refused"] == sum(" 429 " in line for line in lines)
    assert record["filtered"] == 6
    assert {row["identifier"]: row["refused"] for row in record["most_affected"]} == {
        row["identifier"]: row["total"]
        for row in Rejection.objects.values("identifier").annotate(total=Sum("hits"))
    }


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Return a report about some days, with a hostile identifier and a hostile line."""
    file, html = tmp_path / "a.json", tmp_path / "report.html"
    rows = [
        {"time": 1_794_885_000 + 600 * i + j, "ip": HOSTILE if i % 3 else f"198.51.100.{i % 50}"}
        for i in range(600)
        for j in range(1 + i % 7)
    ]
    file.write_text("\n".join([HOSTILE, *map(json.dumps, rows)]))
    run(str(file), "--try", "3/m", "--try", "5/m,9/h", "--suggest", "1%", "--html", str(html))
    return html


@pytest.mark.xdist_group("browser")
def test_page_is_readable_in_a_browser(chromium: WebDriver, report: Path) -> None:
    chromium.execute_cdp_cmd("Network.enable", {})
    chromium.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    chromium.get(report.as_uri())
    assert chromium.title == f"Replay of {report.with_name('a.json')}"
    assert chromium.find_elements("css selector", "script, link, img") == []
    assert "<script>document.title='owned'</script>%1B[31m" in chromium.page_source.replace(
        "&lt;", "<"
    ).replace("&gt;", ">")
    for width in (1300, 390):
        chromium.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 1300, "deviceScaleFactor": 1, "mobile": False},
        )
        script = "return document.documentElement.scrollWidth - window.innerWidth"
        assert chromium.execute_script(script) <= 0
        papers = []
        for theme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": theme}
            chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            papers.append(
                chromium.execute_script("return getComputedStyle(document.body).backgroundColor")
            )
            folder = os.environ.get("TEST_SCREENSHOTS")
            if folder:
                chromium.save_screenshot(str(Path(folder) / f"replay-{width}-{theme}.png"))
        assert papers == ["rgb(255, 255, 255)", "rgb(13, 17, 23)"]
    assert [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"] == []
