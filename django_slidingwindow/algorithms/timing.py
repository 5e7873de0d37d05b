"""How the four algorithms divide time: ticks, sub-windows and expiries."""

from __future__ import annotations

from ..policies import Policy

# A window is at most this many ticks of the compact log's four-byte stamps.
_MAX_TICKS = 2**31

EXACT = frozenset({"compact", "log", "buckets"})
"""Algorithms whose retry_after holds whatever else happens: nothing is admitted before it."""


def tick_us(policy: Policy) -> int:
    """Return the grain of the compact log's stamps, in microseconds.

    A stamp says when a hit came to within a tick. The hit counts until a window after the
    last microsecond of its tick, so it never leaves early.
    """
    return -(-policy.window_us // _MAX_TICKS)


def bucket_us(policy: Policy) -> int:
    """Return the length of a sub-window, in microseconds."""
    return -(-policy.window_us // policy.resolution)


def grain(policy: Policy) -> int:
    """Return the last script argument of a policy: tick, or length of a sub-window."""
    if policy.algorithm == "compact":
        return tick_us(policy)
    if policy.algorithm == "buckets":
        return bucket_us(policy)
    return 1


def lives_ms(policy: Policy) -> int:
    """Return the expiry that a key gets with a hit: until that has left, and half a second more.

    So a busy key need not renew its expiry at each hit.
    """
    late = tick_us(policy) - 1 if policy.algorithm == "compact" else 0
    return -(-(policy.counted_us + late) // 1_000) + 500
