"""The expected replies of a store, by brute force: every hit is one number in a plain list.

Written from the definitions of the algorithms, not from their code. A hit is stored as its stamp,
in microseconds:

    compact, log   the time of the hit; on Redis, compact uses the last microsecond of its tick
    buckets        the end of the sub-window of the hit
    counter        the begin of the clock window of the hit

A hit counts until one window after its stamp. For `counter` it counts until two windows after its
stamp, and in the second one only by the share that the sliding window still covers.

A counted refusal adds hits up to the limit. Further hits of refusals replace the oldest hits, so
the count stays the same. With `counter`, they add nothing to the current clock window.

A refund takes nothing from a window that was created after the hits, because those hits were in an
earlier window.

With leases, a hit counts longer by the duration of a lease. Returned units are removed from the
window first. Then, if the request is admitted, the units that it takes ahead are added, up to the
given share of the remaining room.
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
    """Returns the replies that a store must return. With `exact`, compact stores no ticks."""

    def __init__(self, clock: Callable[[], int], *, exact: bool) -> None:
        self.clock = clock
        self.exact = exact
        self.windows: dict[str, list[int]] = {}
        self.created: dict[str, int] = {}
        self.granted: list[int] = []
        """The units that the last request took ahead from each window."""

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
            # A call without a cost gets the window as it was before the call.
            after = self.after(line.policy, hits, now, *stored[key]) if line.cost else hits
            reply += [int(admit), self.remaining(line, after, now)]
            reply += [0 if admit else self.retry(line, after, now), self.reset(line, after, now)]
        if call.writes:
            for key, (added, cap) in stored.items():
                if added:
                    # A key is charged once, by its first policy, after `look` for all policies.
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
        """Take units ahead. No other window of the request may have the same key."""
        room = self.remaining(line, self.windows.get(key, []), now)
        units = min(ahead.most, room // ahead.share) if line.cost else 0
        if units:
            self.windows[key] += [self.stamp(line.policy, now)] * units
        return units

    def stored(
        self, call: Evaluate, key: str, admits: list[bool], *, admitted: bool
    ) -> tuple[int, int | None]:
        """Return the hits that a request adds to a key, and their cap if it is refused."""
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
        """Return the hits. If the clock has stepped back, hits in the future move to now."""
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
        """Return how long after its stamp a hit counts."""
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
        """Return the hits after the request."""
        if not added:
            return hits
        hits = self.counted(policy, hits, now)
        stamp = self.stamp(policy, now)
        if policy.algorithm == "counter" and cap is not None:
            added = min(added, max(0, cap - hits.count(stamp)))
        return hits[self.replaced(policy, hits, added, cap) :] + [stamp] * added

    def replaced(self, policy: Policy, hits: list[int], added: int, cap: int | None) -> int:
        """Return how many of the oldest hits the hits of a refusal replace."""
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
        """Return the time until the same request passes, or -1 if it never does.

        A request that passes at one time passes at all later times, so this is a binary search.
        """
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
