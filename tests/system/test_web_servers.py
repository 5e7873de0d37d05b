"""Limits under several web servers: with greenlets, uvloop, and processes forked by uWSGI."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.support.docs_pages import blocks
from tests.support.servers.redis import HOST, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import RedisServer

WORKERS = 2
LIMIT = 60
CLIENTS = 100
# In seconds. A request may take longer than the budget on a busy machine, but less than the
# outage.
BUDGET = 1.0
MAX_SECONDS = 2.5
OUTAGE = 3.0


class Kind(NamedTuple):
    """A way to serve the site."""

    command: tuple[str, ...]
    path: str = "/"


APP = "tests.support.sites.one_limit"
GUNICORN = ("-m", "gunicorn", APP, "--bind", "{address}", "--workers", "{workers}")
GUNICORN += ("--log-level", "error", "--graceful-timeout", "1")
GEVENT = (*GUNICORN, "--worker-class", "gevent")
UVICORN = ("-m", "uvicorn", f"{APP}:asgi", "--host", HOST, "--port", "{port}")
UVICORN += ("--workers", "{workers}", "--loop", "uvloop", "--log-level", "error")
UWSGI = ("-c", "import pyuwsgi, sys; pyuwsgi.run(sys.argv[1:])", "--module", APP)
UWSGI += ("--http-socket", "{address}", "--master", "--die-on-term", "--need-app")
UWSGI += ("--processes", "{workers}", "--listen", "100", "--disable-logging")
KINDS = {
    "gunicorn gthread": Kind((*GUNICORN, "--threads", "50")),
    "gunicorn gevent": Kind(GEVENT),
    "gunicorn gevent --preload": Kind((*GUNICORN, "--config", "{config}")),
    "uvicorn uvloop": Kind(UVICORN, "/async/"),
    "uWSGI threads": Kind((*UWSGI, "--enable-threads", "--threads", "50")),
    "uWSGI gevent": Kind((*UWSGI, "--gevent", "100", "--gevent-early-monkey-patch")),
}


class Answer(NamedTuple):
    """A response, with the source of the decision, the process, and the seconds that it took."""

    status: int
    source: str
    worker: str
    seconds: float


class Site:
    """A server with several processes, and many clients."""

    def __init__(self, kind: Kind, redis_url: str, limit: int, budget: float, config: Path) -> None:
        self._path = kind.path
        self._port = free_port()
        words: dict[str, Any] = {
            "address": f"{HOST}:{self._port}",
            "port": self._port,
            "workers": WORKERS,
            "config": config,
        }
        command = [sys.executable, *(word.format(**words) for word in kind.command)]
        environment = {
            "SITE_REDIS_URL": redis_url,
            "SITE_LIMIT": str(limit),
            "SITE_WORKERS": "1",
            "SITE_LATENCY_BUDGET": str(budget),
        }
        self._process = subprocess.Popen(command, env={**os.environ, **environment})
        self._executor = ThreadPoolExecutor(CLIENTS)

    def request(self, path: str | None = None) -> Answer:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=30)
        connection.request("GET", path or self._path)
        response = connection.getresponse()
        source = response.read().decode() if response.status == 200 else ""
        worker, seconds = response.headers["X-Worker"], response.headers["X-Seconds"]
        connection.close()
        return Answer(response.status, source, worker, float(seconds))

    def wait(self) -> None:
        """Wait until every worker has answered."""
        seen: set[str] = set()

        def answer() -> bool:
            try:
                seen.add(self.request("/up/").worker)
            except OSError:
                assert self._process.poll() is None, "the server has ended"
            return len(seen) == WORKERS

        wait_until(answer, "every worker answers", 60)

    def request_together(self) -> list[Answer]:
        """Send a request from every client at once, and return the answers."""
        barrier = threading.Barrier(CLIENTS)

        def ask(_: int) -> Answer:
            barrier.wait()
            return self.request()

        return list(self._executor.map(ask, range(CLIENTS)))

    def close(self) -> subprocess.Popen[bytes]:
        """Terminate the server, and return its process, which may take a moment to end."""
        self._executor.shutdown()
        self._process.terminate()
        return self._process


Serve = Callable[[int, float], Site]


@pytest.fixture(scope="module")
def ending() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Terminated servers. Some take a second to end, while the next test runs."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.wait()


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def serve(
    request: pytest.FixtureRequest,
    fresh_server: RedisServer,
    tmp_path: Path,
    ending: list[subprocess.Popen[bytes]],
) -> Iterator[Serve]:
    """A function that starts the site with a limit and a latency budget."""
    sites: list[Site] = []

    def serve(limit: int, budget: float) -> Site:
        (shown,) = [
            block
            for block in blocks("docs/failure-modes.md", "python")
            if block.file == "gunicorn_conf.py"
        ]
        config = tmp_path / "gunicorn_conf.py"
        config.write_text(shown.code)
        sites.append(Site(request.param, fresh_server.url, limit, budget, config))
        sites[0].wait()
        return sites[0]

    yield serve
    ending += [site.close() for site in sites]


def test_concurrent_clients_are_admitted_up_to_exactly_the_limit(serve: Serve) -> None:
    # Redis must decide, however slow the machine is.
    answers = serve(LIMIT, 60.0).request_together()
    assert [answer.source for answer in answers if answer.status == 200] == ["redis"] * LIMIT
    assert [answer.status for answer in answers].count(429) == CLIENTS - LIMIT


def test_frozen_redis_delays_no_request_beyond_the_budget(
    serve: Serve, fresh_server: RedisServer
) -> None:
    site = serve(1_000_000, BUDGET)
    site.request_together()
    fresh_server.freeze()
    try:
        ends = time.monotonic() + OUTAGE
        answers = site.request_together()
        while time.monotonic() < ends:
            answers.append(site.request())
            time.sleep(0.05)
    finally:
        fresh_server.thaw()
    assert {(answer.status, answer.source) for answer in answers} == {(200, "local")}
    assert max(answer.seconds for answer in answers) < MAX_SECONDS
    back: set[str] = set()

    def recovered() -> bool:
        answer = site.request()
        assert answer.status == 200
        if answer.source == "redis":
            back.add(answer.worker)
        return len(back) == WORKERS

    wait_until(recovered, "Redis decides again in every worker", 60)
