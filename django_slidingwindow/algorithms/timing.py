"""The units of time of the algorithms: ticks, sub-windows and expiries."""

from __future__ import annotations

from ..policies import Policy

# The largest number of ticks in a window, so that a stamp of the compact log fits into four bytes.
_MAX_TICKS = 2**31

EXACT = frozenset({"compact", "log", "buckets"})
"""Algorithms with an exact retry_after: they admit nothing before it, whatever else happens."""


def tick_us(policy: Policy) -> int:
    """Return the length of a tick, the unit of the compact log's stamps, in microseconds.

    A hit counts until one window after the last microsecond of its tick, so that it never leaves
    the window early.
    """
    return -(-policy.window_us // _MAX_TICKS)


def bucket_us(policy: Policy) -> int:
    """Return the length of a sub-window, in microseconds."""
    return -(-policy.window_us // policy.resolution)


def grain(policy: Policy) -> int:
    """Return the unit of time of a policy's stamps in microseconds, which scripts call `grain`."""
    if policy.algorithm == "compact":
        return tick_us(policy)
    if policy.algorithm == "buckets":
        return bucket_us(policy)
    return 1


def lives_ms(policy: Policy) -> int:
    """Return the milliseconds that a key lives after a hit: until the hit leaves, plus 500.

    Because of the 500, the key of a busy window does not need a new expiry for every hit.
    """
    late = tick_us(policy) - 1 if policy.algorithm == "compact" else 0
    return -(-(policy.counted_us + late) // 1_000) + 500
