"""What the stores have to answer, by brute force: every hit is one number in a plain list.

Written from the definitions alone. A hit is kept as its stamp, in microseconds:

    compact, log   when it came; on Redis, compact knows that to a tick
    buckets        when the sub-window in which it came ends
    counter        when the window of the clock in which it came begins

A hit is counted until its stamp and the window have passed (for `counter`: two windows,
and in the second of them only by the part that the sliding window still covers).
"""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING

from django_slidingwindow import algorithms
from django_slidingwindow.stores.base import Evaluate, Refund

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_slidingwindow.policies import Policy
    from django_slidingwindow.stores.base import Call, Line


class Oracle:
    """Answers as a store does. With `exact`, compact counts microseconds, not ticks."""

    def __init__(self, clock: Callable[[], int], *, exact: bool) -> None:
        self.clock = clock
        self.exact = exact
        self.windows: dict[str, list[int]] = {}

    def run(self, call: Call) -> list[int]:
        if isinstance(call, Evaluate):
            return self.evaluate(call)
        if isinstance(call, Refund):
            return [self.refund(c.key, c.policy, call.stamp, c.cost) for c in call.charges]
        return [sum(self.windows.pop(key, None) is not None for key in call.keys)]

    def evaluate(self, call: Evaluate) -> list[int]:
        now = self.clock()
        found = [
            self.look(key, line.policy, writes=call.writes)
            for key, line in zip(call.keys, call.lines, strict=True)
        ]
        admits = [
            line.cost == 0 or self.count(line.policy, hits, now) + line.cost <= line.policy.limit
            for line, hits in zip(call.lines, found, strict=True)
        ]
        admitted = all(
            admit or line.observed for admit, line in zip(admits, call.lines, strict=True)
        )
        reply = [int(admitted), now]
        charged: dict[str, list[int]] = {}
        for key, line, hits, admit in zip(call.keys, call.lines, found, admits, strict=True):
            after = self.after(line, hits, now, admit=admit, admitted=admitted)
            reply += [int(admit), self.remaining(line, after, now)]
            reply += [0 if admit else self.retry(line, after, now), self.reset(line, after, now)]
            if after is not hits and key not in charged:
                # Policies with an equal key share their hits: charged once, and with what all
                # of them have set back.
                stored = self.windows.get(key, [])
                charged[key] = self.after(line, stored, now, admit=admit, admitted=admitted)
        if call.writes:
            self.windows |= charged
        return reply

    def look(self, key: str, policy: Policy, *, writes: bool) -> list[int]:
        """The hits; if the clock has stepped back, those that lie ahead are set to it."""
        now = self.stamp(policy, self.clock())
        hits = [min(stamp, now) for stamp in self.windows.get(key, [])]
        if writes and hits:
            self.windows[key] = hits
        return hits

    def stamp(self, policy: Policy, time: int) -> int:
        if policy.algorithm == "compact" and not self.exact:
            tick = algorithms.tick_us(policy)
            return time // tick * tick
        if policy.algorithm == "buckets":
            length = ceil(policy.window_us / policy.resolution)
            return time // length * length + length
        if policy.algorithm == "counter":
            return time // policy.window_us * policy.window_us
        return time

    def life(self, policy: Policy) -> int:
        """How long after its stamp a hit is counted."""
        if policy.algorithm == "compact" and not self.exact:
            return algorithms.span_ticks(policy) * algorithms.tick_us(policy)
        if policy.algorithm == "counter":
            return 2 * policy.window_us
        return policy.window_us

    def counted(self, policy: Policy, hits: list[int], time: int) -> list[int]:
        life = self.life(policy)
        return [stamp for stamp in hits if stamp + life > time]

    def count(self, policy: Policy, hits: list[int], time: int) -> int:
        hits = self.counted(policy, hits, time)
        if policy.algorithm != "counter":
            return len(hits)
        window = policy.window_us
        this = hits.count(time // window * window)
        before = len(hits) - this
        return this + before - floor(float(before) * (time % window) / window)

    def after(
        self, line: Line, hits: list[int], now: int, *, admit: bool, admitted: bool
    ) -> list[int]:
        """The hits as they are when the request has been answered."""
        limit = line.policy.limit
        added = 0
        if admit and admitted:
            added = line.cost
        elif not admit and line.count_rejected:
            added = min(line.cost, limit)
        if added == 0:
            return hits
        after = self.counted(line.policy, hits, now) + [self.stamp(line.policy, now)] * added
        if not admit:
            while self.count(line.policy, after, now) > limit:
                after.pop(0)
        return after

    def remaining(self, line: Line, hits: list[int], now: int) -> int:
        return max(0, line.policy.limit - self.count(line.policy, hits, now))

    def reset(self, line: Line, hits: list[int], now: int) -> int:
        hits = self.counted(line.policy, hits, now)
        return min(hits) + self.life(line.policy) - now if hits else 0

    def retry(self, line: Line, hits: list[int], now: int) -> int:
        """How long until the same request passes, by halves: what passes once passes later."""
        if line.cost > line.policy.limit:
            return -1
        refused, passes = now, now + 4 * line.policy.window_us
        while passes - refused > 1:
            middle = (refused + passes) // 2
            if self.count(line.policy, hits, middle) + line.cost > line.policy.limit:
                refused = middle
            else:
                passes = middle
        return passes - now

    def refund(self, key: str, policy: Policy, charged: int, cost: int) -> int:
        now = self.clock()
        hits = self.counted(policy, self.look(key, policy, writes=True), now)
        stamp = self.stamp(policy, min(charged, now))
        taken = min(cost, hits.count(stamp))
        for _ in range(taken):
            hits.remove(stamp)
        if taken:
            self.windows[key] = hits
        if not hits and taken:
            del self.windows[key]
        return taken
