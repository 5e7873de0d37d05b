"""The fewest and the most refusals, for a log whose stamps are whole seconds.

A request with the stamp s came at an unknown moment in the second from s to s + 1. The order of
requests with equal stamps is unknown too.

For one identifier, an exact log with limit L and window W admits the largest set of requests in
which each request comes at least W after the L-th request before it. Two requests with the stamps
s and s' are less than s' - s + 1 seconds apart, and more than s' - s - 1 seconds. So, whatever the
true times were:

- At least as many requests are refused as by a window of W, rounded down to whole seconds, if each
  request came exactly at its stamp.
- At most as many requests are refused as by a window of W + 1 seconds, if each request came exactly
  at its stamp.

If W is a whole number of seconds, both bounds can be reached: the lower bound if all requests came
at the start of their seconds, the upper bound if the admitted requests came near the end of their
seconds. The bounds also hold for several policies together, because they hold for each policy.

A hit of `buckets` counts up to one sub-window longer. If the sub-window is a whole number of
seconds too, fractions of a second change nothing.

A `counter` admits more if a request comes later in its second, and less if it has admitted more in
the window before. For windows of whole seconds, two stores alternate: one takes the latest possible
times in even windows of the clock and the earliest in odd ones, the other one does the reverse. So
each window is counted once at its most and once at its least. A `counter` with any other window
refuses at most as many requests as a log of two windows does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ..algorithms.timing import bucket_us
from ..exceptions import PolicyError
from ..policies import Policy
from .candidates import Candidate
from .store import ReplayStore
from .times import SECOND


class Bounds(Protocol):
    """Counts the fewest and the most refusals that are possible."""

    least: int
    most: int

    def hit(self, stamp: int, identifier: str, refused: bool) -> None:
        """Count one request. `refused`: whether the candidate refuses it exactly at its stamp."""


def bounds_of(candidate: Candidate) -> Bounds | None:
    """Return the bounds of a candidate; None if they are unknown."""
    policies = candidate.policies
    if candidate.count_rejected and len(policies) > 1:
        # A refusal by one policy changes what the other policies count.
        return None
    if len(policies) == 1 and policies[0].algorithm == "counter":
        if policies[0].window_us % SECOND == 0:
            return CounterBounds(candidate)
        if candidate.count_rejected:
            return None
    try:
        return PolicyBounds(candidate)
    except PolicyError:
        # 400 days is the longest window, so it cannot be made longer.
        return None


def relaxed(policy: Policy) -> Policy | None:
    """Return a policy that admits all that this one may admit; None if none is known."""
    whole = policy.window_us // SECOND
    if policy.algorithm == "counter" or not whole:
        return None
    if policy.window_us % SECOND == 0 and (
        policy.algorithm != "buckets" or bucket_us(policy) % SECOND == 0
    ):
        return policy
    return Policy(limit=policy.limit, window=whole, algorithm="log")


def tightened(policy: Policy) -> Policy:
    """Return a policy that refuses all that this one may refuse.

    Raise PolicyError if its window would be too long.
    """
    longer = policy.window_us + SECOND
    if policy.algorithm == "counter":
        longer += policy.window_us
    if policy.algorithm == "buckets":
        bucket = bucket_us(policy)
        if policy.window_us % SECOND == bucket % SECOND == 0:
            return policy
        longer += bucket
    return Policy(limit=policy.limit, window=longer / SECOND, algorithm="log")


class PolicyBounds:
    """Replays the relaxed and the tightened policies of a candidate."""

    def __init__(self, candidate: Candidate) -> None:
        self.least = self.most = 0
        looser = [relaxed(policy) for policy in candidate.policies]
        self._relaxed = _refuser(candidate, [policy for policy in looser if policy is not None])
        self._tightened = _refuser(candidate, map(tightened, candidate.policies))

    def hit(self, stamp: int, identifier: str, refused: bool) -> None:
        self.least += self._relaxed(stamp, identifier, refused)
        self.most += self._tightened(stamp, identifier, refused)


def _refuser(candidate: Candidate, changed: Iterable[Policy]) -> Callable[[int, str, bool], bool]:
    """Return a function that says whether the changed policies refuse a request."""
    policies = tuple(changed)
    if policies == candidate.policies:
        return lambda stamp, identifier, refused: refused
    if not policies:
        return lambda stamp, identifier, refused: False
    store = ReplayStore(policies, count_rejected=candidate.count_rejected)
    return lambda stamp, identifier, refused: not store.hit(stamp, identifier).admitted


class CounterBounds:
    """Replays a counter in two stores, which take the earliest and the latest times in turn."""

    def __init__(self, candidate: Candidate) -> None:
        self.least = self.most = 0
        (policy,) = candidate.policies
        self._window_us = policy.window_us
        self._stores = tuple(
            ReplayStore(candidate.policies, count_rejected=candidate.count_rejected)
            for _ in range(2)
        )

    def hit(self, stamp: int, identifier: str, refused: bool) -> None:
        parity = stamp // self._window_us % 2
        late, early = self._stores[parity], self._stores[1 - parity]
        self.least += not late.hit(stamp + SECOND - 1, identifier).admitted
        self.most += not early.hit(stamp, identifier).admitted
