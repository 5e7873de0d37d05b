"""Units that this process has taken ahead from windows, and hands out from memory.

The store counts a unit that it granted at T until T + window + lease_seconds. This process hands
it out until lease_seconds after the call was sent, which was before T. So no unit is used after
T + lease_seconds, and each counts for at least a window from its use on.

A key has one lease at a time. How much is taken ahead follows from how much of the last lease was
used: nothing at the first call, then twice as much as was used. So keys with little traffic cost
nothing more than without leases.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

from ..decisions import Charge
from ..policies import Policy
from ..stores.protocol import Ahead, Reply, WindowRule
from .windows import WindowSet

MAX_LEASES = 10_000
"""Keys that may have a lease in this process at the same time."""

# Two hosts whose clocks are being adjusted differ by less than a thousandth in a second.
_DRIFT = 0.999
_NOTHING = Ahead()

steady_clock: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
"""Seconds. Where there is such a clock, it goes on while the host sleeps."""


class Lease:
    """Units of one window that were taken in one call."""

    def __init__(
        self, profile: str, rule: WindowRule, *, ahead: int, stamp: int, reset: int, sent: float
    ) -> None:
        self.profile = profile
        self.policy = rule.policy
        self.cost = rule.cost
        """Units that the call needed itself."""
        self.ahead = ahead
        """Units that it took beside those."""
        self.units = ahead
        """Those that are left."""
        self.stamp = stamp
        """The store's clock when it granted them."""
        self.leaves = sent + reset / 1_000_000
        """When the oldest hit of the window leaves, by this process's clock."""
        self.until = sent + rule.policy.lease_seconds * _DRIFT
        self.ended = False
        """Whether its units were given back, or are on their way."""

    @property
    def used(self) -> int:
        return self.cost + self.ahead - self.units


class Return(NamedTuple):
    """Units to give back to the store, and its clock when it granted them."""

    charge: Charge
    stamp: int


class Ended(NamedTuple):
    """What became of a lease: numbers of units."""

    profile: str
    granted: int
    used: int
    returned: int


class Asked(NamedTuple):
    """A call that may take units ahead."""

    ahead: tuple[Ahead, ...]
    """Empty if it takes and gives back nothing."""
    renewed: tuple[int, ...]
    """The positions of windows that get a new lease."""
    sent: float
    number: int
    """Tells the call from others."""


class Leases:
    """The leases of one limiter; safe to share among threads and event loops."""

    def __init__(self, *, share: int, clock: Callable[[], float] = steady_clock) -> None:
        """A call takes at most 1/`share` of the hits that a window has left."""
        self.clock = clock
        self._share = share
        self.begin()

    def begin(self) -> None:
        """Start from nothing. A forked child calls this: the units belong to its parent."""
        self._lock = threading.Lock()
        self._held: dict[str, Lease] = {}
        # By key, the call on its way that will bring a lease: others take nothing ahead.
        self._asking: dict[str, int] = {}
        self._due: list[tuple[float, int, str, Lease]] = []
        self._numbers = count()
        self._returns: list[Return] = []
        self._finished: deque[Ended] = deque(maxlen=MAX_LEASES)

    def take(self, key: str, policy: Policy, cost: int) -> tuple[int, int, float] | None:
        """Take a request's units from what is held here; None if that is not enough.

        Return when they were granted, by the store's clock, how many are left here, and the
        seconds until the oldest hit of the window leaves.
        """
        lease = self._held.get(key)
        if lease is None:
            return None
        now = self.clock()
        if now >= lease.until or lease.policy.limit != policy.limit:
            return None
        with self._lock:
            left = lease.units - cost
            if left < 0:
                return None
            lease.units = left
        leaves = lease.leaves - now
        return lease.stamp, left, leaves if leaves > 0 else 0.0

    def units(self, key: str, policy: Policy) -> int:
        """Return the units of a window that are held here."""
        lease = self._held.get(key)
        if lease is None or self.clock() >= lease.until or lease.policy.limit != policy.limit:
            return 0
        return lease.units

    def ask(self, windows: WindowSet) -> Asked:
        """Return what a call that charges windows takes ahead, and gives back.

        `answered` or `failed` has to follow.
        """
        template, keys = windows
        ahead, renewed, now = [_NOTHING] * len(keys), [], self.clock()
        with self._lock:
            number = next(self._numbers)
            for i in template.leased:
                key = keys[i]
                if key in self._asking or not self._has_place(key):
                    continue
                self._asking[key] = number
                renewed.append(i)
                old = self._held.pop(key, None)
                if old is not None:
                    ahead[i] = self._ahead(old, template.rules[i].policy, now)
                    self._end(old)
            any_ahead = any(one.most or one.returned for one in ahead)
            return Asked(tuple(ahead) if any_ahead else (), tuple(renewed), now, number)

    def answered(self, windows: WindowSet, asked: Asked, reply: Reply) -> None:
        """Keep what a call has taken ahead."""
        template, keys = windows
        with self._lock:
            for i in asked.renewed:
                key, rule = keys[i], template.rules[i]
                window = reply.window(i)
                # If the window was reset meanwhile, the units may be gone with it. If they are not,
                # they count for nobody until they leave.
                if not self._end_call(key, asked) or not reply.admitted or not window.admits:
                    continue
                units = reply.granted[i] if reply.granted else 0
                lease = Lease(
                    template.named[i][0],
                    rule,
                    ahead=units,
                    stamp=reply.clock,
                    reset=window.reset,
                    sent=asked.sent,
                )
                self._held[key] = lease
                if units:
                    heappush(self._due, (lease.until, next(self._numbers), key, lease))
            if len(self._due) > 2 * len(self._held) + 64:
                # Most have ended early: a busy key has a new lease every few requests.
                self._due = [due for due in self._due if not due[-1].ended]
                heapify(self._due)

    def failed(self, windows: WindowSet, asked: Asked) -> None:
        """End a call without an answer. What it may have given back is not given back again."""
        with self._lock:
            for i in asked.renewed:
                self._end_call(windows.keys[i], asked)

    def give_back(self, charges: Iterable[Charge], stamp: int) -> tuple[Charge, ...]:
        """Put units back that came from leases; return those that only the store can take."""
        now, left = self.clock(), []
        with self._lock:
            for charge in charges:
                lease = self._held.get(charge.key)
                if (
                    lease is not None
                    and lease.stamp == stamp
                    and lease.ahead
                    and not lease.ended
                    and now < lease.until
                ):
                    lease.units += charge.cost
                    # The units that the call needed itself may be among them.
                    lease.ahead = max(lease.ahead, lease.units)
                else:
                    left.append(charge)
        return tuple(left)

    def give_later(self, charges: Iterable[Charge], stamp: int) -> None:
        """Put units back, to be given to the store with the next leases that end if need be."""
        left = self.give_back(charges, stamp)
        with self._lock:
            self._returns += [Return(charge, stamp) for charge in left]

    def forget(self, keys: Iterable[str]) -> None:
        """Hand out no more units of windows that are reset, nor those that are on their way."""
        with self._lock:
            for key in keys:
                self._asking.pop(key, None)
                lease = self._held.pop(key, None)
                if lease is not None:
                    # They went with the window: there is nothing to give back to.
                    lease.ahead, lease.units = lease.ahead - lease.units, 0
                    self._end(lease)

    def over(self, *, everything: bool = False) -> list[Return]:
        """Return the units of leases that have ended, or of all leases; they are held no more."""
        now = self.clock()
        with self._lock:
            while self._due and (everything or self._due[0][0] <= now):
                _, _, key, lease = heappop(self._due)
                if lease.units:
                    charge = Charge(key, lease.policy, lease.units)
                    self._returns.append(Return(charge, lease.stamp))
                self._end(lease)
            found, self._returns = self._returns, []
        return found

    def finished(self) -> list[Ended]:
        """Return the leases that have ended since the last call."""
        if not self._finished:
            return []
        with self._lock:
            found, self._finished = list(self._finished), deque(maxlen=MAX_LEASES)
        return found

    @property
    def due(self) -> float:
        """When the next lease ends, by the clock; infinite if there is none."""
        with self._lock:
            if self._returns:
                return -math.inf
            return self._due[0][0] if self._due else math.inf

    def _end_call(self, key: str, asked: Asked) -> bool:
        """Return whether the window was not reset since the call was sent."""
        if self._asking.get(key) != asked.number:
            return False
        del self._asking[key]
        return True

    def _has_place(self, key: str) -> bool:
        held = self._held
        if key in held or len(held) < MAX_LEASES:
            return True
        # The one that was renewed longest ago.
        oldest = next(iter(held))
        if held[oldest].units:
            return False
        self._end(held.pop(oldest))
        return True

    def _ahead(self, old: Lease, policy: Policy, now: float) -> Ahead:
        """Return what to take after a lease, and what to give back of it."""
        lately = now < old.until + policy.lease_seconds
        most = min(policy.lease, 2 * old.used) if lately else 0
        return Ahead(most, self._share, old.units, old.stamp)

    def _end(self, lease: Lease) -> None:
        if lease.ended:
            return
        lease.ended = True
        used = lease.ahead - lease.units
        if lease.ahead:
            self._finished.append(Ended(lease.profile, lease.ahead, used, lease.units))
        # The size of the next lease follows from what was used of this one.
        lease.ahead, lease.units = used, 0
