"""The stores, compared with the oracle in random sequences of calls."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from django_slidingwindow.decisions import Charge
from django_slidingwindow.policies import ALGORITHMS, Policy
from django_slidingwindow.stores.memory import MemoryStore
from django_slidingwindow.stores.protocol import Evaluate, Refund, Reset, WindowRule
from django_slidingwindow.stores.redis import RedisStore
from tests.support.clock import DAY, START, Clock
from tests.support.oracle import Oracle
from tests.support.state_machines import QUICK, Unswept
from tests.support.store_harness import ask

if TYPE_CHECKING:
    from django_slidingwindow.stores.protocol import Call

# Windows with a tick of a microsecond and with coarser ticks. Some are not divisible into
# sub-windows or ticks.
WINDOWS = (60, 61.000_001, 3_000.000_001, 86_400, 400 * 86_400)
NAMES = itertools.count()


class StoresAgreeWithTheOracle(RuleBasedStateMachine):
    """Calls with one or more of several keys and algorithms."""

    algorithms: ClassVar[tuple[str, ...]]
    long: ClassVar[bool] = False
    """Whether logs have hundreds of hits and are never reset."""

    @initialize(
        window=st.sampled_from(WINDOWS),
        resolutions=st.lists(st.sampled_from([1, 7, 60, 1_000]), min_size=2, max_size=2),
        many=st.booleans(),
        start=st.integers(0, 400 * DAY),
    )
    def begin(self, window: float, resolutions: list[int], many: bool, start: int) -> None:
        self.clock = Clock(START + start)
        self.redis = RedisStore("default", clock=self.clock)
        self.stores = {
            "redis": (self.redis, Oracle(self.clock, exact=False)),
            "memory": (Unswept(clock=self.clock), Oracle(self.clock, exact=True)),
        }
        self.many = many or self.long
        self.window = round(window * 1_000_000)
        name = next(NAMES)
        self.policies = {
            f"machine:{{{name}}}:{algorithm}{number}": Policy(
                limit=0, window=window, algorithm=algorithm, resolution=resolution
            )
            for algorithm in self.algorithms
            for number, resolution in enumerate(resolutions)
        }
        self.keys = list(self.policies)
        self.receipts: list[tuple[int, str, Policy, int]] = []
        self.retry = 1

    def both(self, call: Call) -> list[int]:
        answers = {}
        for name, (store, oracle) in self.stores.items():
            answers[name] = ask(store, call), oracle.run(call)
        for name, (answer, expected) in answers.items():
            assert answer == expected, name
        return answers["redis"][0]

    @rule(data=st.data(), writes=st.sampled_from([True, True, True, False]))
    def check(self, data: st.DataObject, writes: bool) -> None:
        costs = st.integers(0, 130) if self.many else st.integers(0, 12)
        cost = data.draw(st.one_of(st.just(1), costs), label="cost")
        limits = [0, 5, 64, 100, 150, 400] if self.many else [0, 1, 5, 10, 10, 11, 25]
        if self.long:
            limits = limits[3:]
        keys = data.draw(st.lists(st.sampled_from(self.keys), min_size=1, max_size=4), label="keys")
        lines = []
        for key in keys:
            changed = data.draw(st.sampled_from([0, 0, 0, 7, 60]), label="a changed resolution")
            policy = replace(
                self.policies[key],
                limit=data.draw(st.sampled_from(limits), label="limit"),
                resolution=changed or self.policies[key].resolution,
            )
            observed, rejected = data.draw(
                st.sampled_from([(False, False), (False, True), (True, False), (True, True)]),
                label="observed, count_rejected",
            )
            asks = data.draw(st.sampled_from([cost, cost, cost, 0]), label="cost of this rule")
            lines.append(WindowRule(policy, asks, observed, rejected))
        now = self.clock.now
        before = self.later_counts(keys, lines)
        admitted, clock, *windows = self.both(Evaluate(tuple(keys), tuple(lines), writes))
        assert clock == now
        after = self.later_counts(keys, lines)
        assert all(new >= old for old, new in zip(before, after, strict=True))
        for at, (key, line) in enumerate(zip(keys, lines, strict=True)):
            admits, remaining, retry, _ = windows[4 * at : 4 * at + 4]
            assert 0 <= remaining <= line.policy.limit
            if retry > 0:
                self.retry = retry
            assert (retry == 0) == bool(admits)
            if writes and admitted:
                self.receipts.append((now, key, line.policy, line.cost))

    def later_counts(self, keys: list[str], lines: list[WindowRule]) -> list[int]:
        """Return how many hits count in each window, now and later. No request may lower them."""
        oracle, now = self.stores["redis"][1], self.clock.now
        counts = []
        for key in dict.fromkeys(keys):
            policies = [line.policy for k, line in zip(keys, lines, strict=True) if k == key]
            hits = oracle.windows.get(key, [])
            # If the clock has stepped back, any request moves future hits to now.
            for policy in policies:
                hits = [min(stamp, oracle.stamp(policy, now)) for stamp in hits]
            times = [now + part * self.window // 7 for part in (0, 2, 5, 9)]
            counts += [oracle.count(policies[0], hits, time) for time in times]
        return counts

    @rule(hits=st.integers(1, 130), cost=st.integers(1, 3), gap=st.sampled_from([90, 400, 5_000]))
    def fill(self, hits: int, cost: int, gap: int) -> None:
        """Give the first key many hits in sequence, so that its log gets long."""
        key = self.keys[0]
        line = WindowRule(replace(self.policies[key], limit=400), cost)
        for _ in range(hits if self.long else hits // 2 if self.many else 3):
            self.both(Evaluate((key,), (line,), True))
            self.clock.now += self.window // gap

    @rule(times=st.integers(0, 5), part=st.sampled_from([1, 2, 3, 7, 60, 1000]))
    def wait(self, times: int, part: int) -> None:
        self.clock.now += times * self.window // (9 * part if self.long else part)

    @rule(early=st.sampled_from([0, 1, -1]))
    def wait_for_retry(self, early: int) -> None:
        self.clock.now += max(0, self.retry - early)

    @rule(step=st.one_of(st.integers(0, 3), st.integers(0, 20_000)))
    def wait_a_moment(self, step: int) -> None:
        self.clock.now += step

    @rule(part=st.sampled_from([1, 2, 3, 7, 60, 1000]), more=st.integers(0, 3))
    def step_back(self, part: int, more: int) -> None:
        self.clock.now -= self.window // part + more

    @rule(step=st.sampled_from([1, 3, 20_000]))
    def step_back_a_moment(self, step: int) -> None:
        self.clock.now -= step

    @precondition(lambda self: not self.long)
    @rule(step=st.sampled_from([2**31, 2**32, 50 * DAY, 3_650 * DAY]), back=st.booleans())
    def leap(self, step: int, back: bool) -> None:
        self.clock.now += -step if back and self.clock.now > START // 2 else step

    @precondition(lambda self: self.receipts)
    @rule(data=st.data(), part=st.sampled_from([0, 0, 1, 2]))
    def refund(self, data: st.DataObject, part: int) -> None:
        receipts = st.integers(1, min(8, len(self.receipts)))
        stamp, key, policy, cost = self.receipts[-data.draw(receipts, label="from the end")]
        oracle = self.stores["redis"][1]
        hits = list(oracle.windows.get(key, []))
        call = Refund((Charge(key, policy, max(0, cost - part)),), stamp)
        # After a refund, the key expires with its newest remaining hit, by the server's clock.
        # That clock does not stand still, so skip refunds after which it would expire soon.
        oracle.run(call)
        left = oracle.windows.get(key)
        soon = left and 0 < max(left) + oracle.life(policy) - self.clock.now < 5_000_000
        if hits:
            oracle.windows[key] = hits
        if not soon:
            self.both(call)

    @precondition(lambda self: not self.long)
    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        keys = data.draw(st.sets(st.sampled_from(self.keys), min_size=1), label="keys")
        for store, oracle in self.stores.values():
            [deleted] = store.run(Reset(tuple(keys)))
            # Keys that have expired may still be stored or not.
            assert 0 <= deleted <= oracle.run(Reset(tuple(keys)))[0]

    def teardown(self) -> None:
        if hasattr(self, "redis"):
            self.redis.run(Reset(tuple(self.keys)))
            self.redis.close()


def machine(*algorithms: str, long: bool = False) -> type[object]:
    name = f"{'And'.join(algorithms).title()}Machine"
    made = type(name, (StoresAgreeWithTheOracle,), {"algorithms": algorithms, "long": long})
    made.TestCase.settings = settings(QUICK, max_examples=10) if long else QUICK
    return made.TestCase


TestCompact = machine("compact")
TestLongCompact = machine("compact", long=True)
TestLog = machine("log")
TestBuckets = machine("buckets")
TestLongBuckets = machine("buckets", long=True)
TestCounter = machine("counter")
TestAllAtOnce = machine(*ALGORITHMS)


# Admissions in a window


@pytest.mark.parametrize("kind", ["memory", "redis"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(QUICK, max_examples=25)
@given(
    window=st.sampled_from(WINDOWS),
    resolution=st.sampled_from([1, 7, 60]),
    limit=st.integers(1, 12),
    start=st.integers(0, 400 * DAY),
    requests=st.lists(
        st.tuples(st.sampled_from(["none", "moment", "part", "retry", "early"]), st.integers(1, 9)),
        min_size=20,
        max_size=60,
    ),
)
def test_no_interval_admits_more_than_the_algorithm_promises(
    algorithm: str,
    kind: str,
    window: float,
    resolution: int,
    limit: int,
    start: int,
    requests: list[tuple[str, int]],
) -> None:
    policy = Policy(limit=limit, window=window, algorithm=algorithm, resolution=resolution)
    clock = Clock(START + start)
    store = RedisStore("default", clock=clock) if kind == "redis" else MemoryStore(clock=clock)
    keys = (f"promise:{{{next(NAMES)}}}",)
    admitted: list[int] = []
    retry = 0
    for wait, number in requests:
        clock.now += {
            "none": 0,
            "moment": number,
            "part": policy.window_us * number // 20,
            "retry": retry,
            "early": max(0, retry - number),
        }[wait]
        cost = 1 if number < 6 else number - 4
        reply = store.run(Evaluate(keys, (WindowRule(policy, cost),), True))
        admitted += [clock.now] * (cost * reply[0])
        retry = max(0, reply[4])
    most = max(
        (sum(first <= came < first + policy.window_us for came in admitted) for first in admitted),
        default=0,
    )
    assert most <= (2 * limit - 1 if algorithm == "counter" else limit)
    store.run(Reset(keys))
    if isinstance(store, RedisStore):
        store.close()


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_adversary_gets_twice_the_limit_minus_one_from_the_counter(limit: int) -> None:
    policy = Policy(limit=limit, window=60, algorithm="counter")
    clock = Clock(START - 1)
    store = MemoryStore(clock=clock)
    admitted = store.run(Evaluate(("a",), (WindowRule(policy, limit),), True))[0] * limit
    for _ in range(limit - 1):
        call = Evaluate(("a",), (WindowRule(policy, 1),), True)
        clock.now += store.run(Evaluate(call.keys, call.rules, False))[4]
        admitted += store.run(call)[0]
    assert clock.now < START - 1 + policy.window_us
    assert admitted == 2 * limit - 1
