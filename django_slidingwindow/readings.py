"""What Redis says of windows: hits, the answer to a request, expiry, bytes.

Nothing is written. Many windows are read in one round trip.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from redis.cluster import RedisCluster
from redis.exceptions import RedisError, ResponseError

from . import decoding
from .exceptions import StoreError
from .limits import get_limiter
from .matching import Match
from .policies import MAX_LIMIT, Policy
from .stores.base import Evaluate, Line
from .stores.errors import store_error

# Windows that one script call looks at: it should not hold up requests.
_A_CALL = 50
# Integers that a look at one window replies.
_ROW = 8


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
    """Each window as it is now; None for a key that another application wrote."""
    keys = tuple(match.key for match in matches)
    groups = store().groups(keys) or [range(len(keys))]
    chunks = [
        [matches[i] for i in group[at : at + _A_CALL]]
        for group in groups
        for at in range(0, len(group), _A_CALL)
    ]
    found: dict[str, Look] = {}
    for chunk, reply in _replies(chunks):
        for i, match in enumerate(chunk):
            found[match.key] = _look(reply[2 + _ROW * i : 2 + _ROW * (i + 1)])
    return [found.get(key) for key in keys]


def _replies(chunks: list[list[Match]]) -> Iterator[tuple[list[Match], list[int]]]:
    try:
        replies = store().run_many([_peek(chunk) for chunk in chunks])
        yield from zip(chunks, replies, strict=True)
        return
    except StoreError as error:
        if error.outage:
            raise
    # One key that is no window has spoiled the call: it shall spoil only itself.
    for match in (match for chunk in chunks for match in chunk):
        try:
            yield [match], store().run_many([_peek([match])])[0]
        except StoreError as error:
            if error.outage:
                raise


def _look(row: list[int]) -> Look:
    _, room, _, reset, admits, _, retry, _ = row
    return Look(
        hits=MAX_LIMIT - room,
        blocked=not admits,
        retry_after=None if retry < 0 else retry / 1_000_000,
        reset_after=reset / 1_000_000,
    )


def _peek(matches: list[Match]) -> Evaluate:
    keys = tuple(match.key for match in matches for _ in range(2))
    lines = tuple(line for match in matches for line in _lines(match.policy))
    return Evaluate(keys, lines, False)


@lru_cache(maxsize=1024)
def _lines(policy: Policy) -> tuple[Line, Line]:
    """Two for a window: all the hits, and what a request of cost 1 would be told."""
    return Line(replace(policy, limit=MAX_LIMIT), 0), Line(policy, 1)


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
    now = store().run_many([_peek([match])])[0][1]
    return decoding.DECODERS[algorithm](value, match.policy, now)
