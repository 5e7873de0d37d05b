"""Penalties in Redis and in memory, compared with the oracle in random sequences of calls."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from django_slidingwindow.algorithms.penalties import Penalty
from django_slidingwindow.policies import ALGORITHMS, Policy
from django_slidingwindow.stores.protocol import Evaluate, Reset, WindowRule
from django_slidingwindow.stores.redis import RedisStore
from tests.support.clock import DAY, SECOND, START, Clock
from tests.support.penalty_oracle import PenaltyOracle
from tests.support.state_machines import QUICK, Unswept
from tests.support.store_harness import ask

if TYPE_CHECKING:
    from django_slidingwindow.stores.protocol import Call

NAMES = itertools.count()
STEPS = ((60.0,), (60.0, 600.0), (1.5, 1.5, 86_400.0))
# For each profile, the number of its windows and whether it has a penalty.
PROFILES = {"login": (1, True), "search": (2, True), "plain": (1, False)}


class PenaltiesAgreeWithTheOracle(RuleBasedStateMachine):
    """Three profiles, two of them with a penalty, alone and together."""

    algorithm: ClassVar[str]

    @initialize(
        after=st.sampled_from([(0, 60), (1, 60), (3, 600), (5, 61.000_001)]),
        steps=st.sampled_from(STEPS),
        start=st.integers(0, 400 * DAY),
    )
    def begin(self, after: tuple[int, float], steps: tuple[float, ...], start: int) -> None:
        self.clock = Clock(START + start)
        self.redis = RedisStore("default", clock=self.clock)
        self.stores = {
            "redis": (self.redis, PenaltyOracle(self.clock, exact=False)),
            "memory": (Unswept(clock=self.clock), PenaltyOracle(self.clock, exact=True)),
        }
        self.penalty = Penalty(limit=after[0], window=after[1], steps=steps)
        self.name = next(NAMES)
        self.retries = [1]

    def key(self, profile: str, ending: str) -> str:
        return f"machine:{{{self.name}}}:{profile}:{ending}"

    @rule(
        names=st.lists(st.sampled_from([*PROFILES]), min_size=1, max_size=3, unique=True),
        cost=st.sampled_from([1, 1, 1, 0, 2, 4]),
        observed=st.sampled_from([False, False, True]),
        counts=st.sampled_from([False, False, True]),
        ages=st.lists(st.integers(0, 700 * SECOND), max_size=3),
        reports=st.sampled_from([False, False, True]),
        writes=st.sampled_from([True, True, True, False]),
        times=st.integers(1, 5),
    )
    def check(
        self,
        names: list[str],
        cost: int,
        observed: bool,
        counts: bool,
        ages: list[int],
        reports: bool,
        writes: bool,
        times: int,
    ) -> None:
        keys, rules = [], []
        for name in names:
            windows, penalized = PROFILES[name]
            for number in range(windows):
                policy = Policy(limit=3, window=60 * (1 + number), algorithm=self.algorithm)
                keys.append(self.key(name, f"w{number}"))
                rules.append(WindowRule(policy, cost, observed, counts))
            if penalized:
                unreported = tuple(ages) if reports else ()
                keys.append(self.key(name, "p"))
                rules.append(
                    WindowRule(self.penalty, cost, observed, watches=windows, unreported=unreported)
                )
        for _ in range(times):
            reply = self.both(Evaluate(tuple(keys), tuple(rules), writes))
        self.retries = [retry for retry in reply[4::4] if retry > 0] or [1]

    def both(self, call: Call) -> list[int]:
        answers = {}
        for name, (store, oracle) in self.stores.items():
            answers[name] = ask(store, call), oracle.run(call)
        for name, (answer, expected) in answers.items():
            assert answer == expected, name
        return answers["redis"][0]

    @rule(seconds=st.sampled_from([1, 7, 30, 59, 60, 300, 601, 86_400, 200_000]))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds * SECOND

    @rule(early=st.sampled_from([0, 1, -1]), which=st.integers(0, 4))
    def wait_for_retry(self, early: int, which: int) -> None:
        self.clock.now += max(0, self.retries[which % len(self.retries)] - early)

    @rule(early=st.sampled_from([0, 1]))
    def wait_until_offences_expire(self, early: int) -> None:
        self.clock.now += max(self.retries) + self.penalty.steps_us[-1] + self.penalty.window_us
        self.clock.now -= early

    @rule(step=st.sampled_from([1, SECOND, 61 * SECOND, 2 * DAY]))
    def step_back(self, step: int) -> None:
        self.clock.now -= step

    @rule(name=st.sampled_from(["login", "search"]))
    def unblock(self, name: str) -> None:
        for store, oracle in self.stores.values():
            call = Reset((self.key(name, "p"),))
            [deleted] = store.run(call)
            # Keys that have expired may still be stored or not.
            assert 0 <= deleted <= oracle.run(call)[0]

    def teardown(self) -> None:
        if hasattr(self, "redis"):
            endings = itertools.product(PROFILES, ("w0", "w1", "p"))
            self.redis.run(Reset(tuple(self.key(*ending) for ending in endings)))
            self.redis.close()


def machine(algorithm: str) -> type[object]:
    bases = (PenaltiesAgreeWithTheOracle,)
    made = type(f"{algorithm.title()}PenaltyMachine", bases, {"algorithm": algorithm})
    made.TestCase.settings = settings(QUICK, max_examples=25)
    return made.TestCase


TestCompact, TestLog, TestBuckets, TestCounter = map(machine, ALGORITHMS)
