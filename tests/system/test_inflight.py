"""Requests in flight in real processes: never more than the limit, and all slots become free."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow import limits
from django_slidingwindow.policies import SLOTS, Policy
from django_slidingwindow.stores.protocol import Evaluate, WindowRule
from django_slidingwindow.stores.redis import RedisStore
from tests.support.servers.redis import HOST, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

    from tests.support.servers import RedisServer

PROCESSES, LIMIT = 8, 5
# 10,000 requests (INFLIGHT_REQUESTS=10000) take a minute on two processors.
REQUESTS = int(os.environ.get("INFLIGHT_REQUESTS", "2000"))
ROOT = Path(__file__).parent.parent.parent
KEY = "throttle:global:{all}:site:i3600"
PROFILES = {"site": {"axis": "global", "inflight": LIMIT, "hold": "1h"}}


@pytest.fixture(autouse=True)
def _patience(settings: Any) -> None:
    settings.SLIDING_WINDOW = {"LATENCY_BUDGET": 60, "LOG": False, "PROFILES": PROFILES}


def start(*command: str, redis_url: str, notes: Path, **options: Any) -> subprocess.Popen[Any]:
    environment = {
        **os.environ,
        "SITE_REDIS_URL": redis_url,
        "SITE_INFLIGHT": str(LIMIT),
        "SITE_NOTES": str(notes),
    }
    return subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment, **options)


def most_at_once(notes: Path) -> tuple[int, int]:
    """Return how many requests ran at once at most, and how many ran, by the notes of the views.

    A view notes its begin after its admission, and its end before the request is closed.
    """
    lines = [line.split() for file in notes.iterdir() for line in file.read_text().splitlines()]
    running = most = begun = 0
    for _, change in sorted((int(at), int(change)) for at, change in lines):
        running += change
        begun += change == 1
        most = max(most, running)
    assert running == 0, "a view has not ended"
    return most, begun


def test_disconnecting_clients_leave_no_slot_taken(
    redis: Redis, redis_server: RedisServer, tmp_path: Path
) -> None:
    processes = [
        start(
            *("-m", "tests.support.processes.disconnecting_clients"),
            redis_url=redis_server.url,
            notes=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    try:
        assert {process.stdout.readline() for process in processes} == {"ready\n"}
        for seed, process in enumerate(processes):
            process.stdin.write(json.dumps([seed, REQUESTS // PROCESSES]) + "\n")
            process.stdin.flush()
        counts = [json.loads(process.stdout.readline()) for process in processes]
        # All processes are still alive, so no slot may have to wait for the end of `hold`.
        wait_until(lambda: redis.zcard(KEY) == 0, "all slots are free", 10)
    finally:
        for process in processes:
            process.communicate()
    total = {name: sum(count.get(name, 0) for count in counts) for name in ("200", "429", "gone")}
    most, begun = most_at_once(tmp_path)
    assert 1 < most <= LIMIT
    # The test is meaningful only with many admissions, refusals and disconnections.
    assert begun >= total["200"] > 20
    assert min(total["429"], total["gone"]) > 20


def test_slot_of_a_killed_process_is_free_after_hold(
    redis: Redis, redis_server: RedisServer, tmp_path: Path
) -> None:
    code = (
        "import tests.support.sites.inflight, time\n"
        "from django_slidingwindow import limits\n"
        "with limits.hold('site', 'all'):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(600)\n"
    )
    process = start(
        "-c", code, redis_url=redis_server.url, notes=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    ((_, began),) = redis.zrange(KEY, 0, -1, withscores=True)
    assert limits.peek("site", "all", 0).remaining == LIMIT - 1
    # With a store whose clock is an hour ahead, the test needs no wait.
    policy = Policy(limit=LIMIT, window=3600, algorithm=SLOTS)
    look = Evaluate((KEY,), (WindowRule(policy, 0),), False)
    for later, left in ((3_600_000_000 - 1, LIMIT - 1), (3_600_000_000, LIMIT)):
        store = RedisStore("default", clock=lambda at=int(began) + later: at)  # type: ignore[misc]
        assert store.run(look).window(0).remaining == left
        store.close()


APP = "tests.support.sites.inflight"
GUNICORN = ("-m", "gunicorn", APP, "--bind", "{address}", "--threads", "8", "--workers", "2")
UVICORN = ("-m", "uvicorn", f"{APP}:asgi", "--host", HOST, "--port", "{port}", "--workers", "2")
SERVERS = {
    "gunicorn": (*GUNICORN, "--log-level", "critical", "--graceful-timeout", "1"),
    "uvicorn": (*UVICORN, "--log-level", "critical"),
}
PATHS = {
    "gunicorn": ("/view/", "/stream/", "/download/", "/view/?fail", "/astream/"),
    # Not /stream/: under ASGI, the stream of a sync view is not closed if its client disconnects,
    # so it cannot note its end.
    "uvicorn": ("/aview/", "/astream/", "/download/", "/aview/?fail", "/view/"),
}


class Site:
    """A web server, and requests that may be abandoned."""

    def __init__(self, kind: str, redis_url: str, notes: Path) -> None:
        self.port = free_port()
        words = {"address": f"{HOST}:{self.port}", "port": self.port}
        command = [word.format(**words) for word in SERVERS[kind]]
        self.process = start(*command, redis_url=redis_url, notes=notes, stderr=subprocess.DEVNULL)
        wait_until(self._answers, "the server answers", 60)

    def _answers(self) -> bool:
        assert self.process.poll() is None, "the server has ended"
        try:
            return self.get("/up/") == 200
        except OSError:
            return False

    def get(self, path: str) -> int:
        """Send a request, read the whole response, and return its status."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        connection.close()
        return response.status

    def open(self, path: str) -> socket.socket:
        """Send a request, and return the connection."""
        connection = socket.create_connection((HOST, self.port), 60)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return connection

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate()


@pytest.fixture(params=sorted(SERVERS))
def site(request: Any, redis: Redis, redis_server: RedisServer, tmp_path: Path) -> Iterator[Site]:
    site = Site(request.param, redis_server.url, tmp_path)
    site.paths = PATHS[request.param]  # type: ignore[attr-defined]
    yield site
    site.close()


def wait_until_free(redis: Redis) -> None:
    wait_until(lambda: redis.zcard(KEY) == 0, "all slots are free", 20)


def test_stream_holds_its_slot_until_it_is_read_or_abandoned(site: Any, redis: Redis) -> None:
    stream = next(path for path in site.paths if "stream" in path)
    assert site.get(stream) == 200
    wait_until_free(redis)
    with site.open(f"{stream}?seconds=1") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert redis.zcard(KEY) == 1
    wait_until_free(redis)
    with ExitStack() as stack:
        held = [stack.enter_context(site.open(f"{stream}?seconds=1")) for _ in range(LIMIT)]
        for connection in held:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert site.get(stream) == 429
    wait_until_free(redis)
    assert site.get(stream) == 200


def test_disconnecting_clients_of_a_web_server_leave_no_slot_taken(
    site: Any, redis: Redis, tmp_path: Path
) -> None:
    def client(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(40):
            path = chance.choice(site.paths)
            if "?" not in path:
                path += f"?seconds={chance.random() * 0.02:.3f}"
            if chance.random() < 0.3:
                site.get(path)
                continue
            with site.open(path) as connection:
                if chance.random() < 0.5:
                    connection.settimeout(chance.random() * 0.03)
                    try:
                        connection.recv(chance.randrange(1, 3000))
                    except TimeoutError:
                        continue

    with ThreadPoolExecutor(10) as clients:
        list(clients.map(client, range(10)))
    wait_until_free(redis)
    most, begun = most_at_once(tmp_path)
    assert most <= LIMIT
    # Even on a slow machine, more requests have run than there are slots.
    assert begun > LIMIT
    assert site.get("/view/") == 200
