"""Read windows in Redis: hits, whether a request would be refused, expiry and size.

Nothing is written. Many windows are read in one round trip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from redis.cluster import RedisCluster
from redis.exceptions import RedisError, ResponseError

from ..algorithms import decode as decoding
from ..exceptions import StoreError
from ..guard.current_limiter import get_limiter
from ..policies import SLOTS, Policy
from ..rates import MAX_LIMIT
from ..stores.errors import store_error
from ..stores.protocol import Evaluate, Reply, WindowReply, WindowRule
from .search import Match

# The most windows that one script call reads, so that it does not delay requests.
_WINDOWS_PER_CALL = 50

RulesFor: TypeAlias = "Callable[[Policy], tuple[WindowRule, ...]]"


@dataclass(frozen=True, slots=True)
class Look:
    """A window as a request would see it. Times are in seconds."""

    hits: int
    blocked: bool
    """Whether the limit of the match would refuse a request of cost 1."""
    retry_after: float | None
    reset_after: float
    leased: int | None = None
    """Hits of the last `lease_seconds`, which may not be used yet; None without a lease."""


@contextmanager
def only_store_errors() -> Iterator[None]:
    """Convert errors of redis-py to StoreError."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise store_error(error) from error


def client() -> Any:
    """Return a redis-py client for the server that holds the windows.

    It has the time-outs of the alias, perhaps none. Only use it after a call of the store, which
    has a time-out, has succeeded.
    """
    return store().client()


def store() -> Any:
    """Return the Redis store of this process's limiter.

    The type is Any, because it has methods beyond the protocol of stores.
    """
    return get_limiter().store


def key_count() -> int:
    """Return about how many keys the server has, including those of other applications."""
    with only_store_errors():
        server = client()
        if isinstance(server, RedisCluster):
            return int(server.dbsize(target_nodes=RedisCluster.PRIMARIES))
        return int(server.dbsize())


def looks(matches: list[Match]) -> list[Look | None]:
    """Return the current state of each window; None for a key that is not a window."""
    rows = zip(matches, _rows(matches, _look_rules), strict=True)
    return [None if row is None else _look(match, *row) for match, row in rows]


def counts(matches: list[Match]) -> list[int | None]:
    """Return only the hits of each window, which is half the work of `looks`."""
    rows = zip(matches, _rows(matches, _count_rules), strict=True)
    return [None if row is None else _hits(match, row[0]) for match, row in rows]


def _hits(match: Match, counted: WindowReply) -> int:
    """Return the hits that count. A penalty that blocks is shown with one more than it tolerates.

    No other window refuses a check of cost 0.
    """
    return MAX_LIMIT - counted.remaining if counted.admits else (match.limit or 0) + 1


def _look(
    match: Match, counted: WindowReply, checked: WindowReply, recent: WindowReply | None = None
) -> Look:
    return Look(
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
def _look_rules(policy: Policy) -> tuple[WindowRule, ...]:
    """Return the rules that count hits, check a request of cost 1, and count recent hits."""
    (counted,) = _count_rules(policy)
    recent = (counted._replace(recent=True),) if policy.lease else ()
    return counted, WindowRule(policy, 1), *recent


def _rows(matches: list[Match], rules: RulesFor) -> list[list[WindowReply] | None]:
    """Return the replies of the script to each window's rules; None if a key is not a window."""
    keys = tuple(match.key for match in matches)
    chunks = [
        alike[at : at + _WINDOWS_PER_CALL]
        for group in store().groups(keys) or [range(len(keys))]
        for alike in _by_policy(matches[i] for i in group)
        for at in range(0, len(alike), _WINDOWS_PER_CALL)
    ]
    found: dict[str, list[WindowReply]] = {}
    for chunk, reply in _replies(chunks, rules):
        windows = [WindowReply(*fields) for fields in reply.windows()]
        each = len(windows) // len(chunk)
        for i, match in enumerate(chunk):
            found[match.key] = windows[each * i : each * (i + 1)]
    return [found.get(key) for key in keys]


def _by_policy(matches: Iterable[Match]) -> Iterable[list[Match]]:
    """Group windows by policy: a call packs the arguments of a policy once."""
    found: dict[Policy, list[Match]] = {}
    for match in matches:
        found.setdefault(match.policy, []).append(match)
    return found.values()


def _replies(chunks: list[list[Match]], rules: RulesFor) -> Iterator[tuple[list[Match], Reply]]:
    unread: list[list[Match]] = []
    for chunk, reply in _ask(chunks, rules):
        if not isinstance(reply, StoreError):
            yield chunk, reply
        elif reply.outage:
            raise reply
        elif len(chunk) > 1:
            # A key that is not a window made the call fail. Read one by one, so that only it fails.
            unread += [[match] for match in chunk]
    if unread:
        yield from _replies(unread, rules)


def _ask(chunks: list[list[Match]], rules: RulesFor) -> Iterator[tuple[list[Match], Any]]:
    replies = store().run_many([_peek(chunk, rules) for chunk in chunks])
    return zip(chunks, replies, strict=True)


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
    # The Redis user may lack the right to run the command.
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
        return decoding.DECODERS[algorithm](value, match.policy, now)
    except (LookupError, ValueError) as error:
        raise StoreError("damaged value: reset this window", outage=False) from error
