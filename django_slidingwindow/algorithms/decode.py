"""Read the hits of a window from the value in Redis, to show them to people.

The top of each algorithm's Lua file describes its value. Times are in microseconds, except for the
ages in the result. A damaged value raises LookupError or ValueError, or is read in part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import floor
from typing import Any, TypeAlias

from ..policies import SLOTS, Policy
from .timing import bucket_us, tick_us

Hits: TypeAlias = "list[tuple[float, int]]"
"""Pairs of an age in seconds and a number of hits, the oldest first."""

# Bytes before the ring of a compact log.
_RING_START = 24
_WRAP = 2**32
# Sub-windows in one field of a hash.
_FIELD_SIZE = 6


def compact_hits(value: bytes, policy: Policy, now: int) -> Hits:
    """Return the hits of a compact log that still count."""
    if not value:
        return []
    tick = tick_us(policy)
    present = now // tick
    gone = (now - policy.counted_us - tick + 1) // tick
    newest = int.from_bytes(value[1:8], "big")
    stamps = [newest - (newest - low) % _WRAP for low in _low_halves(value, newest)]
    alive = (min(stamp, present) for stamp in stamps if stamp > gone)
    return _ages(((stamp * tick, 1) for stamp in alive), now)


def _low_halves(value: bytes, newest: int) -> Sequence[int]:
    """Return the lower four bytes of all stored stamps, the oldest first."""
    if value[0] == 1:
        return [*_numbers(value[8:]), newest % _WRAP]
    _, capacity, tail, size = _numbers(value[8:_RING_START])
    ring = _numbers(value[_RING_START : _RING_START + 4 * capacity])
    return (ring[tail:] + ring[:tail])[:size]


def _numbers(value: bytes) -> list[int]:
    return [int.from_bytes(value[at : at + 4], "big") for at in range(0, len(value), 4)]


def log_hits(members: Sequence[tuple[bytes, float]], policy: Policy, now: int) -> Hits:
    """Return the hits of a sorted set that still count. `members` are pairs with their scores."""
    gone = now - policy.counted_us
    return _ages(((int(min(score, now)), 1) for _, score in members if score > gone), now)


def buckets_hits(fields: Mapping[bytes, bytes], policy: Policy, now: int) -> Hits:
    """Return the sub-windows that still count, each with the age of its youngest possible hit."""
    current = (now // bucket_us(policy) + 1) * bucket_us(policy)
    alive = (pair for pair in _sub_windows(fields) if pair[0] + policy.counted_us > now)
    return _ages(((min(end, current), hits) for end, hits in alive), now)


def _sub_windows(fields: Mapping[bytes, bytes]) -> Iterator[tuple[int, int]]:
    """Yield the end and the number of hits of each stored sub-window, the oldest first."""
    head = fields.get(b"s")
    if not head:
        return
    # If there is only one sub-window, the last three numbers are missing, and are read as 0.
    newest, total, before, first, more = (
        int.from_bytes(head[at:to], "big")
        for at, to in ((0, 7), (7, 11), (25, 29), (29, 34), (34, 37))
    )
    partial = (first + more) // _FIELD_SIZE
    for number in range(first, first + more):
        field = number // _FIELD_SIZE
        slot = fields[b"p" if field == partial else b"%d" % field][number % _FIELD_SIZE * 10 :]
        end, upto = int.from_bytes(slot[:6], "big"), int.from_bytes(slot[6:10], "big")
        yield newest - (newest - end) % 2**48, (upto - before) % _WRAP
        before = upto
    yield newest, (total - before) % _WRAP


def counter_hits(value: bytes, policy: Policy, now: int) -> Hits:
    """Return the hits of the two windows of the clock, as far as they still count."""
    if not value:
        return []
    stored, before, this = (
        int.from_bytes(value[at:to], "big") for at, to in ((0, 6), (6, 10), (10, 14))
    )
    number, elapsed = divmod(now, policy.window_us)
    if stored > number:
        before, this = 0, before + this
    elif stored == number - 1:
        before, this = this, 0
    elif stored < number:
        before = this = 0
    # Floats, and this order of operations, so that the result equals that of Lua.
    share = before - floor(float(before) * elapsed / policy.window_us)
    pairs = ((now - elapsed, share), (now, this))
    return _ages((pair for pair in pairs if pair[1]), now)


def penalty_hits(value: bytes, policy: Policy, now: int) -> Hits:
    """Return the refusals that a penalty counts."""
    stamps = [int.from_bytes(value[at : at + 7], "big") for at in range(9, len(value), 7)]
    alive = (stamp for stamp in stamps if stamp > now - policy.window_us)
    return _ages(((min(stamp, now), 1) for stamp in alive), now)


def _ages(stamps: Iterable[tuple[int, int]], now: int) -> Hits:
    return [
        (max(0, now - stamp) / 1_000_000, sum(count for _, count in group))
        for stamp, group in groupby(stamps, key=lambda pair: pair[0])
    ]


DECODERS: Mapping[str, Callable[[Any, Policy, int], Hits]] = {
    "compact": compact_hits,
    "log": log_hits,
    "buckets": buckets_hits,
    "counter": counter_hits,
    "penalty": penalty_hits,
    SLOTS: log_hits,
}
"""Functions by algorithm. They take the value in Redis, the policy and Redis's clock."""
