"""What a log whose stamps are whole seconds leaves open: the fewest and the most refusals.

A request with the stamp s came somewhere in the second from s to s + 1, in an unknown order. Of
one identifier, an exact log of limit L and window W admits the largest set of requests in which
every request comes at least W after the L-th before it. Two requests with stamps s and s' lie less
than s' - s + 1 apart, and more than s' - s - 1. Therefore, whatever the times were:

- At least as many are refused as by a window of W, rounded down to whole seconds, on the stamps as
  they stand.
- At most as many are refused as by a window of W + 1 seconds on the stamps as they stand.

If W is a whole number of seconds, both are reached: the first if all requests came at the start
of their second; the second if those that are admitted came near the end of theirs. Several
policies together keep these bounds, because each of them does.

A hit of `buckets` counts up to one sub-window longer. If the sub-window is a number of whole
seconds too, the fraction of a second changes nothing.

A `counter` of a whole number of seconds admits more the later in its second a request comes, and
less the more it admitted in the window before. Two lanes alternate: one takes the latest times in
even windows of the clock and the earliest in odd ones, the other the reverse. So each window is
counted once at its most and once at its least. Any other `counter` refuses at most what a log of
two windows does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..algorithms.timing import bucket_us
from ..exceptions import PolicyError
from ..policies import Policy
from .candidates import Candidate
from .lanes import Lane
from .times import SECOND


class Bounds(Protocol):
    """Counts refusals at least and at most."""

    least: int
    most: int

    def hit(self, stamp: int, identifier: str, refused: bool) -> None:
        """Count one request. `refused`: by the candidate, on the stamps as they stand."""


def bounds_of(candidate: Candidate) -> Bounds | None:
    """Return the bounds of a candidate; None if nothing is known about them."""
    policies = candidate.policies
    if candidate.count_rejected and len(policies) > 1:
        # A refusal by one policy changes what another one counts.
        return None
    if len(policies) == 1 and policies[0].algorithm == "counter":
        if policies[0].window_us % SECOND == 0:
            return AlternatingLanes(candidate)
        if candidate.count_rejected:
            return None
    try:
        return TwoLanes(candidate)
    except PolicyError:
        # A window of 400 days cannot be longer.
        return None


def relaxed(policy: Policy) -> Policy | None:
    """Return a policy that admits all that this one may admit; None for one without a limit."""
    whole = policy.window_us // SECOND
    if policy.algorithm == "counter" or not whole:
        return None
    if policy.window_us % SECOND == 0 and (
        policy.algorithm != "buckets" or bucket_us(policy) % SECOND == 0
    ):
        return policy
    return Policy(limit=policy.limit, window=whole, algorithm="log")


def tightened(policy: Policy) -> Policy:
    """Return a policy that refuses all that this one may refuse; PolicyError if it is too long."""
    longer = policy.window_us + SECOND
    if policy.algorithm == "counter":
        longer += policy.window_us
    if policy.algorithm == "buckets":
        bucket = bucket_us(policy)
        if policy.window_us % SECOND == bucket % SECOND == 0:
            return policy
        longer += bucket
    return Policy(limit=policy.limit, window=longer / SECOND, algorithm="log")


class TwoLanes:
    """Replays relaxed and tightened policies, where they differ from the candidate's own."""

    def __init__(self, candidate: Candidate) -> None:
        self.least = self.most = 0
        own = candidate.policies
        fewer = tuple(found for policy in own if (found := relaxed(policy)) is not None)
        self._least = _refuser(own, fewer, candidate.count_rejected)
        self._most = _refuser(own, tuple(map(tightened, own)), candidate.count_rejected)

    def hit(self, stamp: int, identifier: str, refused: bool) -> None:
        self.least += self._least(stamp, identifier, refused)
        self.most += self._most(stamp, identifier, refused)


def _refuser(
    own: tuple[Policy, ...], policies: tuple[Policy, ...], count_rejected: bool
) -> Callable[[int, str, bool], bool]:
    if policies == own:
        return lambda stamp, identifier, refused: refused
    if not policies:
        return lambda stamp, identifier, refused: False
    lane = Lane(policies, count_rejected=count_rejected)
    return lambda stamp, identifier, refused: not lane.hit(stamp, identifier)[0]


class AlternatingLanes:
    """Replays a counter at the earliest and the latest times, in turns of its clock windows."""

    def __init__(self, candidate: Candidate) -> None:
        self.least = self.most = 0
        (policy,) = candidate.policies
        self._span = policy.window_us
        self._lanes = tuple(
            Lane(candidate.policies, count_rejected=candidate.count_rejected) for _ in range(2)
        )

    def hit(self, stamp: int, identifier: str, refused: bool) -> None:
        turn = stamp // self._span % 2
        late, early = self._lanes[turn], self._lanes[1 - turn]
        self.least += not late.hit(stamp + SECOND - 1, identifier)[0]
        self.most += not early.hit(stamp, identifier)[0]
