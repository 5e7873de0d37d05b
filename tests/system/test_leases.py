"""Leases never exceed the limit in any window, and use nearly all of it."""

from __future__ import annotations

import heapq
import itertools
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from django_slidingwindow.decisions import LEASE
from tests.support.clock import DAY, START
from tests.support.processes.lease_stress import worst
from tests.support.simulated_processes import Site, Store, leased, stored, windows
from tests.support.state_machines import QUICK

if TYPE_CHECKING:
    from redis import Redis

    from django_slidingwindow.core.limiter import Limiter
    from django_slidingwindow.decisions import Decision
    from tests.support.servers import RedisServer

ROOT = Path(__file__).parent.parent.parent
NAMES = itertools.count()
EXACT = ("compact", "log", "buckets")


class ProcessesShareALimit(RuleBasedStateMachine):
    """Processes take units ahead, use them late, end with them, or give them back."""

    @initialize(
        window=st.sampled_from([1, 60, 86_400]),
        limit=st.sampled_from([1, 5, 20, 100]),
        lease=st.sampled_from([1, 5, 50]),
        part=st.sampled_from([0.01, 0.1, 0.5]),
        algorithm=st.sampled_from(EXACT),
        start=st.integers(0, 400 * DAY),
    )
    def begin(
        self, window: int, limit: int, lease: int, part: float, algorithm: str, start: int
    ) -> None:
        self.site = Site(START + start)
        self.limit, self.window_us = limit, window * 1_000_000
        self.profile = leased(
            limit,
            window,
            lease,
            name=f"machine{next(NAMES)}",
            lease_seconds=window * part,
            algorithm=algorithm,
        )
        self.processes = [self.site.process() for _ in range(3)]
        self.admitted: list[tuple[int, int]] = []
        self.last: tuple[Limiter, int, Decision, tuple[int, int]] | None = None

    def now(self) -> int:
        return self.site.clock.now

    @rule(
        number=st.integers(0, 2),
        cost=st.sampled_from([1, 1, 1, 1, 2, 7]),
        times=st.sampled_from([1, 1, 3, 10, 40]),
        delay=st.sampled_from([0, 0, 1, 300, 1_000]),
    )
    def ask(self, number: int, cost: int, times: int, delay: int) -> None:
        limiter = self.processes[number]
        store = limiter.store
        assert isinstance(store, Store)
        # At most a thousandth of the window, to Redis and back.
        store.delay = min(delay, self.window_us // 1_000)
        for _ in range(times):
            decision = limiter.charge(windows(limiter, self.profile, cost=cost))
            if not decision.allowed:
                self.assert_retry_passes(limiter, cost, decision)
                return
            at = self.now() if decision.source == LEASE else store.charged_at
            self.admitted.append((at, cost))
            self.last = limiter, cost, decision, self.admitted[-1]
            most = max(self.count(at) for at, _ in self.admitted[-60:])
            assert most <= self.limit
            assert decision.remaining <= self.limit - self.count(at)

    def count(self, at: int) -> int:
        """Return the hits admitted in the window that ends at `at`."""
        return sum(cost for came, cost in self.admitted if at - self.window_us < came <= at)

    def assert_retry_passes(self, limiter: Limiter, cost: int, refusal: Decision) -> None:
        """Assert that a request that waits for `retry_after` is admitted."""
        if refusal.retry_after is None:
            assert cost > self.limit
            return
        store = limiter.store
        assert isinstance(store, Store)
        waited = self.site.clock.now
        store.delay = 0
        self.site.clock.now = store.charged_at + round(refusal.retry_after * 1_000_000)
        assert limiter.peek(windows(limiter, self.profile, cost=cost)).allowed
        self.site.clock.now = max(waited, self.site.clock.now)

    @rule(times=st.integers(0, 5), part=st.sampled_from([1, 2, 3, 7, 60, 1_000]))
    def wait(self, times: int, part: int) -> None:
        self.site.clock.now += times * self.window_us // part

    @rule(early=st.sampled_from([0, 1, 2]))
    def wait_for_the_end_of_a_lease(self, early: int) -> None:
        self.site.clock.now += max(0, self.profile.policies[0].lease_us - early)

    @rule(number=st.integers(0, 2))
    def return_leases(self, number: int) -> None:
        self.processes[number].return_leases()

    @rule(number=st.integers(0, 2), cleanly=st.booleans())
    def end(self, number: int, cleanly: bool) -> None:
        if cleanly:
            self.processes[number].close()
        self.processes[number] = self.site.process()

    @precondition(lambda self: self.last)
    @rule()
    def refund(self) -> None:
        assert self.last is not None
        limiter, cost, decision, admission = self.last
        self.last = None
        if limiter in self.processes and limiter.refund(decision) == cost:
            self.admitted.remove(admission)

    def teardown(self) -> None:
        if hasattr(self, "site"):
            limiter = self.processes[0]
            limiter.reset(windows(limiter, self.profile).keys)
            self.site.close()


ProcessesShareALimit.TestCase.settings = settings(QUICK, max_examples=40, stateful_step_count=40)
TestProcesses = ProcessesShareALimit.TestCase


PROCESSES, LIMIT, WINDOW, LEASE_UNITS = 8, 1_000, 60, 50


def test_saturation_uses_nearly_the_whole_limit(redis: Redis) -> None:
    site, profile = Site(), leased(LIMIT, WINDOW, LEASE_UNITS)
    processes = [site.process(processes=PROCESSES) for _ in range(PROCESSES)]
    asked = [windows(each, profile) for each in processes]
    period = WINDOW + profile.policies[0].lease_seconds
    chance, start, admitted = random.Random(7), site.clock.now, []
    # Each process checks about five times a second: together more than twice the limit.
    times = [(chance.expovariate(5), number) for number in range(PROCESSES)]
    heapq.heapify(times)
    while times[0][0] < 3 * period:
        at, number = heapq.heappop(times)
        heapq.heappush(times, (at + chance.expovariate(5), number))
        site.clock.now = start + round(at * 1_000_000)
        if processes[number].charge(asked[number]).allowed:
            admitted.append(at)
        for process in processes:
            process.return_leases()
    assert worst(admitted, WINDOW) <= LIMIT
    # The first period fills up gradually, and so does the second one.
    for first in (period, 2 * period - 0.001):
        assert sum(first - period <= at < first for at in admitted) >= 0.97 * LIMIT
    site.close()


def test_single_process_gets_the_whole_limit_after_one_lease(redis: Redis) -> None:
    site, profile = Site(), leased(LIMIT, WINDOW, LEASE_UNITS)
    processes = [site.process(processes=PROCESSES) for _ in range(PROCESSES)]
    admitted = 0
    for _ in range(50):
        for process in processes:
            admitted += process.charge(windows(process, profile)).allowed
    assert stored(processes[0], profile) > admitted
    alone, *others = processes
    site.wait(profile.policies[0].lease_seconds)
    for process in others:
        process.return_leases()
    while alone.charge(windows(alone, profile)).allowed:
        admitted += 1
    assert admitted == LIMIT
    site.close()


def test_paused_and_killed_processes_never_admit_more_than_the_limit(
    redis: Redis, redis_server: RedisServer
) -> None:
    found = stress(
        redis_server.url,
        {
            "processes": 3,
            "threads": 2,
            "loops": 1,
            "seconds": 4,
            "seed": random.randrange(2**32),
            "specs": [
                [10, 1, 3, "compact"],
                [100, 1, 20, "log"],
                [100, 2, 20, "buckets"],
                [1_000, 1, 100, "compact"],
            ],
        },
    )
    assert found["moved"] < 0.000_1, "the wall clock was set during the test"
    assert found["paused"]
    for key in found["keys"]:
        assert key["worst"] <= key["limit"], key
        assert key["admitted"] > key["leased"], key
    assert any(key["leased"] for key in found["keys"])


def stress(url: str, job: dict[str, Any]) -> Any:
    command = [sys.executable, "-m", "tests.support.processes.lease_stress", url, json.dumps(job)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("times", "most"), [([], 0), ([0.0, 0.4, 0.9], 3), ([0.0, 0.4, 1.0], 2), ([0.0, 5.0], 1)]
)
def test_worst_finds_the_fullest_window(times: list[float], most: int) -> None:
    assert worst(times, 1) == most
