"""A store, a clock that stands still until it is moved, and short words to ask with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_slidingwindow.core.keys import make_key
from django_slidingwindow.decisions import Charge
from django_slidingwindow.policies import Policy
from django_slidingwindow.stores.protocol import Evaluate, Refund, Reset, WindowRule, WindowRules

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_slidingwindow.stores.protocol import Call, Store

SECOND = 1_000_000
DAY = 86_400 * SECOND
# In November 2025, when a window of 400 days of the clock begins, and so most others do.
START = 51 * 400 * DAY


class Clock:
    """A clock in microseconds that moves only by `advance`."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def ask(store: Store, call: Call) -> list[int]:
    """Asks as a limiter does: where windows are charged, by the way that is made for that."""
    if isinstance(call, Evaluate) and call.writes:
        return list(store.charge(call.keys, WindowRules(call.rules)))
    return list(store.run(call))


class Said(NamedTuple):
    """What a store said of one window."""

    admits: bool
    remaining: int
    retry: int
    reset: int


class Answer(NamedTuple):
    admitted: bool
    clock: int
    said: list[Said]


def key_of(policy: Policy, name: str = "acme") -> str:
    return make_key("throttle", "tenant", name, "contract", policy)


class Engine:
    """Asks a store, by `run` or by its asynchronous twin."""

    def __init__(self, run: Callable[[Call], list[int]], clock: Clock) -> None:
        self.run = run
        self.clock = clock
        self._taken: dict[int, int] = {}

    def check_all(
        self, *lines: WindowRule, names: tuple[str, ...] | None = None, writes: bool = True
    ) -> Answer:
        names = names or ("acme",) * len(lines)
        keys = tuple(key_of(line.policy, name) for line, name in zip(lines, names, strict=True))
        admitted, clock, *rest = self.run(Evaluate(keys, lines, writes))
        said = [Said(bool(a), b, c, d) for a, b, c, d in zip(*[iter(rest)] * 4, strict=True)]
        assert len(said) == len(lines)
        if writes and admitted:
            # After slots, the clock has the token that frees them.
            self._taken[clock] = clock
        return Answer(bool(admitted), clock, said)

    def check(
        self, policy: Policy, cost: int = 1, *, count_rejected: bool = False, writes: bool = True
    ) -> Said:
        line = WindowRule(policy, cost, count_rejected=count_rejected)
        answer = self.check_all(line, writes=writes)
        assert answer.clock == self.clock.now
        assert answer.admitted == answer.said[0].admits
        return answer.said[0]

    def peek(self, policy: Policy, cost: int = 1) -> Said:
        return self.check(policy, cost, writes=False)

    def used(self, policy: Policy) -> int:
        """How many hits count now."""
        return policy.limit - self.peek(policy, 0).remaining

    def fill(self, policy: Policy) -> None:
        assert self.check(policy, policy.limit).admits

    def refund(self, policy: Policy, cost: int, stamp: int) -> int:
        came = self._taken.get(stamp, stamp)
        [taken] = self.run(Refund((Charge(key_of(policy), policy, cost),), came))
        return taken

    def reset(self, *policies: Policy) -> int:
        [gone] = self.run(Reset(tuple(key_of(policy) for policy in policies)))
        return gone
