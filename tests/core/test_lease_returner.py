"""The thread that gives units back, processes that fork, and processes that end."""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow.core import background
from django_slidingwindow.core.lease_returner import Returner
from django_slidingwindow.core.leases import Leases, Return
from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.decisions import Charge
from django_slidingwindow.policies import Policy
from django_slidingwindow.stores.redis import RedisStore
from tests.support.processes.forked_leases import CALLS
from tests.support.servers.redis import wait_until
from tests.support.simulated_processes import leased, stored, windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redis import Redis

    from tests.support.servers import RedisServer

THREAD = "django_slidingwindow.leases"


@pytest.fixture
def limiter(redis: Redis) -> Iterator[Limiter]:
    limiter = Limiter(RedisStore("default", budget=20.0))
    yield limiter
    limiter.close()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that counts the threads of this test; others may still have theirs."""
    monkeypatch.setattr(background, "_IDLE", 0.01)
    before = set(threading.enumerate())
    return lambda: sum(thread.name == THREAD for thread in {*threading.enumerate()} - before)


def test_thread_gives_units_back_and_ends(limiter: Limiter, threads: Callable[[], int]) -> None:
    long, short = leased(lease_seconds=0.5, name="long"), leased(lease_seconds=0.1, name="short")
    for profile in (long, short):
        sources = [limiter.charge(windows(limiter, profile)).source for _ in range(3)]
        assert sources == ["redis", "redis", "lease"]
    # One thread for all, and the second lease ends before the first.
    assert threads() == 1
    wait_until(lambda: stored(limiter, short) == 3, "the short lease has ended")
    wait_until(lambda: stored(limiter, long) == 3, "the long lease has ended")
    wait_until(lambda: not threads(), "the thread has ended")
    assert limiter.charge(windows(limiter, long)).source == "redis"
    wait_until(lambda: stored(limiter, long) == 4, "another thread does the same")


def test_lease_without_a_thread_lasts_until_the_next_call(
    limiter: Limiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    profile = leased()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        for _ in range(3):
            limiter.charge(windows(limiter, profile))
        assert stored(limiter, profile) == 4
    limiter.close()
    assert stored(limiter, profile) == 3


def test_error_while_giving_back_is_logged(
    caplog: pytest.LogCaptureFixture, threads: Callable[[], int]
) -> None:
    leases = Leases(share=8)

    def give(returns: object) -> None:
        raise ValueError("not today")

    returner = Returner(leases, give)
    leases.give_later([Charge("key", Policy(limit=5, window=60, lease=1), 1)], 7)
    with caplog.at_level(logging.ERROR):
        returner.watch()
        wait_until(lambda: not threads(), "the thread has ended")
    assert "could not give back units of a lease" in caplog.text


def units(number: int) -> Charge:
    return Charge("key", Policy(limit=5, window=60, lease=1), number)


def test_thread_that_is_ended_is_replaced(threads: Callable[[], int]) -> None:
    given: list[Return] = []
    leases = Leases(share=8)

    def give(returns: Sequence[Return]) -> None:
        given.extend(returns)
        if len(given) == 1:
            raise SystemExit

    returner = Returner(leases, give)
    for number in (1, 2):
        leases.give_later([units(number)], 7)
        returner.watch()
        wait_until(lambda: leases.due == math.inf, "they are given back")
    wait_until(lambda: not threads(), "the thread has ended")
    assert [each.charge.cost for each in given] == [1, 2]


def test_forked_child_starts_with_nothing() -> None:
    given: list[Return] = []
    leases = Leases(share=8)
    returner = Returner(leases, given.extend)
    leases.give_later([Charge("key", Policy(limit=5, window=60, lease=1), 1)], 7)
    returner._background.start_afresh()
    returner.end()
    assert given == []


def test_fork_and_end_of_processes(redis: Redis, redis_server: RedisServer) -> None:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.support.processes.forked_leases",
        redis_server.url,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    once = ["redis", "redis", "lease", "lease", "redis", "lease", "lease", "lease"]
    assert found["before"] == once
    # The child has no units of its parent's, which goes on with them.
    assert found["child"] == once
    assert found["parent"][:4] == ["lease", "lease", "lease", "redis"]
    # All that the processes did not use was given back, but for the child that ended at once.
    held = {name: len(redis.keys(f"*:{name}:*")) for name in ("forked", "ended")}
    assert held == {"forked": 1, "ended": 1}
    limiter = Limiter(RedisStore("default"), background=False)
    assert stored(limiter, leased(10_000, 86_400, 100, name="ended")) == found["used"] == CALLS
    assert stored(limiter, leased(10_000, 86_400, 100, name="forked")) == 3 * CALLS + 3
    limiter.close()
