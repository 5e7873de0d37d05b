"""Leases: units that this process took from windows in advance, and hands out from memory.

The store counts a unit that it granted at T until T + window + lease_seconds. This process hands it
out until lease_seconds after it sent the call, and it sent the call before T. So every unit is used
before T + lease_seconds, and counts for at least one window after its use.

A key has one lease at a time. Its size follows from the use of the lease before: nothing at the
first call, then twice the units that were used. So keys with little traffic cost nothing extra.
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
"""The most keys that have a lease in this process at the same time."""

# The clocks of two hosts, even while they are adjusted, differ by less than a thousandth.
_DRIFT = 0.999
_NOTHING = Ahead()

steady_clock: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
"""A monotonic clock in seconds. If the system has one that runs while the host sleeps, that one."""


class Lease:
    """Units of one window that one call took."""

    def __init__(
        self, profile: str, rule: WindowRule, *, ahead: int, stamp: int, reset: int, sent: float
    ) -> None:
        self.profile = profile
        self.policy = rule.policy
        self.cost = rule.cost
        """Units for the request that made the call."""
        self.ahead = ahead
        """Units for later requests."""
        self.units = ahead
        """The units of `ahead` that are left."""
        self.stamp = stamp
        """The store's clock when it granted the units."""
        self.leaves = sent + reset / 1_000_000
        """When the oldest hit of the window leaves, by this process's clock."""
        self.until = sent + rule.policy.lease_seconds * _DRIFT
        self.ended = False
        """Whether its units were returned, or are being returned."""

    @property
    def used(self) -> int:
        return self.cost + self.ahead - self.units


class Return(NamedTuple):
    """Units to return to the store, and the store's clock when it granted them."""

    charge: Charge
    stamp: int


class Ended(NamedTuple):
    """How the units of a lease were used."""

    profile: str
    granted: int
    used: int
    returned: int


class LeaseRequest(NamedTuple):
    """The lease part of a call that charges windows."""

    ahead: tuple[Ahead, ...]
    """For each window; empty if the call takes and returns nothing."""
    renewed: tuple[int, ...]
    """The positions of windows that get a new lease."""
    sent: float
    """When the call was sent."""
    number: int
    """Identifies the call."""


class Leases:
    """The leases of one limiter; safe to share among threads and event loops."""

    def __init__(self, *, share: int, clock: Callable[[], float] = steady_clock) -> None:
        """A call takes at most 1/`share` of the hits left in a window."""
        self.clock = clock
        self._share = share
        self.begin()

    def begin(self) -> None:
        """Start without leases. A forked child calls this: the units belong to its parent."""
        self._lock = threading.Lock()
        self._held: dict[str, Lease] = {}
        # By key, the number of the call under way that will bring a lease. Other calls for the key
        # take none.
        self._asking: dict[str, int] = {}
        self._due: list[tuple[float, int, str, Lease]] = []
        self._numbers = count()
        self._returns: list[Return] = []
        self._finished: deque[Ended] = deque(maxlen=MAX_LEASES)

    def take(self, key: str, policy: Policy, cost: int) -> tuple[int, int, float] | None:
        """Take the units of a request from the lease of a key; return None if there are too few.

        Return the store's clock when they were granted, the units left in the lease, and the
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
        """Return the units left in the lease of a key."""
        lease = self._held.get(key)
        if lease is None or self.clock() >= lease.until or lease.policy.limit != policy.limit:
            return 0
        return lease.units

    def ask(self, windows: WindowSet) -> LeaseRequest:
        """Return what a call that charges windows takes in advance, and what it returns.

        The caller has to call `answered` or `failed` afterwards.
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
            return LeaseRequest(tuple(ahead) if any_ahead else (), tuple(renewed), now, number)

    def answered(self, windows: WindowSet, asked: LeaseRequest, reply: Reply) -> None:
        """Keep the leases that a call got."""
        template, keys = windows
        with self._lock:
            for i in asked.renewed:
                key, rule = keys[i], template.rules[i]
                window = reply.window(i)
                # If the window was reset meanwhile, the units may be gone with it.
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
                # Most of them have ended early: a busy key gets a new lease every few requests.
                self._due = [due for due in self._due if not due[-1].ended]
                heapify(self._due)

    def failed(self, windows: WindowSet, asked: LeaseRequest) -> None:
        """End a call that failed. The units that it returned are not returned again."""
        with self._lock:
            for i in asked.renewed:
                self._end_call(windows.keys[i], asked)

    def give_back(self, charges: Iterable[Charge], stamp: int) -> tuple[Charge, ...]:
        """Put units back into their leases; return the charges that only the store can refund."""
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
                    # These units may include the one of the request that made the call.
                    lease.ahead = max(lease.ahead, lease.units)
                else:
                    left.append(charge)
        return tuple(left)

    def give_later(self, charges: Iterable[Charge], stamp: int) -> None:
        """Put units back into their leases, or return them to the store with the next batch."""
        left = self.give_back(charges, stamp)
        with self._lock:
            self._returns += [Return(charge, stamp) for charge in left]

    def forget(self, keys: Iterable[str]) -> None:
        """Drop the leases of windows that are reset, also those that are being granted."""
        with self._lock:
            for key in keys:
                self._asking.pop(key, None)
                lease = self._held.pop(key, None)
                if lease is not None:
                    # The units are gone with the window, so there is nothing to return.
                    lease.ahead, lease.units = lease.ahead - lease.units, 0
                    self._end(lease)

    def over(self, *, everything: bool = False) -> list[Return]:
        """End leases whose time is up, or all of them; return the units to give to the store."""
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

    def _end_call(self, key: str, asked: LeaseRequest) -> bool:
        """End a call for a key; return False if the window was reset since the call was sent."""
        if self._asking.get(key) != asked.number:
            return False
        del self._asking[key]
        return True

    def _has_place(self, key: str) -> bool:
        held = self._held
        if key in held or len(held) < MAX_LEASES:
            return True
        # The lease that was renewed longest ago makes room if it is used up.
        oldest = next(iter(held))
        if held[oldest].units:
            return False
        self._end(held.pop(oldest))
        return True

    def _ahead(self, old: Lease, policy: Policy, now: float) -> Ahead:
        """Return what to take after an old lease, and what to return of it."""
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
        # The size of the next lease follows from the use of this one.
        lease.ahead, lease.units = used, 0
