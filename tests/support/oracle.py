"""What the stores have to answer, by brute force: every hit is one number in a plain list.

Written from the definitions alone. A hit is kept as its stamp, in microseconds:

    compact, log   when it came; on Redis, compact takes the last microsecond of its tick
    buckets        when the sub-window in which it came ends
    counter        when the window of the clock in which it came begins

A hit is counted until its stamp and the window have passed (for `counter`: two windows,
and in the second of them only by the part that the sliding window still covers).

A refusal that is counted adds hits up to the limit. Beyond that its hits take the place of the
oldest ones, so that the count stays; `counter` adds none then to this window of the clock.
A refund takes nothing from a window that began after the hits came: they were in another.

If units are taken ahead, a hit is counted for as much longer as a lease lasts. Units that come back
are taken from the window first. Then, if the request is admitted, as many as are wanted are added
to its own, but at most that part of what is left.
"""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING

from django_slidingwindow.algorithms import timing as algorithms
from django_slidingwindow.stores.protocol import Evaluate, Refund

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_slidingwindow.policies import Policy
    from django_slidingwindow.stores.protocol import Ahead, Call, WindowRule


class Oracle:
    """Answers as a store does. With `exact`, compact counts microseconds, not ticks."""

    def __init__(self, clock: Callable[[], int], *, exact: bool) -> None:
        self.clock = clock
        self.exact = exact
        self.windows: dict[str, list[int]] = {}
        self.created: dict[str, int] = {}
        self.granted: list[int] = []
        """The units that each window of the last request gave ahead."""

    def run(self, call: Call) -> list[int]:
        if isinstance(call, Evaluate):
            return self.evaluate(call)
        if isinstance(call, Refund):
            return [self.refund(c.key, c.policy, call.stamp, c.cost) for c in call.charges]
        return [sum(self.windows.pop(key, None) is not None for key in call.keys)]

    def evaluate(self, call: Evaluate) -> list[int]:
        now = self.clock()
        for key, line, ahead in zip(call.keys, call.rules, call.ahead, strict=False):
            if ahead.returned:
                self.refund(key, line.policy, ahead.stamp, ahead.returned)
        found = [
            self.look(key, line.policy, writes=call.writes)
            for key, line in zip(call.keys, call.rules, strict=True)
        ]
        admits = [
            line.cost == 0 or self.count(line.policy, hits, now) + line.cost <= line.policy.limit
            for line, hits in zip(call.rules, found, strict=True)
        ]
        admitted = all(
            admit or line.observed for admit, line in zip(admits, call.rules, strict=True)
        )
        reply = [int(admitted), now]
        stored = {
            key: self.stored(call, key, admits, admitted=admitted)
            for key in dict.fromkeys(call.keys)
        }
        for key, line, hits, admit in zip(call.keys, call.rules, found, admits, strict=True):
            # A call without a cost gets the window as it was.
            after = self.after(line.policy, hits, now, *stored[key]) if line.cost else hits
            reply += [int(admit), self.remaining(line, after, now)]
            reply += [0 if admit else self.retry(line, after, now), self.reset(line, after, now)]
        if call.writes:
            for key, (added, cap) in stored.items():
                if added:
                    # Charged once, by the first policy, and with what all of them have set back.
                    policy = call.rules[call.keys.index(key)].policy
                    hits = self.counted(policy, self.windows.get(key, []), now)
                    self.windows[key] = after = self.after(policy, hits, now, added, cap)
                    if len(hits) - self.replaced(policy, hits, added, cap) == 0 and after:
                        self.created[key] = now
        self.granted = [
            self.grant(key, line, ahead, now) if admitted and admit else 0
            for key, line, ahead, admit in zip(
                call.keys, call.rules, call.ahead, admits, strict=False
            )
        ]
        return reply

    def grant(self, key: str, line: WindowRule, ahead: Ahead, now: int) -> int:
        """Take units ahead, from a window that no other one of the request shares."""
        room = self.remaining(line, self.windows.get(key, []), now)
        units = min(ahead.most, room // ahead.share) if line.cost else 0
        if units:
            self.windows[key] += [self.stamp(line.policy, now)] * units
        return units

    def stored(
        self, call: Evaluate, key: str, admits: list[bool], *, admitted: bool
    ) -> tuple[int, int | None]:
        """The hits that a request adds to a key, and up to which count if it is refused."""
        lines = [
            (line, admit)
            for k, line, admit in zip(call.keys, call.rules, admits, strict=True)
            if k == key and line.cost
        ]
        if admitted and any(admit for _, admit in lines):
            return max(line.cost for line, admit in lines if admit), None
        refusals = [line for line, admit in lines if not admit and line.count_rejected]
        return (
            max((min(line.cost, line.policy.limit) for line in refusals), default=0),
            max((line.policy.limit for line in refusals), default=0),
        )

    def look(self, key: str, policy: Policy, *, writes: bool) -> list[int]:
        """The hits; if the clock has stepped back, those that lie ahead are set to it."""
        now = self.stamp(policy, self.clock())
        hits = [min(stamp, now) for stamp in self.windows.get(key, [])]
        if writes and hits:
            self.windows[key] = hits
            self.created[key] = min(self.created[key], self.clock())
        return hits

    def stamp(self, policy: Policy, time: int) -> int:
        if policy.algorithm == "compact" and not self.exact:
            tick = algorithms.tick_us(policy)
            return time // tick * tick + tick - 1
        if policy.algorithm == "buckets":
            length = ceil(policy.window_us / policy.resolution)
            return time // length * length + length
        if policy.algorithm == "counter":
            return time // policy.window_us * policy.window_us
        return time

    def life(self, policy: Policy) -> int:
        """How long after its stamp a hit is counted."""
        if policy.algorithm == "counter":
            return 2 * policy.window_us
        return policy.counted_us

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
        self, policy: Policy, hits: list[int], now: int, added: int, cap: int | None
    ) -> list[int]:
        """The hits as they are when the request has been answered."""
        if not added:
            return hits
        hits = self.counted(policy, hits, now)
        stamp = self.stamp(policy, now)
        if policy.algorithm == "counter" and cap is not None:
            added = min(added, max(0, cap - hits.count(stamp)))
        return hits[self.replaced(policy, hits, added, cap) :] + [stamp] * added

    def replaced(self, policy: Policy, hits: list[int], added: int, cap: int | None) -> int:
        """How many of the oldest hits those of a refusal take the place of."""
        if policy.algorithm == "counter" or cap is None:
            return 0
        return len(hits) + added - max(len(hits), min(len(hits) + added, cap))

    def remaining(self, line: WindowRule, hits: list[int], now: int) -> int:
        return max(0, line.policy.limit - self.count(line.policy, hits, now))

    def reset(self, line: WindowRule, hits: list[int], now: int) -> int:
        hits = self.counted(line.policy, hits, now)
        if not hits:
            return 0
        leaves = min(hits) + self.life(line.policy) - now
        return min(leaves, line.policy.counted_us) if line.policy.algorithm == "compact" else leaves

    def retry(self, line: WindowRule, hits: list[int], now: int) -> int:
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
        if policy.algorithm in ("buckets", "counter") and min(charged, now) < self.created.get(
            key, 0
        ):
            taken = 0
        for _ in range(taken):
            hits.remove(stamp)
        if taken:
            self.windows[key] = hits
        if not hits and taken:
            del self.windows[key]
        return taken
