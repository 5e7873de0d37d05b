"""Short calls of a store, and its replies as named tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_slidingwindow.core.keys import make_key
from django_slidingwindow.decisions import Charge
from django_slidingwindow.policies import Policy
from django_slidingwindow.stores.protocol import Evaluate, Refund, Reset, WindowRule, WindowRules

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_slidingwindow.stores.protocol import Call, Store
    from tests.support.clock import Clock


def ask(store: Store, call: Call) -> list[int]:
    """Run a call as a limiter does: by `charge` if it charges windows, else by `run`."""
    if isinstance(call, Evaluate) and call.writes:
        return list(store.charge(call.keys, WindowRules(call.rules)))
    return list(store.run(call))


class WindowAnswer(NamedTuple):
    """The part of a reply that describes one window."""

    admits: bool
    remaining: int
    retry: int
    reset: int


class Answer(NamedTuple):
    """A whole reply."""

    admitted: bool
    clock: int
    windows: list[WindowAnswer]


def key_of(policy: Policy, name: str = "acme") -> str:
    return make_key("throttle", "tenant", name, "contract", policy)


class Engine:
    """Short methods for calls of a store, which `run` sends."""

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
        windows = [
            WindowAnswer(bool(a), b, c, d) for a, b, c, d in zip(*[iter(rest)] * 4, strict=True)
        ]
        assert len(windows) == len(lines)
        if writes and admitted:
            # For slots, this int also carries the token that frees them (`slots.Taken`). A refund
            # needs that object, and tests name it by the plain time.
            self._taken[clock] = clock
        return Answer(bool(admitted), clock, windows)

    def check(
        self, policy: Policy, cost: int = 1, *, count_rejected: bool = False, writes: bool = True
    ) -> WindowAnswer:
        line = WindowRule(policy, cost, count_rejected=count_rejected)
        answer = self.check_all(line, writes=writes)
        assert answer.clock == self.clock.now
        assert answer.admitted == answer.windows[0].admits
        return answer.windows[0]

    def peek(self, policy: Policy, cost: int = 1) -> WindowAnswer:
        return self.check(policy, cost, writes=False)

    def used(self, policy: Policy) -> int:
        """Return how many hits count now."""
        return policy.limit - self.peek(policy, 0).remaining

    def fill(self, policy: Policy) -> None:
        assert self.check(policy, policy.limit).admits

    def refund(self, policy: Policy, cost: int, stamp: int) -> int:
        charged_at = self._taken.get(stamp, stamp)
        [taken] = self.run(Refund((Charge(key_of(policy), policy, cost),), charged_at))
        return taken

    def reset(self, *policies: Policy) -> int:
        [gone] = self.run(Reset(tuple(key_of(policy) for policy in policies)))
        return gone
