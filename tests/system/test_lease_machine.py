"""Units taken ahead and given back, compared with the oracle in random sequences of calls."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from django_slidingwindow.policies import Policy
from django_slidingwindow.stores.protocol import Ahead, Evaluate, Reset, WindowRule
from django_slidingwindow.stores.redis import RedisStore
from tests.support.clock import DAY, START, Clock
from tests.support.oracle import Oracle
from tests.support.state_machines import QUICK

if TYPE_CHECKING:
    from django_slidingwindow.stores.protocol import Reply

NAMES = itertools.count()
# The first has a tick of a microsecond; the ticks of the others are coarser.
WINDOWS = (60, 86_400, 400 * 86_400)


class GrantsAgreeWithTheOracle(RuleBasedStateMachine):
    """Several holders take units of two keys ahead, and give them back."""

    algorithm: ClassVar[str]

    @initialize(
        window=st.sampled_from(WINDOWS),
        part=st.sampled_from([0, 0.01, 0.1, 0.5]),
        start=st.integers(0, 400 * DAY),
    )
    def begin(self, window: float, part: float, start: int) -> None:
        self.clock = Clock(START + start)
        self.redis = RedisStore("default", clock=self.clock)
        self.oracle = Oracle(self.clock, exact=False)
        self.policy = Policy(
            limit=0,
            window=window,
            algorithm=self.algorithm,
            resolution=7,
            lease=100,
            lease_seconds=window * part,
        )
        name = next(NAMES)
        self.keys = [f"leases:{{{name}}}:{number}" for number in range(2)]
        self.held: dict[str, list[tuple[int, int]]] = {key: [] for key in self.keys}
        self.retry = 1

    @rule(
        keys=st.sampled_from([[0], [0], [1], [0, 1], [1, 0]]),
        cost=st.sampled_from([1, 1, 1, 0, 3, 40]),
        limit=st.sampled_from([0, 1, 5, 30, 70, 150, 400]),
        flags=st.sampled_from([(False, False), (False, False), (False, True), (True, False)]),
        most=st.sampled_from([0, 1, 10, 100]),
        share=st.sampled_from([1, 8, 16]),
        gives_back=st.integers(0, 3),
    )
    def check(
        self,
        keys: list[int],
        cost: int,
        limit: int,
        flags: tuple[bool, bool],
        most: int,
        share: int,
        gives_back: int,
    ) -> None:
        chosen = tuple(self.keys[number] for number in keys)
        lines = tuple(WindowRule(replace(self.policy, limit=limit), cost, *flags) for _ in chosen)
        ahead = [Ahead(most, share, *self.returned(key, gives_back)) for key in chosen]
        call = Evaluate(chosen, lines, True, None, tuple(ahead))
        expected = self.oracle.run(call)
        reply: Reply = self.redis.run(call)
        assert list(reply) == expected
        assert list(reply.granted) == self.oracle.granted
        for key, units in zip(chosen, reply.granted, strict=True):
            if units:
                self.held[key].append((units, self.clock.now))
        self.retry = max([1, *reply.retries])
        # Units taken ahead count: a peek finds as many as the oracle has.
        look = Evaluate(chosen, lines, False)
        assert list(self.redis.run(look)) == self.oracle.run(look)

    def returned(self, key: str, number: int) -> tuple[int, int]:
        """Return how many units a holder gives back, and when it took them."""
        if not number or len(self.held[key]) < number:
            return 0, 0
        units, stamp = self.held[key].pop(-number)
        # Do not leave hits that are about to expire: the key would expire by the server's
        # clock, which does not stand still.
        hits = [hit for hit in self.oracle.windows.get(key, []) if hit != stamp]
        soon = hits and max(hits) + self.policy.counted_us - self.clock.now < 5_000_000
        return (0, 0) if soon else (max(1, units - number + 1), stamp)

    @rule(times=st.integers(0, 5), part=st.sampled_from([1, 2, 3, 7, 60, 1000]))
    def wait(self, times: int, part: int) -> None:
        self.clock.now += times * self.policy.window_us // part

    @rule(early=st.sampled_from([0, 1, -1]))
    def wait_for_retry(self, early: int) -> None:
        self.clock.now += max(0, self.retry - early)

    @rule(step=st.integers(0, 20_000))
    def wait_a_moment(self, step: int) -> None:
        self.clock.now += step

    @rule(part=st.sampled_from([3, 60, 1_000, 1_000_000]))
    def step_back(self, part: int) -> None:
        self.clock.now -= self.policy.window_us // part

    def teardown(self) -> None:
        if hasattr(self, "redis"):
            self.redis.run(Reset(tuple(self.keys)))
            self.redis.close()


def machine(algorithm: str) -> type[object]:
    made = type(
        f"{algorithm.title()}Machine", (GrantsAgreeWithTheOracle,), {"algorithm": algorithm}
    )
    made.TestCase.settings = settings(QUICK, max_examples=10, stateful_step_count=40)
    return made.TestCase


TestCompact = machine("compact")
TestLog = machine("log")
TestBuckets = machine("buckets")
