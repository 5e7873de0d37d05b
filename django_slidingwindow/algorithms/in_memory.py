"""Windows in this process's memory, with the arithmetic of the Lua scripts.

Times are in microseconds. `look` returns a view of a window at one instant. The view has all that
a check needs, and charges the window if the check admits the request.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from math import ceil, floor
from typing import TypeAlias

from ..policies import Policy
from .slots import Slots, SlotsView
from .timing import bucket_us


class Log:
    """A list of stamps in ascending order, with the number of hits at each stamp.

    A stamp is the microsecond of a hit or, for `buckets`, the end of the hit's sub-window.
    """

    # `totals` has the number of hits up to each stamp, counted since the first hit ever. `base` is
    # the number of hits that have left, and `start` the index of the first stamp that has not.
    # A refund of hits from before `created` takes nothing back: they went with an earlier window.
    __slots__ = ("base", "created", "exact", "key", "known", "span", "stamps", "start", "totals")

    def __init__(self, key: str, policy: Policy) -> None:
        self.key = key
        self.exact = policy.algorithm != "buckets"
        self.known = 0  # set by the store: the size that its total includes
        self.span = policy.window_us
        self.created = 0
        self.stamps = array("q")
        self.totals = array("q")
        self.start = 0
        self.base = 0

    def __len__(self) -> int:
        return len(self.stamps)

    def clear(self) -> None:
        del self.stamps[:], self.totals[:]
        self.start = self.base = 0

    def expired(self, now: int) -> bool:
        return self.stamps[-1] + self.span <= now

    def hit(self, now: int, limit: int) -> list[int] | None:
        """Add one hit if there is room, and return the reply of a check.

        Return None, without any change, if the general path has to decide.
        """
        stamps, totals, span = self.stamps, self.totals, self.span
        first, base = self.start, self.base
        newest, total = stamps[-1], totals[-1]
        if newest > now or not self.exact:
            return None
        reset = stamps[first] + span - now
        if reset <= 0:
            first = bisect_right(stamps, now - span, first)
            base = totals[first - 1]
            reset = stamps[first] + span - now if first < len(stamps) else span
        count = total - base
        if count >= limit:
            return [0, now, 0, 0, reset, reset] if count == limit and count else None
        if newest == now:
            totals[-1] = total + 1
        else:
            stamps.append(now)
            totals.append(total + 1)
        if base != self.base:
            self.drop(first, base)
        return [1, now, 1, limit - count - 1, 0, reset]

    def look(self, now: int, policy: Policy, writes: bool) -> LogView:
        """Return a view of the hits that count now. If `writes`, move future stamps to now."""
        stamps, first, before = self.stamps, self.start, self.base
        stamp = _stamp(now, policy)
        if not stamps:
            return LogView(self, now, stamp, 0, 0, 0)
        if writes:
            self.created = min(self.created, now)
            if stamps[-1] > stamp:
                self._set_back(stamp)
                stamps = self.stamps
        gone = now - self.span
        if stamps[first] <= gone:
            first = bisect_right(stamps, gone, first)
            before = self.totals[first - 1]
        return LogView(self, now, stamp, first, before, self.totals[-1] - before)

    def _set_back(self, stamp: int) -> None:
        hits = self.totals[-1]
        kept = bisect_left(self.stamps, stamp, self.start)
        # New arrays: a view of another resolution keeps the old ones.
        self.stamps, self.totals = self.stamps[:kept], self.totals[:kept]
        self.stamps.append(stamp)
        self.totals.append(hits)

    def drop(self, first: int, before: int) -> None:
        """Forget the first `before` hits, and the stamps before the index `first`."""
        self.start, self.base = first, before
        # Delete stamps only when at least as many go as stay, so that deleting takes constant time
        # per hit on average.
        if 2 * first >= len(self.stamps):
            del self.stamps[:first], self.totals[:first]
            self.start = 0

    def refund(self, now: int, policy: Policy, charged: int, cost: int) -> int:
        """Take back up to `cost` hits that were charged at `charged`. Return their number."""
        view = self.look(now, policy, True)
        hit = _stamp(min(charged, now), policy)
        at = bisect_left(self.stamps, hit, view.first)
        if at == len(self.stamps) or self.stamps[at] != hit or min(charged, now) < self.created:
            return 0
        earlier = self.totals[at - 1] if at > view.first else view.before
        hits = self.totals[at] - earlier
        taken = min(cost, hits)
        for later in range(at, len(self.totals)):
            self.totals[later] -= taken
        if taken == hits:
            del self.stamps[at], self.totals[at]
        self.drop(view.first, view.before)
        return taken


def _stamp(time: int, policy: Policy) -> int:
    if policy.algorithm != "buckets":
        return time
    length = bucket_us(policy)
    return (time // length + 1) * length


class LogView:
    """A log at one instant. The hits count from the stamp at the index `first` on."""

    __slots__ = ("before", "count", "first", "now", "stamp", "stamps", "totals", "window")

    def __init__(self, log: Log, now: int, stamp: int, first: int, before: int, count: int) -> None:
        self.window = log
        self.stamps = log.stamps
        self.totals = log.totals
        self.now = now
        self.stamp = stamp
        self.first = first
        self.before = before
        self.count = count

    def leaves(self, n: int) -> int:
        """Return the time until the n oldest hits have left. Hits that are added now are last."""
        stamp = self.stamp
        if n <= self.count:
            stamp = min(stamp, self.stamps[bisect_left(self.totals, self.before + n, self.first)])
        return stamp + self.window.span - self.now

    def stored(self, added: int, cap: int) -> tuple[int, int]:
        """Return how many hits a refusal adds, and how many of the oldest hits it replaces."""
        return added, max(0, added - max(0, cap - self.count))

    def passes(self, limit: int, cost: int, added: int) -> int:
        """Return the time until there is room for `cost`, after `added` more hits."""
        return self.leaves(self.count + added + cost - limit)

    def charge(self, added: int, dropped: int) -> None:
        """Add hits. Drop the hits that have left, and the `dropped` oldest of the others."""
        log, first, before = self.window, self.first, self.before + dropped
        total = self.before + self.count + added
        if dropped:
            first = bisect_right(log.totals, before, first)
        if dropped == self.count:
            log.created = self.now
        if log.stamps and log.stamps[-1] == self.stamp:
            log.totals[-1] = total
            first = min(first, len(log.stamps) - 1)
        else:
            log.stamps.append(self.stamp)
            log.totals.append(total)
        if first != log.start or before != log.base:
            log.drop(first, before)


class Counter:
    """The number of hits in the current window of the clock, and in the window before it."""

    # A refund of hits from before `created` takes nothing back: they went with an earlier counter.
    __slots__ = ("before", "created", "key", "known", "number", "span", "this")

    def __init__(self, key: str, policy: Policy) -> None:
        self.key = key
        self.known = 0  # set by the store: the size that its total includes
        self.span = policy.window_us
        self.clear()

    def clear(self) -> None:
        self.number = self.before = self.this = self.created = 0

    def __len__(self) -> int:
        return (self.before > 0) + (self.this > 0)

    def expired(self, now: int) -> bool:
        return (self.number + 1 + (self.this > 0)) * self.span <= now

    def look(self, now: int, policy: Policy, writes: bool) -> CounterView:
        number, elapsed = divmod(now, self.span)
        before = this = 0
        if self.number == number:
            before, this = self.before, self.this
        elif self.number == number - 1:
            before = self.this
        elif self.number > number:
            # The clock has stepped back: all hits count as hits of now.
            this = self.before + self.this
            if writes:
                self.number, self.before, self.this = number, 0, this
        if writes:
            self.created = min(self.created, now)
        return CounterView(self, now, number, elapsed, before, this)

    def refund(self, now: int, policy: Policy, charged: int, cost: int) -> int:
        view = self.look(now, policy, True)
        charged = min(charged, now)
        if charged < self.created:
            return 0
        number = charged // self.span
        this = min(cost, view.this) if number == view.number else 0
        before = min(cost, view.before) if number == view.number - 1 else 0
        if this or before:
            self.number = view.number
            self.before, self.this = view.before - before, view.this - this
        return this + before


class CounterView:
    """A counter at one instant.

    The hits of the window before count in proportion to its part that the sliding window covers.
    """

    __slots__ = ("before", "count", "elapsed", "now", "number", "span", "this", "window")

    def __init__(
        self, counter: Counter, now: int, number: int, elapsed: int, before: int, this: int
    ) -> None:
        self.window = counter
        self.span = counter.span
        self.now = now
        self.number = number
        self.elapsed = elapsed
        self.before = before
        self.this = this
        self.count = self._share(before, elapsed) + this

    def _share(self, before: int, elapsed: int) -> int:
        # Floats, and this order of operations: the result must equal that of Lua.
        return before - floor(float(before) * elapsed / self.span)

    def leaves(self, n: int) -> int:
        return (1 if self.before else 2) * self.span - self.elapsed

    def stored(self, added: int, cap: int) -> tuple[int, int]:
        """Return how many hits a refusal adds. A counter cannot drop its oldest hits."""
        return min(added, max(0, cap - self.this)), 0

    def passes(self, limit: int, cost: int, added: int) -> int:
        """Return the time until there is room for `cost`, after `added` more hits."""
        before, this, elapsed, waited = self.before, self.this + added, self.elapsed, 0
        if this + cost > limit:
            # There is no room before this window ends and becomes the window before.
            waited = self.span - elapsed
            before, this, elapsed = this, 0, 0
        room = limit - this - cost
        # Solve the equation for the time, then find the exact microsecond by trying.
        at = max(elapsed, ceil(float(before - room) * self.span / before))
        while at > elapsed and self._share(before, at - 1) <= room:
            at -= 1
        while self._share(before, at) > room:
            at += 1
        return waited + at - elapsed

    def charge(self, added: int, dropped: int) -> None:
        counter = self.window
        if self.before + self.this == 0:
            counter.created = self.now
        counter.number, counter.before, counter.this = self.number, self.before, self.this + added


Window: TypeAlias = "Log | Counter | Slots"
View: TypeAlias = "LogView | CounterView | SlotsView"
