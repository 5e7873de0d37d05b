"""The store in this process's memory: its bounds, and its use by several threads."""

from __future__ import annotations

import threading
import time
import tracemalloc
from functools import partial

import pytest

from django_slidingwindow.decisions import LOCAL
from django_slidingwindow.policies import ALGORITHMS, Policy
from django_slidingwindow.stores.memory import MemoryStore
from django_slidingwindow.stores.protocol import Evaluate, Reset, WindowRule
from tests.support.clock import SECOND, START, Clock
from tests.support.store_harness import Engine, ask


@pytest.fixture
def clock() -> Clock:
    return Clock()


def policy(limit: int = 10, window: float = 60, algorithm: str = "compact") -> Policy:
    return Policy(limit=limit, window=window, algorithm=algorithm)


def hit(store: MemoryStore, name: str, of: Policy, cost: int = 1) -> int:
    """Charge the window with this key, and return the number of hits that are left."""
    return ask(store, Evaluate((name,), (WindowRule(of, cost),), True))[3]


def used(store: MemoryStore, name: str, of: Policy) -> int:
    return of.limit - ask(store, Evaluate((name,), (WindowRule(of, 0),), False))[3]


def test_store_is_local_and_has_one_node() -> None:
    store = MemoryStore()
    assert store.source == LOCAL
    assert store.groups(("a", "b")) is None
    assert store.nodes() == [store.node("a")] == [store.node("b")]


def test_run_many_returns_results_in_order() -> None:
    store = MemoryStore()
    charge = Evaluate(("a",), (WindowRule(policy(), 1),), True)
    first, second, deleted = store.run_many([charge, charge, Reset(("a", "b"))])
    assert [first.remaining, second.remaining, deleted] == [(9,), (8,), [1]]


def test_clock_is_monotonic_and_in_microseconds() -> None:
    def now() -> int:
        return time.monotonic_ns() // 1_000

    for run in (MemoryStore().run, partial(ask, MemoryStore())):
        before = now()
        clock = run(Evaluate(("a",), (WindowRule(policy(), 1),), True))[1]
        assert before <= clock <= now() < before + 60 * SECOND


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_least_recently_used_window_is_forgotten_first(clock: Clock, algorithm: str) -> None:
    store, of = MemoryStore(clock=clock, max_keys=3), policy(algorithm=algorithm)
    for name in "abc":
        hit(store, name, of)
    used(store, "a", of)  # looking is a use
    hit(store, "d", of)
    assert [used(store, name, of) for name in "abcd"] == [1, 0, 1, 1]
    assert len(store) == 3


def test_refused_window_is_kept_during_a_flood_of_other_keys(
    clock: Clock,
) -> None:
    store, one = MemoryStore(clock=clock, max_keys=10), policy(limit=1)
    hit(store, "hammer", one)
    for number in range(1_000):
        hit(store, f"other{number}", one)
        assert ask(store, Evaluate(("hammer",), (WindowRule(one, 1),), True))[0] == 0
    assert len(store) == 10


def test_windows_without_a_hit_are_not_kept(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    for number in range(10):
        used(store, f"looked at {number}", policy())
        hit(store, f"blocked {number}", policy(limit=0))
        hit(store, f"costs nothing {number}", policy(), 0)
    assert len(store) == 0


def test_least_recently_used_window_is_forgotten_when_there_are_too_many_hits(clock: Clock) -> None:
    store, of = MemoryStore(clock=clock, max_keys=100, max_hits=20), policy(limit=50)
    for name in "abcd":
        for _ in range(5):
            hit(store, name, of)
            clock.now += 1
    assert [used(store, name, of) for name in "abcd"] == [5, 5, 5, 5]
    hit(store, "d", of)
    assert [used(store, name, of) for name in "abcd"] == [0, 5, 5, 6]
    assert len(store) == 3


def test_window_is_never_forgotten_because_of_its_own_hits(clock: Clock) -> None:
    store, of = MemoryStore(clock=clock, max_keys=100, max_hits=20), policy(limit=50)
    hit(store, "other", of)
    for left in range(49, -1, -1):
        assert hit(store, "large", of) == left
        clock.now += 1
    assert len(store) == 1
    assert ask(store, Evaluate(("large",), (WindowRule(of, 1),), True))[0] == 0


def test_windows_that_one_request_charges_are_all_kept(clock: Clock) -> None:
    store, of = MemoryStore(clock=clock, max_keys=2), policy()
    hit(store, "x", of)
    ask(store, Evaluate(("a", "b", "c"), (WindowRule(of, 1),) * 3, True))
    assert [used(store, name, of) for name in "xabc"] == [0, 1, 1, 1]
    hit(store, "y", of)
    assert [used(store, name, of) for name in "abcy"] == [0, 0, 1, 1]


def test_default_number_of_hits_is_ten_per_key(clock: Clock) -> None:
    store, of = MemoryStore(clock=clock, max_keys=2), policy(limit=50)
    hit(store, "a", of)
    for _ in range(19):
        hit(store, "b", of)
        clock.now += 1
    assert len(store) == 2
    hit(store, "b", of)
    assert len(store) == 1


def test_hits_are_counted_correctly_after_refunds_resets_and_clock_steps(
    clock: Clock,
) -> None:
    store = MemoryStore(clock=clock)
    engine = Engine(partial(ask, store), clock)
    of = [policy(limit=100, algorithm=name) for name in ALGORITHMS]

    def hits() -> int:
        assert store._hits == sum(len(window) for window in store._windows.values())
        return store._hits

    for number in range(20):
        engine.check_all(*(WindowRule(one, 1 + number % 3) for one in of))
        clock.now += 4 * SECOND
    assert hits() > 40
    engine.refund(of[0], 1, START)
    engine.refund(of[1], 1, clock.now - 4 * SECOND)
    clock.now -= 30 * SECOND
    engine.check_all(*(WindowRule(one, 1) for one in of))
    hits()
    engine.reset(*of[:2])
    hits()
    clock.now += 1_000 * SECOND
    engine.check_all(*(WindowRule(one, 1) for one in of))
    assert hits() == 4
    for one in of:
        engine.refund(one, 1, clock.now)
    assert hits() == len(store) == 0
    engine.check_all(*(WindowRule(one, 1) for one in of))
    store.clear()
    assert hits() == len(store) == 0
    assert [engine.used(one) for one in of] == [0, 0, 0, 0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_expired_windows_are_swept_a_few_with_each_charge(clock: Clock, algorithm: str) -> None:
    store, of = MemoryStore(clock=clock), policy(algorithm=algorithm)
    hour = policy(window=3_600, algorithm=algorithm)
    for number in range(100):
        hit(store, f"hour {number}", hour)  # used long ago, and still needed
        hit(store, f"minute {number}", of)
    clock.now += 125 * SECOND
    assert len(store) == 200
    hit(store, "new 0", of)
    assert 195 <= len(store) <= 201
    for number in range(100):
        hit(store, f"new {number}", of)
    assert len(store) == 200
    assert all(used(store, f"hour {number}", hour) == 1 for number in range(100))


def test_queue_of_windows_to_sweep_does_not_grow(clock: Clock) -> None:
    store, of = MemoryStore(clock=clock, max_keys=10), policy()
    engine = Engine(partial(ask, store), clock)
    for number in range(1_000):
        hit(store, str(number), of)
        engine.check(of)
        engine.reset(of)
    assert len(store._turns) < 30


def test_queue_does_not_grow_if_a_check_has_many_windows(clock: Clock) -> None:
    store, rules = MemoryStore(clock=clock, max_keys=10), (WindowRule(policy(), 1),) * 12
    for number in range(100):
        store.run(Evaluate(tuple(f"{number} {i}" for i in range(12)), rules, True))
    assert len(store._turns) < 50


def test_large_cost_takes_no_more_memory_than_a_small_one(clock: Clock) -> None:
    store, of = MemoryStore(clock=clock), policy(limit=10**8)
    tracemalloc.start()
    assert hit(store, "a", of, 10**8 - 5) == 5
    assert tracemalloc.get_traced_memory()[1] < 20_000
    tracemalloc.stop()
    assert len(store._windows["a"]) == 1


def test_memory_of_a_window_stays_within_twice_its_live_hits(clock: Clock) -> None:
    store, of = MemoryStore(clock=clock), policy(limit=1_000)
    for _ in range(5_000):
        hit(store, "a", of)
        clock.now += SECOND
    assert used(store, "a", of) == 59
    assert len(store._windows["a"]) <= 120


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_eight_threads_on_a_limit_of_100_admit_exactly_100(algorithm: str) -> None:
    store, hundred = MemoryStore(), policy(limit=100, window=3_600, algorithm=algorithm)
    other = policy(limit=10_000, window=3_600, algorithm=algorithm)
    call = Evaluate(("a", "b"), (WindowRule(hundred, 1), WindowRule(other, 1)), True)
    admitted: list[int] = []
    start = threading.Barrier(8)

    def hammer() -> None:
        start.wait()
        admitted.extend(ask(store, call)[0] for _ in range(200))

    threads = [threading.Thread(target=hammer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 1_600
    assert sum(admitted) == 100
    assert used(store, "b", other) == 100
