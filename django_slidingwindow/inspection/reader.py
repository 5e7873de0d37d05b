"""Read windows in Redis: hits, whether a request would be refused, expiry and size.

Nothing is written. One round trip reads many windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from redis.cluster import RedisCluster
from redis.exceptions import RedisError, ResponseError

from ..algorithms.decode import DECODERS
from ..exceptions import StoreError
from ..guard.current_limiter import get_limiter
from ..policies import SLOTS, Policy
from ..rates import MAX_LIMIT
from ..stores.errors import store_error
from ..stores.protocol import Evaluate, Reply, WindowReply, WindowRule
from .search import Match

# The most windows that one script call reads. A longer call would delay requests.
_WINDOWS_PER_CALL = 50

RulesFor: TypeAlias = "Callable[[Policy], tuple[WindowRule, ...]]"
"""A function that returns the rules by which a window of a policy is read."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A window as a request would see it. Times are in seconds."""

    hits: int
    blocked: bool
    """Whether the limit of the match would refuse a request of cost 1."""
    retry_after: float | None
    """None if no retry can succeed."""
    reset_after: float
    leased: int | None = None
    """Hits of the last `lease_seconds`, which may be unused yet; None without a lease."""


@contextmanager
def only_store_errors() -> Iterator[None]:
    """Convert errors of redis-py to StoreError."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise store_error(error) from error


def client() -> Any:
    """Return a redis-py client for the server that holds the windows.

    The client has the time-outs of the cache alias, which may be none. So call the store first: a
    call of the store always has a time-out, and raises StoreError if Redis is down.
    """
    return store().client()


def store() -> Any:
    """Return the Redis store of this process's limiter.

    The type is Any, because the Redis store has more methods than the protocol of stores.
    """
    return get_limiter().store


def key_count() -> int:
    """Return about how many keys the server has, including those of other applications."""
    with only_store_errors():
        server = client()
        if isinstance(server, RedisCluster):
            return int(server.dbsize(target_nodes=RedisCluster.PRIMARIES))
        return int(server.dbsize())


def read(matches: list[Match]) -> list[Reading | None]:
    """Return the current state of each window; None for a key that is not a window."""
    rows = zip(matches, _rows(matches, _reading_rules), strict=True)
    return [None if row is None else _reading(match, *row) for match, row in rows]


def counts(matches: list[Match]) -> list[int | None]:
    """Return only the hits of each window, which is half the work of `read`."""
    rows = zip(matches, _rows(matches, _count_rules), strict=True)
    return [None if row is None else _hits(match, row[0]) for match, row in rows]


def _hits(match: Match, counted: WindowReply) -> int:
    """Return the hits in a window.

    A penalty that blocks is shown with one refusal more than it tolerates. It is the only kind of
    window that refuses a check of cost 0.
    """
    return MAX_LIMIT - counted.remaining if counted.admits else (match.limit or 0) + 1


def _reading(
    match: Match, counted: WindowReply, checked: WindowReply, recent: WindowReply | None = None
) -> Reading:
    """Combine the replies to `_reading_rules`."""
    return Reading(
        hits=_hits(match, counted),
        blocked=not checked.admits,
        retry_after=None if checked.retry < 0 else checked.retry / 1_000_000,
        reset_after=counted.reset / 1_000_000,
        leased=None if recent is None else MAX_LIMIT - recent.remaining,
    )


@lru_cache(maxsize=1024)
def _count_rules(policy: Policy) -> tuple[WindowRule, ...]:
    """Return the rule that counts hits: a check of cost 0 against a very high limit."""
    return (WindowRule(replace(policy, limit=MAX_LIMIT), 0),)


@lru_cache(maxsize=1024)
def _reading_rules(policy: Policy) -> tuple[WindowRule, ...]:
    """Return the rules that count hits, check a request of cost 1, and count leased hits."""
    (counted,) = _count_rules(policy)
    recent = (counted._replace(recent=True),) if policy.lease else ()
    return counted, WindowRule(policy, 1), *recent


def _rows(matches: list[Match], rules: RulesFor) -> list[list[WindowReply] | None]:
    """Return the script's replies to the rules of each window; None if a key is not a window."""
    keys = tuple(match.key for match in matches)
    chunks = [
        same_policy[start : start + _WINDOWS_PER_CALL]
        for group in store().groups(keys) or [range(len(keys))]
        for same_policy in _by_policy(matches[i] for i in group)
        for start in range(0, len(same_policy), _WINDOWS_PER_CALL)
    ]
    found: dict[str, list[WindowReply]] = {}
    for chunk, reply in _replies(chunks, rules):
        windows = [WindowReply(*fields) for fields in reply.windows()]
        rule_count = len(windows) // len(chunk)
        for i, match in enumerate(chunk):
            found[match.key] = windows[rule_count * i : rule_count * (i + 1)]
    return [found.get(key) for key in keys]


def _by_policy(matches: Iterable[Match]) -> Iterable[list[Match]]:
    """Group windows by policy. The store packs the arguments of a call once for each policy."""
    found: dict[Policy, list[Match]] = {}
    for match in matches:
        found.setdefault(match.policy, []).append(match)
    return found.values()


def _replies(chunks: list[list[Match]], rules: RulesFor) -> Iterator[tuple[list[Match], Reply]]:
    """Yield each chunk with the reply to it, without windows that cannot be read."""
    unread: list[list[Match]] = []
    replies = store().run_many([_peek(chunk, rules) for chunk in chunks])
    for chunk, reply in zip(chunks, replies, strict=True):
        if not isinstance(reply, StoreError):
            yield chunk, reply
        elif reply.outage:
            raise reply
        elif len(chunk) > 1:
            # A key that is not a window made the call fail. Read the windows of this chunk one by
            # one, so that only the call with this key fails.
            unread += [[match] for match in chunk]
    if unread:
        yield from _replies(unread, rules)


def _peek(matches: list[Match], rules: RulesFor) -> Evaluate:
    pairs = [(match.key, rule) for match in matches for rule in rules(match.policy)]
    return Evaluate(tuple(key for key, _ in pairs), tuple(rule for _, rule in pairs), False)


def sizes(keys: list[str]) -> list[tuple[int, int | None]]:
    """Return PTTL in milliseconds (-2: no key, -1: no expiry) and size in bytes of each key."""
    if not keys:
        return []
    with only_store_errors():
        pipeline = client().pipeline(transaction=False)
        for key in keys:
            pipeline.pttl(key)
            pipeline.memory_usage(key)
        replies = pipeline.execute(raise_on_error=False)
    return [
        (_unless_error(pttl, -1), _unless_error(size, None))
        for pttl, size in zip(replies[::2], replies[1::2], strict=True)
    ]


def _unless_error(reply: Any, default: Any) -> Any:
    # The Redis user may lack the permission to run the command.
    return default if isinstance(reply, ResponseError) else reply


def hits(match: Match) -> list[tuple[float, int]]:
    """Return the hits in a window as (age in seconds, count), the oldest first."""
    algorithm = match.policy.algorithm
    with only_store_errors():
        if algorithm in ("log", SLOTS):
            value = client().zrange(match.key, 0, -1, withscores=True)
        elif algorithm == "buckets":
            value = client().hgetall(match.key)
        else:
            value = client().get(match.key) or b""
    # Read the clock after the value, so that no hit lies in the future.
    now = store().run(_peek([match], _count_rules)).clock
    try:
        return DECODERS[algorithm](value, match.policy, now)
    except (LookupError, ValueError) as error:
        text = f"damaged value, reset this window: {match.key}"
        raise StoreError(text, outage=False) from error
