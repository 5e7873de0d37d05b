"""The cost of a check for the server: commands, memory, work, and the lifetime of keys."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow import limits
from django_slidingwindow.algorithms.timing import bucket_us
from django_slidingwindow.core.keys import make_key
from django_slidingwindow.decisions import Charge
from django_slidingwindow.policies import ALGORITHMS, MAX_RESOLUTION, Policy, Profile
from django_slidingwindow.stores.protocol import Ahead, Evaluate, Refund, WindowRule
from django_slidingwindow.stores.redis import RedisStore
from tests.support.clock import SECOND, START, Clock
from tests.support.script_work import work_of
from tests.support.server_commands import commands_of
from tests.support.suite.needs import JEMALLOC, require

if TYPE_CHECKING:
    from redis import Redis

WINDOWS = (0.25, 1, 60, 3_600, 86_400, 400 * 86_400)


@pytest.fixture(autouse=True)
def _patience(settings: Any) -> None:
    """Redis must decide, however slow the machine is."""
    settings.SLIDING_WINDOW = {"LATENCY_BUDGET": 60}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(redis: Redis, clock: Clock) -> Iterator[RedisStore]:
    store = RedisStore("default", clock=clock)
    yield store
    store.close()


def charge(key: str, policy: Policy, cost: int = 1, **options: Any) -> Evaluate:
    return Evaluate((key,), (WindowRule(policy, cost, **options),), writes=True)


@pytest.mark.parametrize("algorithms", [("compact",), ("log",), ALGORITHMS], ids="+".join)
@pytest.mark.parametrize("windows", [(60,), (1, 60, 3_600)], ids=["one", "three"])
def test_check_is_one_command(
    redis: Redis, algorithms: tuple[str, ...], windows: tuple[float, ...]
) -> None:
    policies = tuple(
        Policy(limit=3, window=window, algorithm=algorithm)
        for algorithm in algorithms
        for window in windows
    )
    profile = Profile(name="many", axis="user", policies=policies)
    # The first check connects and loads the script.
    decision = limits.check(profile, "ada")
    assert commands_of(redis, lambda: limits.check(profile, "ada")) == ["EVALSHA"]
    assert commands_of(redis, lambda: limits.peek(profile, "ada")) == ["EVALSHA"]
    limits.refund(limits.check(profile, "ada"))
    assert commands_of(redis, lambda: limits.refund(decision)) == ["EVALSHA"]
    assert commands_of(redis, lambda: limits.reset(profile, "ada")) == ["UNLINK"]


async def test_asynchronous_check_is_one_command(redis: Redis) -> None:
    profile = Profile(name="two", axis="user", policies=(Policy.parse("5/m"), Policy.parse("20/h")))
    await limits.acheck(profile, "ada")
    redis.config_resetstat()
    assert (await limits.acheck(profile, "ada")).remaining == 3
    stats = redis.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 1
    assert not {"cmdstat_eval", "cmdstat_script", "cmdstat_script|load"} & set(stats)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_fifty_hits_within_one_microsecond_are_fifty_hits(
    redis: Redis, store: RedisStore, clock: Clock, algorithm: str
) -> None:
    policy = Policy(limit=50, window=60, algorithm=algorithm)
    key = make_key("throttle", "ip", "x", "y", policy)
    replies = [store.run(charge(key, policy)) for _ in range(51)]
    assert {reply[1] for reply in replies} == {clock.now}
    assert [reply[0] for reply in replies] == [1] * 50 + [0]
    assert [reply[3] for reply in replies] == [*range(49, -1, -1), 0]


def test_compact_log_stays_small(redis: Redis, store: RedisStore, clock: Clock) -> None:
    require(JEMALLOC, "jemalloc" in redis.info("memory")["mem_allocator"])
    policy = Policy(limit=10_000, window=86_400)
    key = "throttle:tenant:{tenant}:paid:c86400.00"
    assert len(key) == 39
    used = {}
    for hits in range(1, 10_001):
        clock.now += SECOND
        assert store.run(charge(key, policy))[0]
        if hits in (2, 100, 1_000, 10_000):
            used[hits] = redis.memory_usage(key)
    assert used[2] <= 128
    assert used[100] <= 640
    assert used[1_000] <= 4_800
    assert used[10_000] <= 46_000


@pytest.mark.parametrize(("resolution", "most"), [(10, 320), (60, 900), (MAX_RESOLUTION, 13_000)])
def test_sub_windows_stay_small_however_many_hits_they_hold(
    redis: Redis, store: RedisStore, clock: Clock, resolution: int, most: int
) -> None:
    require(JEMALLOC, "jemalloc" in redis.info("memory")["mem_allocator"])
    policy = Policy(limit=10**8, window=86_400, algorithm="buckets", resolution=resolution)
    key = "throttle:tenant:{tenant}:paid:b86400.00"
    # For two windows, so that all hits of the first one have expired.
    for _ in range(2 * resolution):
        assert store.run(charge(key, policy, 10**6 // resolution))[0]
        clock.now += bucket_us(policy)
    assert redis.memory_usage(key) <= most


def counts_until(policy: Policy, stamp: int) -> tuple[int, int]:
    """Return when a hit at `stamp` stops counting, at the earliest and at the latest."""
    if policy.algorithm == "counter":
        end = (stamp // policy.window_us + 2) * policy.window_us
        return end, end
    end = stamp + policy.window_us
    return end, end + (bucket_us(policy) if policy.algorithm == "buckets" else 0)


class Lifetime:
    """Compares the expiry of a key with the time when its last hit stops counting."""

    def __init__(self, redis: Redis, key: str, policy: Policy, clock: Clock) -> None:
        self.redis = redis
        self.key = key
        self.policy = policy
        self.clock = clock
        self.start = time.monotonic()

    def wait(self, micro: int) -> None:
        """Move the test's clock, and the expiry of the key, which follows the server's clock."""
        self.clock.now += micro
        lives = self.redis.pttl(self.key)
        if lives > 0:
            self.redis.pexpire(self.key, max(1, lives - micro // 1_000))

    def follows(self, stamp: int) -> None:
        """Assert that the key lives as long as a hit at `stamp` counts, plus at most a second."""
        first, last = counts_until(self.policy, stamp)
        lives = self.redis.pttl(self.key) * 1_000
        # Since the expiry was set, the server's clock has moved, but not the test's clock.
        gone = (time.monotonic() - self.start) * 1_000_000
        assert first - self.clock.now <= lives + gone + 1_000
        assert 0 < lives <= last - self.clock.now + SECOND


@pytest.fixture(params=ALGORITHMS)
def algorithm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=WINDOWS)
def life(request: pytest.FixtureRequest, redis: Redis, clock: Clock, algorithm: str) -> Lifetime:
    policy = Policy(limit=1_000, window=request.param, algorithm=algorithm)
    return Lifetime(redis, make_key("throttle", "ip", "x", "y", policy), policy, clock)


@pytest.mark.parametrize("cost", [1, 2])
@pytest.mark.parametrize("before", [0, 1, 500])
def test_key_goes_within_a_second_of_its_last_hit(
    store: RedisStore, clock: Clock, life: Lifetime, before: int, cost: int
) -> None:
    if before:
        assert store.run(charge(life.key, life.policy, before))[0]
    # Steps of less than half a second, of more, and of most of a window.
    for step in (0, 1, 90_000, 170_000, 170_000, 170_000, 500_000, life.policy.window_us * 4 // 5):
        life.wait(step)
        assert store.run(charge(life.key, life.policy, cost))[0]
        life.follows(clock.now)


def test_stored_refusal_lives_as_long_as_a_hit(
    store: RedisStore, clock: Clock, life: Lifetime
) -> None:
    store.run(charge(life.key, life.policy, 999))
    clock.now += life.policy.window_us // 5
    assert not store.run(charge(life.key, life.policy, 2, count_rejected=True))[0]
    life.follows(clock.now)
    clock.now += life.policy.window_us // 5
    assert not store.run(charge(life.key, life.policy, 300, count_rejected=True))[0]
    if life.policy.algorithm != "counter":  # the current clock window is full: nothing is stored
        life.follows(clock.now)


def test_refusal_that_is_not_stored_extends_no_expiry(
    store: RedisStore, clock: Clock, life: Lifetime
) -> None:
    store.run(charge(life.key, life.policy, 1_000))
    stamp = clock.now
    assert not store.run(charge(life.key, life.policy))[0]
    life.follows(stamp)


@pytest.mark.parametrize("hits", [1, 30, 400])
def test_refunded_key_expires_with_its_newest_remaining_hit(
    store: RedisStore, clock: Clock, life: Lifetime, hits: int
) -> None:
    policy, older = life.policy, clock.now
    store.run(charge(life.key, policy, hits))
    clock.now += policy.window_us // 2
    newer = clock.now
    store.run(charge(life.key, policy, hits))

    def refund(stamp: int, cost: int) -> list[int]:
        return store.run(Refund((Charge(life.key, policy, cost),), stamp))

    if policy.algorithm == "counter":
        # Both hits are in one clock window, which lives as long as one of them is left.
        assert refund(newer, 2 * hits - 1) == [2 * hits - 1]
        life.follows(newer)
        assert refund(newer, 1) == [1]
    else:
        assert refund(newer, hits) == [hits]
        life.follows(older)
        assert refund(older, hits) == [hits]
    assert not life.redis.exists(life.key)


def test_refund_of_an_older_hit_keeps_the_newer_one(
    store: RedisStore, clock: Clock, life: Lifetime
) -> None:
    policy, older = life.policy, clock.now
    store.run(charge(life.key, policy, 2))
    clock.now += policy.window_us // 2
    store.run(charge(life.key, policy))
    assert store.run(Refund((Charge(life.key, policy, 1),), older)) == [1]
    life.follows(clock.now)


@pytest.mark.parametrize("algorithm", ["compact", "log", "buckets"])
@pytest.mark.parametrize("before", [1, 500])
def test_key_lives_for_units_of_a_lease_that_was_switched_on(
    redis: Redis, store: RedisStore, clock: Clock, algorithm: str, before: int
) -> None:
    plain = Policy(limit=10_000, window=600, algorithm=algorithm)
    leased = Policy(limit=10_000, window=600, algorithm=algorithm, lease=50, lease_seconds=30)
    key = make_key("throttle", "ip", "x", "y", plain)
    assert key == make_key("throttle", "ip", "x", "y", leased)
    start = time.monotonic()
    assert store.run(charge(key, plain, before))[0]
    # At once, so that an expiry that a hit has just set would do for another hit.
    rules = (WindowRule(leased, 1),)
    assert store.run(Evaluate((key,), rules, writes=True, ahead=(Ahead(most=1),))).granted == (1,)
    gone = (time.monotonic() - start) * 1_000
    assert redis.pttl(key) + gone >= 630_000


def microseconds(seconds: int, micro: int) -> int:
    return seconds * SECOND + micro


def test_busy_key_expires_on_time_by_the_servers_clock(redis: Redis) -> None:
    store = RedisStore("default")
    windows = []
    for algorithm, window, before in itertools.product(ALGORITHMS, (1, 86_400), (0, 500)):
        policy = Policy(limit=100_000, window=window, algorithm=algorithm)
        key = make_key("throttle", "ip", str(before), "y", policy)
        windows.append((key, policy))
        start = stamp = store.run(charge(key, policy, before + 1))[1]
    # Longer than twice the half second for which an expiry may stay unchanged.
    while stamp < start + 1_200_000:
        for key, policy in windows:
            stamp = store.run(charge(key, policy))[1]
            with redis.pipeline() as pipeline:
                earlier, left, later = pipeline.time().pttl(key).time().execute()
            first, last = counts_until(policy, stamp)
            # Two values are rounded to milliseconds.
            assert first - 2_000 <= microseconds(*later) + left * 1_000
            assert microseconds(*earlier) + left * 1_000 <= last + SECOND
    store.close()


FEW, MANY = 10, 10_000


class FullKeys:
    """A full key with few hits and one with many, spread evenly over the window before now."""

    window = 3_600 * SECOND

    def __init__(
        self, redis: Redis, store: RedisStore, clock: Clock, algorithm: str, resolution: int
    ) -> None:
        self.redis = redis
        self.store = store
        self.clock = clock
        self.policies = {
            hits: Policy(limit=hits, window=3_600, algorithm=algorithm, resolution=resolution)
            for hits in (FEW, MANY)
        }
        self.keys = {hits: self._fill(hits) for hits in self.policies}
        self.end = START + self.window - 1

    def _fill(self, hits: int) -> str:
        policy = self.policies[hits]
        key = make_key("throttle", "ip", str(hits), "y", policy)
        steps = min(hits, 1_000)
        for i in range(steps):
            self.clock.now = START + self.window * i // steps
            assert self.store.run(charge(key, policy, hits // steps))[0]
        return key

    def compare(self, calls: Callable[[int], list[Evaluate]]) -> None:
        """Assert that the server does no more work with many hits than with few."""
        work = {}
        for hits in self.policies:
            todo = calls(hits)
            work[hits] = work_of(self.redis, todo, self.store._clock)
        assert work[MANY].steps <= 1.2 * work[FEW].steps
        # A compact log reads up to 260 bytes at once.
        assert work[MANY].bytes <= work[FEW].bytes + 300 * len(todo)


@pytest.fixture
def full(redis: Redis, store: RedisStore, clock: Clock, request: pytest.FixtureRequest) -> FullKeys:
    return FullKeys(redis, store, clock, *request.param)


WITH_SUB_WINDOWS = [("buckets", Policy.parse("1/m").resolution), ("buckets", MAX_RESOLUTION)]
of_any_algorithm = pytest.mark.parametrize(
    "full", [*((name, 60) for name in ALGORITHMS if name != "buckets"), *WITH_SUB_WINDOWS],
    indirect=True,
)  # fmt: skip


@of_any_algorithm
def test_work_of_the_server_does_not_grow_with_the_limit_when_hits_come_and_go(
    full: FullKeys, clock: Clock
) -> None:
    clocks = {hits: itertools.count(full.end, full.window // hits) for hits in full.keys}

    def calls(hits: int) -> list[Evaluate]:
        full.store._clock = clocks[hits].__next__
        return [charge(full.keys[hits], full.policies[hits])] * 100

    full.compare(calls)


@of_any_algorithm
def test_work_of_the_server_does_not_grow_with_the_limit_when_it_refuses(
    full: FullKeys, clock: Clock
) -> None:
    # Neither has the clock stepped back, nor has the first hit expired.
    clock.now = full.end - 1

    def calls(hits: int) -> list[Evaluate]:
        return [charge(full.keys[hits], full.policies[hits])] * 100

    full.compare(calls)
    assert full.store.run(calls(MANY)[0])[0] == 0


@pytest.mark.parametrize("full", WITH_SUB_WINDOWS, indirect=True)
def test_work_of_the_server_does_not_grow_with_the_sub_windows_that_come_and_go(
    full: FullKeys, clock: Clock
) -> None:
    # With each call one sub-window begins and one expires, of few or of the maximum number.
    counts = {hits: min(hits, policy.resolution) for hits, policy in full.policies.items()}
    clocks = {n: itertools.count(full.end + 1, full.window // counts[n]) for n in full.keys}

    def calls(hits: int) -> list[Evaluate]:
        full.store._clock = clocks[hits].__next__
        return [charge(full.keys[hits], full.policies[hits], hits // counts[hits])] * 100

    full.compare(calls)


@of_any_algorithm
def test_work_of_the_server_does_not_grow_with_the_hits_that_have_left_at_once(
    full: FullKeys, clock: Clock, redis: Redis
) -> None:
    copies = range(20)

    def calls(hits: int) -> list[Evaluate]:
        # Five hits remain, of ten or of ten thousand.
        clock.now = full.end + full.window - 5 * (full.window // hits)
        key = full.keys[hits]
        with redis.pipeline() as pipeline:
            for i in copies:
                pipeline.copy(key, f"{key}:{i}", replace=True)
            pipeline.execute()
        return [charge(f"{key}:{i}", full.policies[hits]) for i in copies]

    full.compare(calls)
