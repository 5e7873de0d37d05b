"""Signals and gevent's time-outs may interrupt a call at any point, without losing a connection."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from redis.connection import ConnectionPool
from redis.exceptions import MaxConnectionsError

from django_slidingwindow.stores.commands import pack
from django_slidingwindow.stores.net import pool
from django_slidingwindow.stores.net.pool import Connections, _Place
from django_slidingwindow.stores.net.settings import ConnectionSettings
from tests.support.redis_failures import listening
from tests.support.servers import RedisServer
from tests.support.servers.redis import has_tls
from tests.support.suite.needs import TLS, require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PING = pack(b"PING")
MOST = 2


def connections_to(port: int, **options: Any) -> Connections:
    connection_settings = ConnectionSettings.of(
        ConnectionPool.from_url(f"redis://127.0.0.1:{port}/0", **options), None
    )
    return Connections(lambda deadline: connection_settings, most=MOST)


def later(seconds: float) -> float:
    return time.monotonic() + seconds


def use_all(connections: Connections) -> None:
    """Use all connections at the same time, and check that another one is refused."""
    halves = [connections.in_halves(PING, 1, later(5)) for _ in range(MOST + 1)]
    for each in halves[:MOST]:
        next(each)
    with pytest.raises(MaxConnectionsError):
        next(halves[MOST])
    for each in halves[:MOST]:
        with pytest.raises(StopIteration) as stop:
            next(each)
        assert stop.value.value == [b"PONG"]


@pytest.fixture
def on_alarm() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Return a function that sets the action for the timer of this process."""
    before = signal.getsignal(signal.SIGALRM)

    def set_to(action: Callable[[], None]) -> None:
        signal.signal(signal.SIGALRM, lambda *_: action())

    yield set_to
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_signals_do_not_prolong_the_wait(on_alarm: Callable[..., None]) -> None:
    """With the kernel's own time-out (SO_RCVTIMEO), each signal would restart the wait."""
    rings: list[float] = []

    def ring() -> None:
        rings.append(time.monotonic())
        if len(rings) == 40:
            signal.setitimer(signal.ITIMER_REAL, 0)

    on_alarm(ring)
    with listening() as port:
        connection = connections_to(port)._find(math.inf).sync(math.inf)
        connection._sock = connection._connect()
        start = time.monotonic()
        connection.channel.deadline = start + 0.3
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with pytest.raises(TimeoutError):
            connection.channel.receive(1)
        taken = time.monotonic() - start
        connection.disconnect()
    assert rings
    # Signals come for 2 s.
    assert 0.3 <= taken < 2


def test_error_of_a_signal_handler_while_connecting_is_raised(
    on_alarm: Callable[..., None],
) -> None:
    """Celery's SoftTimeLimitExceeded is such an error. It does not mean that Redis is away."""

    def expire() -> None:
        raise RuntimeError("the time of this task is up")

    on_alarm(expire)
    with listening() as port:
        # The server accepts the connection and never answers the login.
        connections = connections_to(port, password="secret")
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(RuntimeError, match="time of this task"):
            connections.exchange(PING, 1, later(10))


def test_calls_that_a_signal_handler_ends_lose_no_connection(redis_server: RedisServer) -> None:
    # Without coverage, whose own lock such a handler can leave locked.
    environment = {name: value for name, value in os.environ.items() if "COVERAGE" not in name}
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.support.processes.interrupted_calls",
        str(redis_server.port),
    ]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    interrupted, ended, replies = json.loads(done.stdout)
    assert min(interrupted["exchange"], interrupted["_connect"], ended) > 20, (interrupted, ended)
    assert replies == ["PONG", "PONG", "all connections are in use"]


def test_place_that_is_lost_is_free(redis_server: RedisServer) -> None:
    """Simulate an exception between taking a place from the stack and assigning it to a name.

    The connection is closed at once, because nothing else refers to it.
    """
    connections = connections_to(redis_server.port)
    for _ in range(3 * MOST):
        assert connections.exchange(PING, 1, later(5)) == [b"PONG"]
        connections._idle.pop()
    use_all(connections)
    connections.close()


def test_call_that_waits_notices_a_place_that_was_lost(redis_server: RedisServer) -> None:
    """Nothing wakes the call in this case, so it must try again after a while."""
    connections = connections_to(redis_server.port)
    held = [_Place() for _ in range(MOST)]
    assert all(map(connections._has_room_for, held))
    timer = threading.Timer(0.1, held.clear)
    timer.start()
    assert connections.exchange(PING, 1, math.inf) == [b"PONG"]
    timer.join()
    connections.close()


def test_connection_of_a_process_that_has_forked_in_c_is_not_used(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uWSGI forks without Python's knowledge, so that no hook of Python's is called."""
    monkeypatch.setattr(pool, "_FRESH", 0.0)  # as in a process of uWSGI
    connections = connections_to(redis_server.port)
    (mine,) = connections.exchange(pack(b"CLIENT", b"ID"), 1, later(5))
    # In a forked child, the connection has the process id of the parent.
    parents = connections._idle[0].connection
    parents.pid -= 1
    (other,) = connections.exchange(pack(b"CLIENT", b"ID"), 1, later(5))
    assert other != mine
    connections.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_greenlets_end_by_their_budget_and_lose_no_connection(tls: bool) -> None:
    require(TLS, not tls or has_tls())
    with RedisServer(tls=tls) as server:
        assert server.process is not None
        command = [sys.executable, "-W", "ignore", "-m", "tests.support.processes.gevent_checks"]
        command += [server.url, str(server.process.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found: dict[str, Any] = json.loads(done.stdout)
    # How many depends on the speed of the machine.
    assert found["interrupted"] > 20
    assert found["after interruptions"] == ["redis"]
    assert found["frozen"] == ["local"]
    # The budget is 0.5 s, and Redis is frozen for up to 3.
    assert 0.5 <= found["slowest"] < 2.5
    assert found["thawed"] == ["redis"]
