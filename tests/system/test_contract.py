"""The contract of all stores, for every algorithm, sync and async."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow.algorithms.penalties import Penalty
from django_slidingwindow.algorithms.timing import tick_us
from django_slidingwindow.policies import ALGORITHMS, SLOTS, Policy
from django_slidingwindow.stores.client import ClientStore
from django_slidingwindow.stores.memory import MemoryStore
from django_slidingwindow.stores.protocol import Evaluate, WindowRule
from django_slidingwindow.stores.redis import RedisStore
from tests.support.clock import DAY, SECOND, START, Clock
from tests.support.oracle import Oracle
from tests.support.store_harness import Engine, WindowAnswer, ask, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redis import Redis

    from tests.support.servers import RedisServer

EXACT_LOGS = ("compact", "log")
LATE = ("buckets", "counter")
# A refusal by slots has no retry time, and is never stored.
RATES_ONLY = pytest.mark.parametrize("algorithm", ALGORITHMS)


class Bench(Engine):
    """An engine that can read the stored values."""

    kind: str
    dump: Callable[[], Any]


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.fixture(params=["memory", "redis", "client"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["sync", "async"])
def engine(kind: str, request: pytest.FixtureRequest) -> Iterator[Bench]:
    clock = Clock()
    store: Any
    if kind == "memory":
        store = MemoryStore(clock=clock)
    else:
        request.getfixturevalue("redis")
        store = (RedisStore if kind == "redis" else ClientStore)("default", clock=clock)
    run = partial(ask, store)
    if request.param == "async":
        loop: asyncio.AbstractEventLoop = request.getfixturevalue("loop")

        def run(call: Any) -> list[int]:
            return loop.run_until_complete(store.arun(call))

    engine = Bench(run, clock)
    engine.kind = "memory" if kind == "memory" else "redis"
    if engine.kind == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        with server.client(decode_responses=False) as client:
            engine.dump = lambda: {key: client.dump(key) for key in client.scan_iter()}
            yield engine
        store.close()
    else:
        windows = store._windows
        engine.dump = lambda: {
            key: [repr(getattr(window, name)) for name in window.__slots__]
            for key, window in windows.items()
        }
        yield engine


@pytest.fixture(params=[*ALGORITHMS, SLOTS])
def algorithm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def policy(algorithm: str, limit: int = 10, window: float = 60, **options: int) -> Policy:
    return Policy(limit=limit, window=window, algorithm=algorithm, **options)


def lasts(engine: Bench, of: Policy, came: int) -> int:
    """Return how long a hit that came at `came` counts."""
    if of.algorithm == "buckets":
        length = -(-of.window_us // of.resolution)
        return length - came % length + of.window_us
    if of.algorithm == "counter":
        return 2 * of.window_us - came % of.window_us
    if of.algorithm == "compact" and engine.kind == "redis":
        return tick_us(of) - 1 - came % tick_us(of) + of.window_us
    return of.window_us


def resets(engine: Bench, of: Policy, came: int) -> int:
    """Return the reset time after the first hit of a window, which comes at `came`."""
    leaves = lasts(engine, of, came)
    return min(leaves, of.window_us) if of.algorithm == "compact" else leaves


def assert_passes_first_at(engine: Bench, answer: WindowAnswer, of: Policy, cost: int = 1) -> None:
    """Assert that the request passes after `retry`, and not a microsecond earlier."""
    came = engine.clock.now
    assert not answer.admits
    assert answer.retry > 0
    engine.clock.now = came + answer.retry - 1
    assert engine.peek(of, cost)[:3] == (False, engine.peek(of, 0).remaining, 1)
    engine.clock.now = came + answer.retry
    assert engine.check(of, cost).admits


# Limits


def test_exactly_the_limit_is_admitted(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm)
    answers = [engine.check(minute) for _ in range(12)]
    assert [s.admits for s in answers] == [True] * 10 + [False] * 2
    assert [s.remaining for s in answers] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]
    assert [s.retry for s in answers[:10]] == [0] * 10
    assert {s.reset for s in answers} == {lasts(engine, minute, START)}


def test_fifty_hits_in_one_microsecond_are_fifty_hits(engine: Bench, algorithm: str) -> None:
    fifty = policy(algorithm, limit=50)
    assert [engine.check(fifty).remaining for _ in range(50)] == list(range(49, -1, -1))
    assert not engine.check(fifty).admits


def test_cost_is_all_or_nothing(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm)
    assert engine.check(minute, 7)[:3] == (True, 3, 0)
    answer = engine.check(minute, 4)
    assert answer[:2] == (False, 3)
    assert engine.check(minute, 3)[:3] == (True, 0, 0)


def test_cost_of_zero_is_always_allowed_and_stores_nothing(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm)
    assert engine.check(minute, 0) == (True, 10, 0, 0)
    assert engine.dump() == {}
    engine.fill(minute)
    stored = engine.dump()
    assert engine.check(minute, 0) == (True, 0, 0, lasts(engine, minute, START))
    assert engine.check(policy(algorithm, limit=0), 0)[:3] == (True, 0, 0)
    assert engine.dump() == stored


def test_cost_above_the_limit_can_never_succeed(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm)
    assert engine.check(minute, 11) == (False, 10, -1, 0)
    engine.check(minute, 3)
    for cost in (11, 10**6, 2**32, 2**32 + 1, 10**30):
        assert engine.check(minute, cost) == (False, 7, -1, lasts(engine, minute, START))
    assert engine.used(minute) == 3


def test_limit_of_zero_refuses_everything(engine: Bench, algorithm: str) -> None:
    none = policy(algorithm, limit=0)
    for count_rejected in (False, True):
        assert engine.check(none, count_rejected=count_rejected) == (False, 0, -1, 0)
    assert engine.dump() == {}


@RATES_ONLY
@pytest.mark.parametrize("window", [0.001, 0.25, 1, 60, 61.000001, 3_600, 86_400, 400 * 86_400])
def test_windows_from_a_millisecond_to_400_days(
    engine: Bench, algorithm: str, window: float
) -> None:
    three = policy(algorithm, limit=3, window=window)
    engine.clock.now += three.window_us // 3
    came = engine.clock.now
    answer = engine.check(three, 3)
    assert answer == (True, 0, 0, resets(engine, three, came))
    if engine.kind == "redis" and window < 60:
        return  # the key expires by the server's clock, which the test does not control
    engine.clock.now += three.window_us - 1
    assert not engine.peek(three, 3).admits
    engine.clock.now = came + lasts(engine, three, came) - 1
    assert engine.peek(three, 3)[::2] == (False, 1)
    engine.clock.now += 1
    assert engine.peek(three, 3) == (True, 0, 0, resets(engine, three, engine.clock.now))


def test_hit_of_a_tick_that_is_coarser_than_the_clock_never_leaves_early(
    engine: Bench,
) -> None:
    year = policy("compact", limit=1, window=400 * 86_400)
    tick = tick_us(year)
    assert tick > 1
    for offset in (0, 1, tick - 1):
        engine.clock.now += offset
        engine.check(year)
        assert 0 <= engine.check(year).retry - year.window_us < tick
        engine.reset(year)


@pytest.mark.parametrize("window", [60, 3_000.000_001, 86_400, 400 * 86_400])
@pytest.mark.parametrize("name", EXACT_LOGS)
def test_reset_is_never_more_than_the_window(engine: Bench, name: str, window: float) -> None:
    days = policy(name, limit=2, window=window)
    for offset in (0, 1, 5):
        engine.clock.now += offset
        for asked in (engine.peek(days, 2), engine.check(days), engine.check(days, 2)):
            assert asked.reset <= days.window_us
        assert engine.check(days, 2, count_rejected=True).reset == days.window_us
        engine.reset(days)


# Retry and reset times


@RATES_ONLY
def test_retry_is_the_first_microsecond_at_which_the_request_passes(
    engine: Bench, algorithm: str
) -> None:
    minute = policy(algorithm, resolution=7)
    engine.clock.now += 17 * SECOND
    for _ in range(10):
        assert engine.check(minute).admits
        engine.clock.now += 1_234_567
    assert_passes_first_at(engine, engine.check(minute), minute)


@RATES_ONLY
def test_retry_of_a_cost_waits_until_enough_hits_have_left(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm, resolution=7)
    engine.clock.now += 17 * SECOND
    for _ in range(10):
        assert engine.check(minute).admits
        engine.clock.now += 1_234_567
    retries = [engine.peek(minute, cost).retry for cost in range(1, 11)]
    assert retries == sorted(retries)
    assert_passes_first_at(engine, engine.check(minute, 6), minute, 6)


@pytest.mark.parametrize("name", EXACT_LOGS)
def test_retry_of_an_exact_log_is_when_the_oldest_hit_is_a_window_old(
    engine: Bench, name: str
) -> None:
    minute = policy(name, limit=3)
    for seconds in (0, 10, 30):
        engine.clock.now = START + seconds * SECOND
        engine.check(minute)
    engine.clock.now = START + 40 * SECOND
    assert [engine.peek(minute, cost).retry for cost in (1, 2, 3)] == [
        20 * SECOND, 30 * SECOND, 50 * SECOND,
    ]  # fmt: skip


def test_sub_windows_release_hits_at_most_one_late_and_never_early(engine: Bench) -> None:
    minute = policy("buckets", limit=1, resolution=6)
    for offset in (0, 1, 9_999_999):
        engine.clock.now = START + offset
        reset = engine.check(minute).reset
        assert minute.window_us < reset <= minute.window_us + 10 * SECOND
        assert (engine.clock.now + reset) % (10 * SECOND) == 0
        engine.reset(minute)


def test_sub_windows_count_billions_correctly(engine: Bench) -> None:
    minute = policy("buckets", limit=100_000_000, resolution=6)
    for number in range(1, 500):
        answer = engine.check(minute, 12_000_000)
        # The oldest sub-window counts in full, so that seven count at a time.
        assert answer.remaining == minute.limit - 12_000_000 * min(number, 7)
        assert answer.reset == (70 - 10 * min(number - 1, 6)) * SECOND
        engine.clock.now += 10 * SECOND
    assert engine.refund(minute, 12_000_000, engine.clock.now - 40 * SECOND) == 12_000_000
    assert engine.used(minute) == 5 * 12_000_000


@pytest.mark.parametrize("resolutions", [(6, 12), (12, 6), (1, 60), (60, 7)])
@pytest.mark.parametrize("count_rejected", [False, True])
def test_two_resolutions_of_one_window_in_one_request_share_its_hits(
    engine: Bench, resolutions: tuple[int, int], count_rejected: bool
) -> None:
    oracle = Oracle(engine.clock, exact=True)
    for limit, cost, seconds in ((5, 3, 0), (5, 3, 2), (5, 4, 1), (3, 2, 7), (9, 9, 0), (2, 1, 31)):
        engine.clock.now += seconds * SECOND
        lines = tuple(
            WindowRule(
                policy("buckets", limit=limit, resolution=resolution), cost, False, count_rejected
            )
            for resolution in resolutions
        )
        answer = engine.check_all(*lines)
        call = Evaluate((key_of(lines[0].policy),) * 2, lines, True)
        assert [*answer[:2], *answer.windows[0], *answer.windows[1]] == oracle.run(call)
        assert engine.used(lines[0].policy) >= 0


def test_counter_weighs_the_previous_window(engine: Bench) -> None:
    minute = policy("counter")
    engine.fill(minute)
    engine.clock.now += (
        75 * SECOND
    )  # a quarter into the next window: three quarters of ten, rounded up
    assert engine.used(minute) == 8
    assert engine.check(minute, 2)[:3] == (True, 0, 0)
    assert engine.check(minute) == (False, 0, 3 * SECOND, 45 * SECOND)
    assert_passes_first_at(engine, engine.peek(minute), minute)


@pytest.mark.parametrize(
    ("window_us", "elapsed", "before", "limit"),
    [
        (28_142_169_939_349, 25_230_910_980_106, 1_500, 100),
        (33_703_717_880_349, 3_063_974_352_759, 1_500, 1_301),
        (34_363_592_123_913, 0, 291, 3),
        (33_006_312_615_728, 0, 311, 19),
    ],
)
@pytest.mark.parametrize("count_rejected", [False, True])
def test_counter_equals_its_estimate_when_numbers_are_rounded(
    engine: Bench, window_us: int, elapsed: int, before: int, limit: int, count_rejected: bool
) -> None:
    oracle = Oracle(engine.clock, exact=True)
    of = policy("counter", limit=limit, window=window_us / 1_000_000)
    engine.clock.now = 50 * window_us
    for line in (
        WindowRule(replace(of, limit=before), before),
        WindowRule(of, 1, False, count_rejected),
    ):
        answer = engine.check_all(line)
        expected = oracle.run(Evaluate((key_of(of),), (line,), True))
        assert [*answer[:2], *answer.windows[0]] == expected
        engine.clock.now += window_us + elapsed
    engine.clock.now -= window_us + elapsed
    assert_passes_first_at(engine, engine.peek(of), of)


def test_reset_is_when_the_oldest_counted_hit_leaves(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm, resolution=60)
    engine.clock.now += 5 * SECOND
    engine.check(minute, 2)
    leaves = engine.clock.now + lasts(engine, minute, engine.clock.now)
    engine.clock.now += 31 * SECOND
    assert engine.check(minute, 3).reset == leaves - engine.clock.now
    if algorithm == "counter":
        return  # both hits are in one clock window, and fade together
    engine.clock.now = leaves - 1
    assert engine.peek(minute, 0)[1::2] == (5, 1)
    engine.clock.now = leaves
    assert engine.peek(minute, 0).remaining == 7
    assert engine.peek(minute, 0).reset > 1


@RATES_ONLY
def test_client_that_keeps_sending_is_admitted_when_the_window_has_room(
    engine: Bench, algorithm: str
) -> None:
    minute = policy(algorithm)
    engine.fill(minute)
    retry = engine.check(minute).retry
    for _ in range(50):
        engine.clock.now += retry // 51
        engine.check(minute, 10)
    engine.clock.now = START + retry
    assert engine.check(minute).admits


# Limits that change while the key lives


def test_raised_limit_applies_at_once(engine: Bench, algorithm: str) -> None:
    engine.fill(policy(algorithm, limit=5))
    assert not engine.check(policy(algorithm, limit=5)).admits
    assert engine.check(policy(algorithm, limit=8), 3)[:3] == (True, 0, 0)
    assert not engine.check(policy(algorithm, limit=8)).admits


@RATES_ONLY
def test_lowered_limit_applies_at_once(engine: Bench, algorithm: str) -> None:
    free, paid = policy(algorithm, limit=2), policy(algorithm, limit=8)
    for _ in range(6):
        engine.check(paid)
        engine.clock.now += 2 * SECOND
    answer = engine.check(free)
    assert answer[:2] == (False, 0)
    assert_passes_first_at(engine, answer, free)


@pytest.mark.parametrize("limits", [(100, 20, 300), (20, 100, 20), (500, 64, 65)])
def test_limit_can_change_between_few_and_many_hits(
    engine: Bench, algorithm: str, limits: tuple[int, ...]
) -> None:
    used = 0
    for limit in limits:
        of = policy(algorithm, limit=limit)
        assert engine.peek(of, 0).remaining == max(0, limit - used)
        while engine.check(of).admits:
            used += 1
        assert used == max(used, limit)


# Several policies at once


def test_refusal_on_one_axis_spends_nothing_on_the_others(engine: Bench, algorithm: str) -> None:
    full = policy(algorithm, limit=1)
    engine.fill(full)
    stored = engine.dump()
    others = [WindowRule(policy(name, limit=5, window=120), 1) for name in ALGORITHMS]
    for lines in ((WindowRule(full, 1), *others), (*others, WindowRule(full, 1))):
        answer = engine.check_all(*lines)
        assert not answer.admitted
        assert [s.admits for s in answer.windows] == [line.policy != full for line in lines]
        assert {s.remaining for s in answer.windows} == {0, 5}
    assert engine.dump() == stored


def test_policies_of_all_algorithms_are_charged_together(engine: Bench) -> None:
    lines = [
        WindowRule(policy(name, limit=limit), 2)
        for name, limit in zip((*ALGORITHMS, SLOTS), (9, 7, 8, 5, 6), strict=True)
    ]
    assert [s.remaining for s in engine.check_all(*lines).windows] == [7, 5, 6, 3, 4]
    assert [s.remaining for s in engine.check_all(*lines).windows] == [5, 3, 4, 1, 2]
    answer = engine.check_all(*lines)
    assert not answer.admitted
    assert [s.admits for s in answer.windows] == [True, True, True, False, True]
    assert [s.remaining for s in answer.windows] == [5, 3, 4, 1, 2]


def test_each_rule_has_its_own_cost(engine: Bench, algorithm: str) -> None:
    hits, bytes_sent = policy(algorithm, limit=10), policy(algorithm, limit=100, window=61)
    windows = engine.check_all(WindowRule(hits, 1), WindowRule(bytes_sent, 70)).windows
    assert [s.remaining for s in windows] == [9, 30]
    answer = engine.check_all(WindowRule(hits, 1), WindowRule(bytes_sent, 70))
    assert not answer.admitted
    assert [s.remaining for s in answer.windows] == [9, 30]


def test_identifiers_are_counted_separately(engine: Bench, algorithm: str) -> None:
    one = policy(algorithm, limit=1)
    assert engine.check_all(WindowRule(one, 1), WindowRule(one, 1), names=("a", "b")).admitted
    answer = engine.check_all(WindowRule(one, 1), WindowRule(one, 1), names=("b", "c"))
    assert [s.admits for s in answer.windows] == [False, True]
    assert engine.check_all(WindowRule(one, 1), names=("c",)).admitted


def test_policies_with_an_equal_key_share_their_hits_and_are_charged_once(
    engine: Bench, algorithm: str
) -> None:
    three, ten = policy(algorithm, limit=3), policy(algorithm, limit=10)
    for left in (2, 1, 0):
        windows = engine.check_all(WindowRule(ten, 1), WindowRule(three, 1)).windows
        assert [s.remaining for s in windows] == [left + 7, left]
    assert [
        s.admits for s in engine.check_all(WindowRule(ten, 1), WindowRule(three, 1)).windows
    ] == [
        True,
        False,
    ]
    assert engine.used(ten) == 3


# Observe


@RATES_ONLY
def test_observing_policy_reports_a_refusal_and_refuses_nothing(
    engine: Bench, algorithm: str
) -> None:
    watched, other = policy(algorithm, limit=1), policy("compact", limit=5, window=120)
    engine.fill(watched)
    answer = engine.check_all(WindowRule(watched, 1, observed=True), WindowRule(other, 1))
    assert answer.admitted
    assert [s.admits for s in answer.windows] == [False, True]
    assert answer.windows[0].retry == engine.check(watched).retry > 0
    assert engine.used(watched) == 1
    assert engine.used(other) == 1


def test_observing_policy_is_charged_if_it_has_room(engine: Bench, algorithm: str) -> None:
    watched = policy(algorithm, limit=5)
    assert engine.check_all(WindowRule(watched, 2, observed=True)).windows[0].remaining == 3
    assert engine.used(watched) == 2


def test_observing_policy_is_not_charged_for_a_request_that_is_refused(
    engine: Bench, algorithm: str
) -> None:
    watched, full = policy(algorithm, limit=5), policy("log", limit=0)
    answer = engine.check_all(WindowRule(watched, 1, observed=True), WindowRule(full, 1))
    assert not answer.admitted
    assert answer.windows[0][:2] == (True, 5)
    assert engine.used(watched) == 0


# Counted rejections


def test_only_admitted_requests_are_stored(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm)
    engine.fill(minute)
    stored = engine.dump()
    engine.clock.now += 1 * SECOND
    for _ in range(20):
        assert not engine.check(minute, 3).admits
    assert engine.dump() == stored


@RATES_ONLY
def test_counted_rejections_keep_a_persistent_client_out(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm, limit=5)
    engine.fill(minute)
    for _ in range(100):
        engine.clock.now += 2 * SECOND
        answer = engine.check(minute, count_rejected=True)
        assert answer[:2] == (False, 0)
    engine.clock.now += answer.retry - 1
    assert not engine.peek(minute).admits
    engine.clock.now += 1
    assert engine.peek(minute).admits


@RATES_ONLY
def test_retry_is_computed_after_storing_the_rejection(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm, limit=5, resolution=7)
    engine.fill(minute)
    engine.clock.now += 20 * SECOND
    answer = engine.check(minute, 2, count_rejected=True)
    assert answer == engine.peek(minute, 2)
    assert_passes_first_at(engine, answer, minute, 2)


def test_newest_hits_up_to_the_limit_are_kept(engine: Bench, algorithm: str) -> None:
    minute, more = policy(algorithm, limit=5), policy(algorithm, limit=500)
    for cost in (1, 2, 2, 4, 5, 3, 1):
        engine.check(minute, cost, count_rejected=True)
        engine.clock.now += 7 * SECOND
        assert engine.used(more) <= 5
    assert engine.used(more) == 5


@pytest.mark.parametrize("name", EXACT_LOGS)
def test_counted_rejection_replaces_the_oldest_hits(engine: Bench, name: str) -> None:
    minute = policy(name, limit=3)
    for _ in range(3):
        engine.check(minute)
        engine.clock.now += 10 * SECOND
    # Hits came at 0, 10 and 20. Now it is 30, and 10, 20 and 30 are stored.
    answer = engine.check(minute, count_rejected=True)
    assert answer == (False, 0, 40 * SECOND, 40 * SECOND)


@RATES_ONLY
def test_rejected_cost_above_the_limit_fills_the_window(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm, limit=5)
    engine.check(minute, 2)
    engine.clock.now += SECOND
    answer = engine.check(minute, 50, count_rejected=True)
    assert answer == (False, 0, -1, lasts(engine, minute, engine.clock.now))
    assert engine.used(policy(algorithm, limit=50)) == 5


def test_refusal_by_another_policy_stores_nothing(engine: Bench, algorithm: str) -> None:
    counting, full = policy(algorithm, limit=5), policy("log", limit=0, window=9)
    for _ in range(3):
        answer = engine.check_all(WindowRule(counting, 1, count_rejected=True), WindowRule(full, 1))
        assert answer.windows[0] == (True, 5, 0, 0)
    assert engine.dump() == {}


@RATES_ONLY
def test_rejection_by_an_observing_policy_counts_with_count_rejected(
    engine: Bench, algorithm: str
) -> None:
    watched = policy(algorithm, limit=2)
    engine.fill(watched)
    engine.clock.now += 20 * SECOND
    line = WindowRule(watched, 2, observed=True, count_rejected=True)
    answer = engine.check_all(line)
    assert answer.admitted
    assert answer.windows[0] == (
        False,
        0,
        answer.windows[0].retry,
        lasts(engine, watched, START + 20 * SECOND),
    )
    assert engine.peek(watched) == (False, 0, engine.peek(watched).retry, answer.windows[0].reset)


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("cost", [1, 3, 50])
def test_counted_rejection_never_lowers_the_count_of_a_larger_limit(
    engine: Bench, algorithm: str, cost: int, observed: bool
) -> None:
    """A key has several limits if profiles share a scope, or if the limit of a profile changes."""
    read, write = policy(algorithm, limit=20, resolution=7), policy(algorithm, limit=5)
    write = replace(write, resolution=7)
    admitted = 0
    for _ in range(60):
        admitted += engine.check(read).admits
        used = engine.used(read)
        engine.check_all(WindowRule(write, cost, observed=observed, count_rejected=True))
        assert engine.used(read) >= used
        engine.clock.now += SECOND // 2
    assert admitted <= 20


@pytest.mark.parametrize("first", ["read", "write"])
def test_observed_rejection_of_the_same_request_does_not_replace_its_admission(
    engine: Bench, algorithm: str, first: str
) -> None:
    read = WindowRule(policy(algorithm, limit=20), 1)
    write = WindowRule(policy(algorithm, limit=5), 1, observed=True, count_rejected=True)
    lines = (read, write) if first == "read" else (write, read)
    for left in range(19, -1, -1):
        answer = engine.check_all(*lines)
        assert answer.admitted
        assert answer.windows[lines.index(read)].remaining == left
        engine.clock.now += SECOND // 10
    assert not engine.check_all(*lines).admitted


@RATES_ONLY
@pytest.mark.parametrize("first", ["read", "write"])
def test_retry_counts_the_rejection_that_another_policy_of_the_key_stores(
    engine: Bench, algorithm: str, first: str
) -> None:
    read, write = policy(algorithm, limit=6), policy(algorithm, limit=4)
    for _ in range(6):
        engine.check(read)
        engine.clock.now += 3 * SECOND
    lines = [WindowRule(read, 1), WindowRule(write, 1, count_rejected=True)]
    if first == "write":
        lines.reverse()
    for _ in range(2):
        answer = engine.check_all(*lines)
        assert not answer.admitted
        for line, window in zip(lines, answer.windows, strict=True):
            assert window == engine.peek(line.policy)
    window = answer.windows[lines.index(WindowRule(read, 1))]
    assert_passes_first_at(engine, window, read)


@pytest.mark.parametrize("name", EXACT_LOGS)
def test_rejections_of_one_key_store_the_largest_one_in_any_order(engine: Bench, name: str) -> None:
    lines = [WindowRule(policy(name, limit=limit), 15, count_rejected=True) for limit in (5, 20)]
    for order in (lines, lines[::-1]):
        engine.check(policy(name, limit=7), 7)
        engine.clock.now += SECOND
        assert not engine.check_all(*order).admitted
        assert engine.used(policy(name, limit=500)) == 20
        engine.reset(policy(name))


def test_limit_lowered_to_zero_still_reports_stored_hits(engine: Bench, algorithm: str) -> None:
    engine.check(policy(algorithm), 4)
    engine.clock.now += 5 * SECOND
    answer = engine.check(policy(algorithm, limit=0), count_rejected=True)
    assert answer == (False, 0, -1, lasts(engine, policy(algorithm), START) - 5 * SECOND)
    assert engine.used(policy(algorithm)) == 4


# Peek


def test_peek_returns_the_answer_of_check_and_changes_nothing(
    engine: Bench, algorithm: str
) -> None:
    minute = policy(algorithm, limit=3)
    for _ in range(5):
        for cost in (0, 1, 2, 4):
            stored = engine.dump()
            peeked = engine.peek(minute, cost)
            assert engine.peek(minute, cost) == peeked
            assert engine.dump() == stored
        assert engine.peek(minute) == engine.check(minute)
        engine.clock.now += 13 * SECOND


def test_peek_changes_nothing_when_hits_are_expired_or_in_the_future(
    engine: Bench, algorithm: str
) -> None:
    minute = policy(algorithm, limit=3)
    engine.check(minute, 2)
    stored = engine.dump()
    for step in (90 * SECOND, 10 * DAY, -20 * DAY):
        engine.clock.now = START + step
        engine.peek(minute)
        assert engine.dump() == stored
    engine.clock.now = START
    assert engine.used(minute) == 2


# Refunds


def test_refund_returns_the_charge(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm)
    engine.check(minute, 4)
    engine.clock.now += 7 * SECOND
    engine.check(minute, 3)
    assert engine.refund(minute, 4, START) == 4
    assert engine.peek(minute, 0).remaining == 7
    engine.clock.now += 5 * SECOND
    assert engine.refund(minute, 3, START + 7 * SECOND) == 3
    assert engine.dump() == {}


def test_refund_can_be_partial(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm)
    engine.check(minute, 4)
    assert engine.refund(minute, 1, START) == 1
    assert engine.refund(minute, 0, START) == 0
    assert engine.used(minute) == 3
    assert engine.peek(minute, 0).reset == lasts(engine, minute, START)


def test_refund_takes_no_more_than_is_stored(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm)
    engine.check(minute, 4)
    assert engine.refund(minute, 4, START) == 4
    assert engine.refund(minute, 4, START) == 0
    engine.check(minute, 2)
    assert engine.refund(minute, 4, START) == 2
    assert engine.dump() == {}


@RATES_ONLY
def test_refund_of_hits_that_have_left_is_ignored(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm)
    engine.check(minute, 4)
    stored = engine.dump()
    engine.clock.now += lasts(engine, minute, START)
    assert engine.refund(minute, 4, START) == 0
    assert engine.dump() == stored
    engine.check(minute, 2)
    assert engine.refund(minute, 4, START) == 0
    assert engine.used(minute) == 2


def test_refund_to_a_missing_key_is_ignored(engine: Bench, algorithm: str) -> None:
    assert engine.refund(policy(algorithm), 1, START) == 0
    assert engine.dump() == {}


@pytest.mark.parametrize("name", EXACT_LOGS)
def test_refund_takes_no_hits_of_another_time(engine: Bench, name: str) -> None:
    minute = policy(name)
    for _ in range(3):
        engine.check(minute, 2)
        engine.clock.now += 1
    assert engine.refund(minute, 9, START + 3) == 0
    assert engine.refund(minute, 9, START - 1) == 0
    assert engine.refund(minute, 9, START + 1) == 2
    engine.clock.now = START + minute.window_us
    assert engine.peek(minute, 0)[1::2] == (8, 2)


def test_refund_lowers_only_the_sub_window_of_the_hit(engine: Bench) -> None:
    minute = policy("buckets", resolution=6)
    for seconds in (0, 5, 15, 25):
        engine.clock.now = START + seconds * SECOND
        engine.check(minute)
    assert engine.refund(minute, 5, START + 9 * SECOND) == 2
    assert engine.refund(minute, 5, START + 30 * SECOND) == 1  # a time in the future counts as now
    assert engine.peek(minute, 0)[1::2] == (9, 55 * SECOND)


def test_refund_of_a_receipt_from_before_a_reset_takes_nothing(
    engine: Bench, algorithm: str
) -> None:
    """Later hits are in the same sub-window, and in the same clock window."""
    hour = policy(algorithm, window=3_600, resolution=1)
    engine.check(hour, 8)
    old = engine.clock.now
    engine.clock.now += SECOND
    engine.reset(hour)
    engine.check(hour, 5)
    engine.check(hour, 2)
    new = engine.clock.now
    engine.clock.now += SECOND
    assert engine.refund(hour, 8, old) == 0
    assert engine.used(hour) == 7
    assert engine.refund(hour, 2, new) == 2
    if algorithm in LATE:
        # The same for the previous clock window.
        engine.clock.now = START + hour.window_us
        assert engine.refund(hour, 8, old) == 0
        assert engine.used(hour) == 5
        assert engine.refund(hour, 1, new) == 1


@pytest.mark.parametrize("name", LATE)
def test_refund_finds_hits_made_after_the_clock_stepped_back(engine: Bench, name: str) -> None:
    hour = policy(name, window=3_600, resolution=1)
    engine.clock.now += 60 * SECOND
    engine.check(hour, 3)
    for step in (SECOND, 120 * SECOND):
        # A step within the same sub-window, then one into another sub-window.
        engine.clock.now -= step
        engine.check(hour, 2)
        assert engine.refund(hour, 2, engine.clock.now) == 2
        assert engine.used(hour) == 3


def test_refund_can_be_of_the_previous_window(engine: Bench) -> None:
    minute = policy("counter")
    engine.fill(minute)
    engine.clock.now += 90 * SECOND
    assert engine.used(minute) == 5
    assert engine.refund(minute, 4, START) == 4
    assert engine.used(minute) == 3


def test_refund_finds_hits_that_were_moved_when_the_clock_stepped_back(
    engine: Bench, algorithm: str
) -> None:
    minute = policy(algorithm)
    engine.check(minute, 4)
    engine.clock.now -= 10 * DAY
    assert engine.refund(minute, 3, START) == 3
    assert engine.used(minute) == 1
    assert engine.peek(minute, 0).reset == lasts(engine, minute, engine.clock.now)


def test_refund_drops_expired_hits(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm)
    second, later, back = (70, 125, 75) if algorithm == "counter" else (50, 70, 55)
    engine.check(minute, 2)
    engine.clock.now = START + second * SECOND
    engine.check(minute, 3)
    engine.clock.now = START + later * SECOND
    assert engine.refund(minute, 1, START + second * SECOND) == 1
    engine.clock.now = START + back * SECOND
    assert engine.used(minute) == 2


def test_refund_of_one_of_many_hits_keeps_the_others(engine: Bench, algorithm: str) -> None:
    many = policy(algorithm, limit=400)
    for _ in range(200):
        engine.check(many, 2)
        engine.clock.now += 1_000
    for number in (199, 100, 0):
        assert engine.refund(many, 1, START + 1_000 * number) == 1
    assert engine.used(many) == 397
    assert engine.check(many, 3).admits
    assert not engine.check(many).admits


# Reset


def test_reset_deletes_windows_and_returns_their_number(engine: Bench, algorithm: str) -> None:
    minute, hour = policy(algorithm), policy(algorithm, window=3_600)
    engine.fill(minute)
    assert engine.reset(minute, hour) == 1
    assert engine.dump() == {}
    engine.check_all(WindowRule(minute, 1), WindowRule(hour, 1))
    assert engine.reset(minute, hour) == 2
    assert engine.reset(minute, hour) == 0
    assert engine.check(minute)[:3] == (True, 9, 0)


# The clock


@RATES_ONLY
@pytest.mark.parametrize("step", [1, 20 * SECOND, 61 * SECOND, 50 * DAY, 3_650 * DAY])
def test_clock_that_steps_back_admits_nothing_early_and_locks_no_client_out(
    engine: Bench, algorithm: str, step: int
) -> None:
    minute = policy(algorithm)
    engine.clock.now += 30 * SECOND
    engine.fill(minute)
    engine.clock.now -= step
    back = engine.clock.now
    peeked = engine.peek(minute)
    answer = engine.check(minute)
    assert answer == peeked
    assert answer[:2] == (False, 0)
    # The reset is the same as if the hits had come now.
    assert answer.reset == lasts(engine, minute, back)
    assert 0 < answer.retry <= answer.reset
    # The refusal has stored the moved hits too.
    engine.clock.now = back + answer.retry - 1
    assert engine.peek(minute).retry == 1
    engine.clock.now = back + answer.reset
    assert engine.check(minute, 10).admits


def test_hits_in_the_past_stay_when_the_clock_steps_back(engine: Bench, algorithm: str) -> None:
    minute = policy(algorithm)
    engine.check(minute, 2)
    engine.clock.now += 40 * SECOND
    engine.check(minute, 3)
    engine.clock.now -= 20 * SECOND
    answer = engine.check(minute)
    assert answer[:2] == (True, 4)
    assert engine.clock.now + answer.reset == START + lasts(engine, minute, START)
    engine.clock.now = START + lasts(engine, minute, START)
    if algorithm != "counter":
        assert engine.used(minute) == 4


@pytest.mark.parametrize("step", [2**32, 2**32 - 1, 2**32 + 1, 2**31, 50 * DAY, 3_650 * DAY])
def test_clock_that_leaps_ahead_expires_all_hits(engine: Bench, algorithm: str, step: int) -> None:
    for of in (policy(algorithm, limit=3), policy(algorithm, limit=100, window=1_000)):
        engine.fill(of)
        engine.clock.now += step
        assert engine.used(of) == 0
        engine.fill(of)
        assert not engine.check(of).admits


def test_old_and_new_hits_differ_after_four_byte_stamps_wrap(engine: Bench, algorithm: str) -> None:
    minute, many = policy(algorithm, limit=3), policy(algorithm, limit=100, window=59)
    for of in (minute, many):
        for _ in range(3):
            engine.check(of, of.limit - 1)
            engine.clock.now += 2**32 - 10
            assert engine.used(of) == 0
            engine.check(of)
            engine.clock.now += 10
            assert engine.used(of) == 1
            engine.clock.now += 2**32


# Penalties (what they count is in test_penalties)


PENALTY = Penalty(limit=2, window=600, steps=(60.0, 600.0))


def watched(of: Policy, cost: int = 1) -> tuple[WindowRule, WindowRule]:
    """Return a window and the penalty that counts its refusals."""
    return WindowRule(of, cost), WindowRule(PENALTY, cost, watches=1)


def block(engine: Bench, of: Policy) -> None:
    """Fill the window, and cause refusals until the penalty blocks."""
    assert engine.check_all(*watched(of, of.limit)).admitted
    for left in (1, 0, 2):
        assert engine.check_all(*watched(of)).windows[1].remaining == left


def test_penalty_changes_no_answer_before_it_blocks(engine: Bench, algorithm: str) -> None:
    of = policy(algorithm, limit=3, resolution=7)
    for seconds, cost in ((0, 1), (7, 2), (1, 1), (20, 2), (90, 0), (1, 1), (200, 2)):
        engine.clock.now += seconds * SECOND
        alone = engine.check_all(WindowRule(of, cost), names=("alone",))
        beside = engine.check_all(*watched(of, cost))
        assert (beside.admitted, beside.windows[0]) == (alone.admitted, alone.windows[0])
        assert beside.windows[1].admits


def test_peek_at_a_penalty_changes_nothing(engine: Bench, algorithm: str) -> None:
    of = policy(algorithm, limit=3)
    engine.check_all(*watched(of, 3))
    for _ in range(3):
        stored = engine.dump()
        peeked = engine.check_all(*watched(of), writes=False)
        assert engine.dump() == stored
        assert engine.check_all(*watched(of)) == peeked
    stored = engine.dump()
    for step in (90 * SECOND, 10 * DAY, -20 * DAY):
        engine.clock.now = START + step
        engine.check_all(*watched(of), writes=False)
        assert engine.dump() == stored


def test_refund_to_a_blocked_window_does_not_end_the_block(engine: Bench, algorithm: str) -> None:
    of = policy(algorithm, limit=3)
    block(engine, of)
    assert engine.refund(of, 3, START) == 3
    for left in (60 * SECOND, 1):
        engine.clock.now = START + 60 * SECOND - left
        answer = engine.check_all(*watched(of))
        assert not answer.admitted
        assert (answer.windows[0].retry, answer.windows[1].retry) == (left, left)
    engine.clock.now += 1
    assert engine.check_all(*watched(of)).admitted


def test_reset_ends_a_block(engine: Bench, algorithm: str) -> None:
    of = policy(algorithm, limit=3)
    block(engine, of)
    assert engine.reset(of, PENALTY) == 2
    assert engine.dump() == {}
    assert engine.check_all(*watched(of)).windows[1] == (True, 2, 0, 0)


@pytest.mark.parametrize("step", [2**32, 50 * DAY, 3_650 * DAY])
def test_clock_that_leaps_ahead_ends_a_block(engine: Bench, algorithm: str, step: int) -> None:
    of = policy(algorithm, limit=3)
    block(engine, of)
    engine.clock.now += step
    block(engine, of)
    # The first offence has expired: this counts as the first one again.
    assert engine.check_all(*watched(of)).windows[1].retry == 60 * SECOND


# Many hits in one compact key


@pytest.fixture
def sole(redis: Redis) -> Bench:
    clock = Clock()
    engine = Bench(RedisStore("default", clock=clock).run, clock)
    engine.kind = "redis"
    return engine


def test_log_of_many_hits_grows_hit_by_hit_and_drains(sole: Bench) -> None:
    many = policy("compact", limit=3_000, window=300)
    gap = 100_000
    for number in range(3_000):
        sole.clock.now = START + number * gap
        left = 2_999 - number
        reset = many.window_us - number * gap
        assert sole.check(many) == (True, left, 0, reset)
    assert sole.check(many) == (False, 0, gap, gap)
    # One hit expires with each gap. Step by one, by a few, and by many gaps.
    gone = 0
    for step in [1] * 150 + [2, 3, 62, 63, 64, 65, 66, 127, 128, 129] * 2 + [500, 900]:
        gone += step
        sole.clock.now = START + many.window_us + (gone - 1) * gap
        assert sole.peek(many, 0) == (True, gone, 0, gap)
        assert sole.peek(many, gone + 5).retry == 5 * gap
    while gone < 3_000:
        gone += 7
        sole.clock.now = START + many.window_us + (gone - 1) * gap
        assert sole.used(many) == max(0, 3_000 - gone)


def test_ring_wraps_many_times(sole: Bench) -> None:
    many = policy("compact", limit=100, window=100)
    for number in range(1_000):
        sole.clock.now = START + number * SECOND
        assert sole.check(many).admits
        sole.clock.now += SECOND // 2
        if number >= 99:
            assert sole.check(many) == (False, 0, SECOND // 2, SECOND // 2)
            assert sole.peek(many, 40).retry == 39 * SECOND + SECOND // 2


@pytest.mark.parametrize("hits", [66, 80, 200, 400])
def test_draining_ring_never_counts_overwritten_hits(sole: Bench, hits: int) -> None:
    many = policy("compact", limit=500, window=100)
    came = [START + number * SECOND // 8 for number in range(hits)]
    for sole.clock.now in came:
        assert sole.check(many).admits
    # From now on one hit in two seconds: the ring gets shorter.
    for _ in range(150):
        sole.clock.now += 2 * SECOND
        came = [stamp for stamp in came if stamp + many.window_us > sole.clock.now]
        came.append(sole.clock.now)
        reset = came[0] + many.window_us - sole.clock.now
        assert sole.check(many) == (True, 500 - len(came), 0, reset)


@pytest.mark.parametrize("cost", [1, 63, 64, 65, 500, 1_000])
def test_large_cost_is_stored_completely_across_the_end_of_a_ring(sole: Bench, cost: int) -> None:
    many = policy("compact", limit=1_000, window=100)
    live: list[tuple[int, int]] = []
    for _ in range(300):
        now = sole.clock.now
        live = [(stamp, n) for stamp, n in live if stamp + many.window_us > now]
        used = sum(n for _, n in live)
        answer = sole.check(many, cost)
        assert answer.admits == (used + cost <= 1_000)
        if answer.admits:
            live.append((now, cost))
            used += cost
        assert answer.remaining == 1_000 - used
        assert answer.reset == live[0][0] + many.window_us - now
        sole.clock.now += 3 * SECOND + 1


# Expiry


@pytest.fixture
def assert_expires(sole: Bench, redis: Redis) -> Callable[[Policy, int], None]:
    start = time.monotonic()

    def assert_expires(of: Policy, came: int) -> None:
        """Assert that the key expires within a second after a hit that came at `came`."""
        left = (came + lasts(sole, of, came) - sole.clock.now) / 1_000
        goes = redis.pttl(key_of(of))
        # The server's clock continues while the test's clock stands still.
        assert left - 1_000 * (time.monotonic() - start) <= goes <= left + 1_000

    return assert_expires


@RATES_ONLY
@pytest.mark.parametrize(("limit", "window"), [(3, 300), (200, 301)])
def test_key_always_expires_within_a_second_after_its_last_hit(
    sole: Bench,
    algorithm: str,
    limit: int,
    window: int,
    assert_expires: Callable[[Policy, int], None],
) -> None:
    of, clock = policy(algorithm, limit=limit, window=window), sole.clock
    clock.now = first = START + 499_999
    sole.check(of, limit - 1)
    assert_expires(of, first)
    clock.now = second = first + 250 * SECOND
    sole.check(of)
    assert_expires(of, second)
    sole.refund(of, 1, second)
    assert_expires(of, first)
    sole.check(of, 2, count_rejected=True)
    assert_expires(of, second)
    clock.now -= 600 * SECOND
    sole.check(of, 2)
    assert_expires(of, clock.now)
    clock.now += 2 * of.window_us
    sole.check(of)
    assert_expires(of, clock.now)


def test_rewritten_key_has_an_expiry(
    sole: Bench, algorithm: str, assert_expires: Callable[[Policy, int], None]
) -> None:
    of, clock = policy(algorithm, limit=200), sole.clock
    for milliseconds, cost in ((50, 150), (60_010, 2), (60_060, 1)):
        clock.now = START + 1_000 * milliseconds
        assert sole.check(of, cost).admits
        assert_expires(of, clock.now)
