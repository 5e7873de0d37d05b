"""What Redis says of windows: hits, the answer to a request, expiry, bytes.

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
from ..policies import MAX_LIMIT, Policy
from ..stores.errors import store_error
from ..stores.protocol import Evaluate, Reply, WindowReply, WindowRule
from .search import Match

# Windows that one script call looks at: it should not hold up requests.
_A_CALL = 50

RulesFor: TypeAlias = "Callable[[Policy], tuple[WindowRule, ...]]"


@dataclass(frozen=True, slots=True)
class Look:
    """A window as a request would find it. Times in seconds."""

    hits: int
    blocked: bool
    """By the limit of the match: a request of cost 1 would be refused."""
    retry_after: float | None
    reset_after: float


@contextmanager
def only_store_errors() -> Iterator[None]:
    """Turns what redis-py raises into StoreError."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise store_error(error) from error


def client() -> Any:
    """A redis-py client of the server that holds the windows.

    Its time-outs are the alias's own, perhaps none: ask it nothing before the store has
    answered, whose patience is bounded.
    """
    return store().client()


def store() -> Any:
    """The store of this process's limiter, which can do more than a limiter asks."""
    return get_limiter().store


def key_count() -> int:
    """About how many keys there are, those of other applications included."""
    with only_store_errors():
        server = client()
        if isinstance(server, RedisCluster):
            return int(server.dbsize(target_nodes=RedisCluster.PRIMARIES))
        return int(server.dbsize())


def looks(matches: list[Match]) -> list[Look | None]:
    """Return each window as it is now; None for a key that another application wrote."""
    return [None if row is None else _look(*row) for row in _rows(matches, _look_rules)]


def counts(matches: list[Match]) -> list[int | None]:
    """Return the hits of each window alone, which is half the work."""
    rows = _rows(matches, _count_rules)
    return [None if row is None else MAX_LIMIT - row[0].remaining for row in rows]


def _look(counted: WindowReply, asked: WindowReply) -> Look:
    return Look(
        hits=MAX_LIMIT - counted.remaining,
        blocked=not asked.admits,
        retry_after=None if asked.retry < 0 else asked.retry / 1_000_000,
        reset_after=counted.reset / 1_000_000,
    )


@lru_cache(maxsize=1024)
def _count_rules(policy: Policy) -> tuple[WindowRule, ...]:
    """Ask how far the hits are from a very high limit: a request that costs nothing."""
    return (WindowRule(replace(policy, limit=MAX_LIMIT), 0),)


@lru_cache(maxsize=1024)
def _look_rules(policy: Policy) -> tuple[WindowRule, ...]:
    """Ask for all the hits, and what a request of cost 1 would be answered."""
    return *_count_rules(policy), WindowRule(policy, 1)


def _rows(matches: list[Match], rules: RulesFor) -> list[list[WindowReply] | None]:
    """Return what the script replies to each window's rules; None for what is no window."""
    keys = tuple(match.key for match in matches)
    chunks = [
        alike[at : at + _A_CALL]
        for group in store().groups(keys) or [range(len(keys))]
        for alike in _by_policy(matches[i] for i in group)
        for at in range(0, len(alike), _A_CALL)
    ]
    found: dict[str, list[WindowReply]] = {}
    for chunk, reply in _replies(chunks, rules):
        windows = [WindowReply(*fields) for fields in reply.windows()]
        each = len(windows) // len(chunk)
        for i, match in enumerate(chunk):
            found[match.key] = windows[each * i : each * (i + 1)]
    return [found.get(key) for key in keys]


def _by_policy(matches: Iterable[Match]) -> Iterable[list[Match]]:
    """Windows that are asked the same: what the call says of them is packed once."""
    found: dict[Policy, list[Match]] = {}
    for match in matches:
        found.setdefault(match.policy, []).append(match)
    return found.values()


def _replies(chunks: list[list[Match]], rules: RulesFor) -> Iterator[tuple[list[Match], Reply]]:
    try:
        replies = store().run_many([_peek(chunk, rules) for chunk in chunks])
        yield from zip(chunks, replies, strict=True)
        return
    except StoreError as error:
        if error.outage:
            raise
    # One key that is no window has spoiled the call: it shall spoil only itself.
    for match in (match for chunk in chunks for match in chunk):
        try:
            yield [match], store().run_many([_peek([match], rules)])[0]
        except StoreError as error:
            if error.outage:
                raise


def _peek(matches: list[Match], rules: RulesFor) -> Evaluate:
    asked = [(match.key, rule) for match in matches for rule in rules(match.policy)]
    return Evaluate(tuple(key for key, _ in asked), tuple(rule for _, rule in asked), False)


def sizes(keys: list[str]) -> list[tuple[int, int | None]]:
    """PTTL in milliseconds (-2: no key, -1: no expiry) and bytes of each key."""
    if not keys:
        return []
    with only_store_errors():
        pipeline = client().pipeline(transaction=False)
        for key in keys:
            pipeline.pttl(key)
            pipeline.memory_usage(key)
        replies = pipeline.execute(raise_on_error=False)
    return [
        (_known(pttl, -1), _known(size, None))
        for pttl, size in zip(replies[::2], replies[1::2], strict=True)
    ]


def _known(reply: Any, otherwise: Any) -> Any:
    # A server's user may lack the right to ask.
    return otherwise if isinstance(reply, ResponseError) else reply


def hits(match: Match) -> list[tuple[float, int]]:
    """The hits that count, as (age in seconds, count), the oldest first."""
    algorithm = match.policy.algorithm
    with only_store_errors():
        if algorithm == "log":
            value = client().zrange(match.key, 0, -1, withscores=True)
        elif algorithm == "buckets":
            value = client().hgetall(match.key)
        else:
            value = client().get(match.key) or b""
    # The clock after the value, so that no hit is younger than now.
    now = store().run_many([_peek([match], _count_rules)])[0].clock
    try:
        return decoding.DECODERS[algorithm](value, match.policy, now)
    except (LookupError, ValueError) as error:
        raise StoreError("damaged value: reset this window", outage=False) from error
