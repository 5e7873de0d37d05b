"""The client sends requests to a server on loopback."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from django_slidingwindow import __version__
from django_slidingwindow.load import client as module
from django_slidingwindow.load.client import Client
from django_slidingwindow.load.target import Target
from tests.support.servers.redis import free_port


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers))  # type: ignore[attr-defined]
        if self.path == "/silent/":
            return
        self.send_response(200 if self.path == "/ok/" else 429)
        self.send_header("Retry-After", "3")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.seen = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def make(server: Any) -> Iterator[Any]:
    made = []

    def client(path: str = "/ok/", **options: Any) -> Client:
        url = f"http://127.0.0.1:{options.pop('port', server.server_port)}{path}"
        made.append(Client(Target.of(url), **{"seconds": 60, **options}))
        return made[-1]

    yield client
    for one in made:
        one.close()


def test_request_has_the_user_agent_and_the_given_headers(make: Any, server: Any) -> None:
    answer = make(headers=[("X-API-Key", "secret")]).ask()
    assert (answer.status, answer.admitted, answer.refused) == (200, True, False)
    assert answer.sent < answer.came
    ((path, headers),) = server.seen
    assert path == "/ok/"
    assert headers["X-API-Key"] == "secret"
    assert headers["User-Agent"].startswith(f"django_slidingwindow-load/{__version__} ")


def test_request_has_each_header_once(make: Any, server: Any) -> None:
    given = [("x-key", "a"), ("X-Key", "b"), ("user-agent", "mine"), ("Accept", "text/plain")]
    make(headers=given).ask()
    ((_, headers),) = server.seen
    assert headers.get_all("X-Key") == ["a,b"]
    assert headers.get_all("User-Agent") == ["mine"]
    assert headers.get_all("Connection") == ["close"]
    assert headers.get_all("Accept") == ["text/plain"]


def test_answer_of_a_refusal_has_its_headers(make: Any) -> None:
    answer = make("/refused/").ask()
    assert (answer.status, answer.admitted, answer.refused) == (429, False, True)
    assert answer.headers["Retry-After"] == "3"


def test_burst_returns_only_its_own_answers(make: Any, server: Any) -> None:
    client = make()
    client.ask()
    assert len(client.burst(20)) == 20
    assert len(client.answers) == len(server.seen) == 21


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_answer_has_no_status_when_the_connection_fails(make: Any, scheme: str) -> None:
    client = Client(Target.of(f"{scheme}://127.0.0.1:{free_port()}/"), seconds=60)
    answer = client.ask()
    client.close()
    assert answer is not None
    assert answer.status is None
    assert not answer.admitted
    assert not answer.refused
    assert answer.error.startswith("ConnectionRefusedError")


def test_answer_has_no_status_when_the_host_is_not_a_name() -> None:
    client = Client(Target.of("http://shop..example/"), seconds=60)
    answer = client.ask()
    client.close()
    assert answer is not None
    # Python 3.13 raises a subclass of UnicodeError.
    assert re.match(r"Unicode(Encode)?Error: ", answer.error)


def test_answer_has_no_status_when_there_is_no_response(make: Any) -> None:
    answer = make("/silent/").ask()
    assert answer.status is None
    assert answer.error.startswith("RemoteDisconnected")


def test_client_sends_nothing_when_its_time_is_over(make: Any, server: Any) -> None:
    now = [0.0]
    client = make(seconds=5, clock=lambda: now[0])
    assert client.burst(1)
    now[0] = 5.0
    assert client.ask() is None
    assert not client.begin()
    assert len(server.seen) == 1


def test_client_drops_waiting_requests_when_its_time_is_over(
    make: Any, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WORKERS", 1)
    now = [0.0]

    def clock() -> float:
        # Each request that has reached the server advances the clock by 2 seconds.
        return now[0] + 2 * len(server.seen)

    assert len(make(seconds=5, clock=clock).burst(10)) == 3


def test_client_sends_at_most_max_requests(
    make: Any, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_REQUESTS", 4)
    client = make()
    assert len(client.burst(10)) == 4
    assert client.ask() is None
    assert len(server.seen) == 4


def test_close_drops_requests_that_are_not_sent_yet(
    make: Any, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WORKERS", 1)
    release = threading.Event()
    monkeypatch.setattr(Client, "_exchange", lambda self: release.wait(20))
    client = make()
    for _ in range(3):
        client.begin()
    threading.Thread(target=lambda: (time.sleep(0.1), release.set())).start()
    client.close()
    assert len(client.answers) == 1
