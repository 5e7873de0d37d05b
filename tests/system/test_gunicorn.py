"""gunicorn with several workers during an outage of Redis and after it."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.support.servers.redis import HOST, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import RedisServer

WORKERS = 3
LIMIT = 60


class Answer(NamedTuple):
    """A response, with the times of the request and of the response."""

    sent: float
    came: float
    status: int
    source: str
    worker: str


class Site:
    """gunicorn with several workers, under a steady load."""

    callers = 4

    def __init__(self, redis_url: str, budget: float) -> None:
        """Start gunicorn. `budget` is the latency budget in seconds."""
        self.port = free_port()
        self.answers: list[Answer] = []
        self._ended = threading.Event()
        environment = {
            "SITE_REDIS_URL": redis_url,
            "SITE_LIMIT": str(LIMIT),
            "SITE_WORKERS": str(WORKERS),
            "SITE_LATENCY_BUDGET": str(budget),
        }
        command = [sys.executable, "-m", "gunicorn", "tests.support.sites.one_limit", "--preload"]
        command += ["--bind", f"{HOST}:{self.port}", "--workers", str(WORKERS)]
        command += ["--threads", "2", "--log-level", "error", "--graceful-timeout", "1"]
        self._process = subprocess.Popen(command, env={**os.environ, **environment})
        self._executor = ThreadPoolExecutor(self.callers)
        self._running: list[Future[None]] = []

    def request(self) -> Answer:
        sent = time.monotonic()
        connection = http.client.HTTPConnection(HOST, self.port, timeout=20)
        connection.request("GET", "/")
        response = connection.getresponse()
        source = response.read().decode() if response.status == 200 else ""
        worker = response.headers.get("X-Worker", "")
        connection.close()
        return Answer(sent, time.monotonic(), response.status, source, worker)

    def wait(self) -> None:
        def answers() -> bool:
            try:
                return bool(self.request())
            except OSError:
                assert self._process.poll() is None, "gunicorn has ended"
                return False

        wait_until(answers, "the site answers")

    def load(self) -> None:
        self._running = [self._executor.submit(self._ask) for _ in range(self.callers)]

    def go_on(self, count: int) -> None:
        """Wait for this number of further answers."""
        goal = len(self.answers) + count
        wait_until(
            lambda: len(self.answers) >= goal or any(caller.done() for caller in self._running),
            "the load goes on",
        )

    def close(self) -> None:
        self._ended.set()
        self._executor.shutdown()
        self._process.terminate()
        self._process.wait()
        for caller in self._running:
            caller.result()

    def _ask(self) -> None:
        while not self._ended.wait(0.002):
            self.answers.append(self.request())


@pytest.fixture
def budget() -> float:
    return 0.1


@pytest.fixture
def site(fresh_server: RedisServer, budget: float) -> Iterator[Site]:
    site = Site(fresh_server.url, budget)
    try:
        site.wait()
        yield site
    finally:
        site.close()


def test_every_response_is_200_or_429_and_the_outage_admits_no_more_than_the_limit(
    site: Site, fresh_server: RedisServer
) -> None:
    with fresh_server.client() as client:
        client.flushall()
    site.load()
    site.go_on(20)
    fresh_server.kill()
    killed = time.monotonic()
    site.go_on(300)
    wait_until(
        lambda: len({a.worker for a in site.answers if a.sent > killed}) == WORKERS,
        "every worker has answered during the outage",
    )
    returned = time.monotonic()
    fresh_server.start()
    wait_until(
        lambda: {a.worker for a in site.answers if a.sent > returned and a.source == "redis"},
        "Redis decides again",
    )
    site.go_on(100)
    assert {answer.status for answer in site.answers} == {200, 429}
    during = [a for a in site.answers if a.sent > killed and a.came < returned]
    admitted = [a for a in during if a.status == 200]
    assert {answer.source for answer in admitted} == {"local"}
    assert WORKERS <= len(admitted) <= LIMIT


# Redis must decide, however slow the machine is.
@pytest.mark.parametrize("budget", [10.0])
def test_workers_forked_after_first_use_admit_exactly_the_limit_together(
    site: Site, fresh_server: RedisServer
) -> None:
    with fresh_server.client() as client:
        client.flushall()
    site.load()
    site.go_on(3 * LIMIT)
    wait_until(
        lambda: len({answer.worker for answer in site.answers}) == WORKERS,
        "every worker has answered",
    )
    assert {answer.status for answer in site.answers} == {200, 429}
    admitted = [answer for answer in site.answers if answer.status == 200]
    assert {answer.source for answer in admitted} == {"redis"}
    assert len(admitted) == LIMIT
