"""manage.py slidingwindow load: on gunicorn and uvicorn, its options, errors and exit codes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from http.client import HTTPMessage
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import pytest
from django.core.management import CommandError, call_command

from django_slidingwindow.load.client import Answer, Client
from django_slidingwindow.load.report import record
from django_slidingwindow.management.subcommands import load
from django_slidingwindow.management.subcommands.load import EXAMPLE
from django_slidingwindow.policies import Policy
from tests.support.demo import Demo
from tests.support.servers.redis import HOST, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_django.fixtures import SettingsWrapper
    from redis import Redis

    from tests.support.servers import RedisServer

LIMIT = ("--limit", "10/2s")
SERVERS = {
    "gunicorn": ["gunicorn", "tests.support.sites.load", "--threads", "8"],
    "uvicorn": ["uvicorn", "tests.support.sites.load:asgi", "--log-level", "error"],
}
PROFILES: dict[str, Any] = {
    "sliding": {"axis": "ip", "rates": ["10/2s", "1000/h"]},
    "plans": {"axis": "ip", "rate": "tests.command.test_load.plan"},
    "busy": {"axis": "ip", "inflight": 5, "hold": "10s"},
    "busy_too": {"axis": "ip", "rate": "100/m", "inflight": 5, "hold": "10s"},
}


# These tests run in one process, so that each server is started only once.
on_a_site = pytest.mark.xdist_group("load")


def plan(identifier: str, request: Any) -> str:
    return "1/m"


@pytest.fixture(autouse=True)
def _profiles(settings: SettingsWrapper) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES}


@pytest.fixture(scope="module", params=SERVERS)
def site(request: pytest.FixtureRequest, redis_server: RedisServer) -> Iterator[str]:
    """Yield the address of a site on gunicorn or uvicorn."""
    port = free_port()
    at = ["--bind", f"{HOST}:{port}"] if request.param == "gunicorn" else ["--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, "-m", *SERVERS[request.param], *at],
        env={**os.environ, "SITE_REDIS_URL": redis_server.url},
        stderr=subprocess.DEVNULL,
    )
    opener = build_opener(ProxyHandler({}))

    def answers() -> bool:
        try:
            # The first request to a site is slow. Send it before the test, which measures times.
            for name in ("sliding", "fixed"):
                opener.open(f"http://{HOST}:{port}/{name}/").close()
            return True
        except URLError:
            assert process.poll() is None, "the site has ended"
            return False

    try:
        wait_until(answers, "the site answers")
        yield f"http://{HOST}:{port}"
    finally:
        process.terminate()
        process.wait()


def run(*arguments: str) -> str:
    stream = io.StringIO()
    call_command("slidingwindow", "load", *arguments, stdout=stream)
    return stream.getvalue()


def fails(*arguments: str) -> tuple[int, str]:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    return caught.value.returncode, str(caught.value)


def measured(*arguments: str) -> dict[str, Any]:
    """Return the JSON object of a test, also if the exit code is 1."""
    stream = io.StringIO()
    try:
        call_command("slidingwindow", "load", *arguments, "--json", stdout=stream)
    except CommandError as error:
        if error.returncode != 1:
            raise
    (line,) = stream.getvalue().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@on_a_site
def test_sliding_window_stays_within_its_limit(site: str, redis: Redis) -> None:
    found = measured(f"{site}/sliding/", "--profile", "sliding")
    assert found["ok"], found
    shortest, longest = found["windows"]
    assert (shortest["limit"], longest["limit"]) == (10, 1000)
    assert 1 <= shortest["most_least"] <= 10
    assert longest["verdict"] == "within"
    assert found["refused"]
    fields = found["fields"]
    assert fields["limits"] == [10]
    assert fields["remaining_seen"] == found["requests"]
    wrong = ("retry_after_missing", "retry_after_broken", "remaining_broken")
    assert [fields[name] for name in wrong] == [0, 0, 0]


@on_a_site
def test_fixed_window_admits_more_than_its_limit(site: str, redis: Redis) -> None:
    found = measured(f"{site}/fixed/", *LIMIT)
    (window,) = found["windows"]
    assert window["most_least"] > 10
    assert window["verdict"] == "over"


@on_a_site
def test_load_counts_fields_that_are_wrong(site: str) -> None:
    text = run(f"{site}/refused/", "--limit", "10/2s", "--rate", "20", "--seconds", "1")
    assert "0 admitted" in text
    assert "limit in the fields of responses: 7" in text
    assert "Retry-After: kept 0 times, broken 0 times" not in text
    assert "broken 0 times" not in text


@on_a_site
def test_load_says_that_nothing_is_proven_when_nothing_is_refused(site: str) -> None:
    text = run(f"{site}/seen/", *LIMIT, "--rate", "3", "--seconds", "1")
    assert "3 requests in" in text
    assert "Nothing was refused: the limit was not reached, so nothing is proven." in text


@on_a_site
def test_load_exits_2_when_the_page_is_missing(site: str) -> None:
    code, text = fails(f"{site}/nowhere/", *LIMIT, "--rate", "3", "--seconds", "1")
    assert code == 2
    assert text == ("No request was admitted, or refused with 429: 404 x 3. See URL and --header.")


def test_load_exits_3_when_the_site_does_not_answer() -> None:
    code, text = fails(f"http://{HOST}:{free_port()}/", *LIMIT, "--rate", "3", "--seconds", "1")
    assert code == 3
    assert text.startswith("The site does not answer: ConnectionRefusedError")


@pytest.mark.xdist_group("demo")
def test_example_project_stays_within_its_limit(tmp_path: Path) -> None:
    with Demo(tmp_path) as demo:
        arguments = ("--profile", "ip_public", "--rate", "100", "--seconds", "10")
        found = measured(f"{demo.url}/status/", *arguments)
    assert found["refused"] > 0
    (window,) = found["windows"]
    assert window["most_least"] == window["most_most"] == window["limit"] == 120


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that replaces all requests by answers: (sent, received, status)."""

    def give(*answers: tuple[float, float, int]) -> None:
        def boundary(self: Any, size: int, window: float) -> None:
            made = (Answer(sent, came, status, HTTPMessage()) for sent, came, status in answers)
            self._client.answers.extend(made)

        monkeypatch.setattr(load.Pattern, "boundary", boundary)

    return give


@pytest.mark.parametrize(
    ("spans", "shown", "verdict"),
    [
        ([(0, 0.1), (1, 1.1)], "2  within the limit", "within"),
        ([(0, 0.5), (1, 1.5), (2.2, 3)], "2 to 3  within the limit, as far as", "unsure"),
    ],
)
def test_plain_prints_bounds(
    spans: list[tuple[float, float]], shown: str, verdict: str, answered: Callable[..., None]
) -> None:
    answered(*[(sent, came, 200) for sent, came in spans])
    text = run("http://127.0.0.1/", "--limit", "2/2s")
    assert shown in text
    assert ('"18 to 20" means at least 18' in text) is (verdict == "unsure")
    (found,) = measured("http://127.0.0.1/", "--limit", "2/2s")["windows"]
    assert found["verdict"] == verdict


def test_load_exits_1_when_more_than_the_limit_is_admitted(answered: Callable[..., None]) -> None:
    answered(*[(i / 10, i / 10 + 0.01, 200) for i in range(3)])
    assert fails("http://127.0.0.1/", "--limit", "2/2s") == (1, "More than the limit was admitted.")


def test_record_has_zeros_when_there_are_no_answers() -> None:
    found = record("http://127.0.0.1/", [], [Policy.parse("2/s")])
    assert (found["requests"], found["seconds"], found["slowest"]) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["ftp://127.0.0.1/", *LIMIT], "is not an address such as"),
        (["http://shop.example/", *LIMIT], "is neither this host nor named in ALLOWED_HOSTS"),
        (["http://127.0.0.1/", "--limit", "many"], "rate 'many' has no '/'"),
        (["http://127.0.0.1/", "--profile", "slidin"], "did you mean 'sliding'?"),
        (["http://127.0.0.1/", "--profile", "plans"], "depend on the identifier: use --limit"),
        (["http://127.0.0.1/", "--profile", "busy"], "busy limits only requests in flight"),
        (["http://127.0.0.1/", "--limit", "9000/m"], "A burst of 9,900 requests is too large"),
        (
            ["http://127.0.0.1/", "--limit", "9/h"],
            "take two windows, 2 h, and this test ends",
        ),
        (["http://127.0.0.1/", *LIMIT, "--seconds", "3"], "two windows, 4 s, and this test ends"),
    ],
)
def test_load_exits_2_when_an_option_is_invalid(arguments: list[str], problem: str) -> None:
    code, text = fails(*arguments)
    assert code == 2
    assert problem in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "one of the arguments --profile --limit is required"),
        ([*LIMIT, "--profile", "sliding"], "not allowed with argument"),
        ([*LIMIT, "--rate", "1", "--burst", "1"], "not allowed with argument"),
        ([*LIMIT, "--burst", "2501"], "is not a whole number from 1 to 2,500"),
        ([*LIMIT, "--rate", "1001"], "is not a number above 0 and up to 1000"),
    ],
)
def test_parser_rejects_invalid_values(arguments: list[str], problem: str) -> None:
    _, text = fails("http://127.0.0.1/", *arguments)
    assert problem in text


@pytest.mark.parametrize(
    ("url", "hosts", "more"),
    [
        ("http://shop.example/", ["shop.example"], []),
        ("http://shop.example/", [], ["--yes-this-is-my-site"]),
    ],
)
def test_load_sends_requests_to_an_own_site(
    url: str,
    hosts: list[str],
    more: list[str],
    settings: SettingsWrapper,
    answered: Callable[..., None],
) -> None:
    settings.ALLOWED_HOSTS = hosts
    answered((0.0, 0.1, 200))
    assert "1 request in" in run(url, *LIMIT, *more)


def test_burst_and_duration_follow_from_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    clients: list[Client] = []

    def keep(self: Any, *arguments: Any) -> None:
        client = self._client
        clients.append(client)
        seen.append((*arguments, round(client.end - client.clock())))
        client.answers.append(Answer(0, 1, 200))

    monkeypatch.setattr(load.Pattern, "boundary", keep)
    monkeypatch.setattr(load.Pattern, "steady", keep)
    url = "http://127.0.0.1/"
    run(url, "--limit", "100/m")
    run(url, "--profile", "busy_too")
    run(url, "--limit", "5/m", "--burst", "7", "--seconds", "120")
    run(url, "--limit", "9000/m", "--rate", "2.5")
    run(url, "--limit", "9000/h", "--rate", "2.5")
    assert seen == [(110, 60, 190), (110, 60, 190), (7, 60, 120), (2.5, 120), (2.5, 600)]


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("--help")
    assert ended.value.code == 0
    assert EXAMPLE.strip() in capsys.readouterr().out
