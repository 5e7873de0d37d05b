"""List and describe live windows in Redis: how much is left, and which windows block.

For the command and the admin, not for requests. Keys are found with SCAN, never with KEYS, and one
round trip reads many windows. All functions raise StoreError if Redis is down.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ..core.keys import parse_key
from ..guard import override_snapshot
from ..guard.current_limiter import get_limiter
from ..policies import PENALTY
from . import reader
from .reader import Reading
from .search import ALL, Filters, Match, Search

KEYS_A_PAGE = 1_000
"""The COUNT of a SCAN over all keys."""
# Stands for the reading of a value that cannot be decoded.
_DAMAGED = Reading(hits=0, blocked=False, retry_after=0.0, reset_after=0.0)

Progress: TypeAlias = "Callable[[int, int], None]"
"""A function that takes the number of keys seen so far, and about how many the server has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyState:
    """The current state of one window."""

    key: str
    axis: str
    identifier: str
    scope: str
    algorithm: str
    window: float
    """Seconds."""
    profile: str | None
    """The configured profile that uses this window; None if no profile does."""
    limit: int | None
    hits: int
    remaining: int | None
    use: float | None
    """Hits divided by the limit, from 0 to 1."""
    blocked: bool
    """Whether a request of cost 1 would be refused now."""
    observed: bool
    """Whether the profile only observes, so that requests over its limit are admitted."""
    override: str = ""
    """The action of the override in force: limit, exempt, observe or block; empty for none."""
    override_ends: float | None = None
    """Seconds until the override ends; None if it does not end."""
    retry_after: float | None
    """Seconds until a request of cost 1 is admitted; 0.0 for now, None for never."""
    reset_after: float
    """Seconds until the oldest hit leaves the window."""
    ttl: float | None
    """Seconds until the key expires; None if it does not expire."""
    bytes: int | None
    """The memory of the key in Redis; None if the server does not return it."""
    leased: int | None = None
    """At most how many of the hits are leased by processes and not used yet; None if the profile
    has no lease."""
    in_flight_for: float | None = None
    """Seconds since the oldest request in flight began; None for a rate."""

    @property
    def waits_for_slot(self) -> bool:
        """Whether a request is admitted as soon as one in flight ends."""
        return self.blocked and self.in_flight_for is not None and self.retry_after == 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of windows."""

    states: list[KeyState]
    cursor: str
    """The cursor of the next page; "0" if this is the last one."""
    seen: int
    """About how many keys were examined."""


def scan(filters: Filters = ALL, *, cursor: str = "0", count: int = 100) -> Page:
    """Return one page of the windows that match the filters.

    A page may hold fewer or more windows than `count`. A complete identifier is looked up
    directly in the windows of the configured profiles. An identifier that ends in "*" is
    searched for among all keys.
    """
    search = Search(filters)
    cursor, keys, seen = _next_keys(search, cursor, count)
    states = _filtered_states(_matches(keys, search), filters.blocked)
    return Page(states=states, cursor=cursor, seen=seen)


def walk(filters: Filters = ALL, *, progress: Progress | None = None) -> Iterator[KeyState]:
    """Yield all windows, page by page. SCAN may return a window twice."""
    search = Search(filters)
    for matches in _pages(search, progress):
        yield from _filtered_states(matches, filters.blocked)


def keys_top(n: int, filters: Filters = ALL, *, progress: Progress | None = None) -> list[KeyState]:
    """Return the n most used windows. Memory is bounded by n and one page."""
    search = Search(filters)
    heap: list[tuple[float, str]] = []
    kept: set[str] = set()
    for matches in _pages(search, progress):
        for match, count in _with_counts(matches):
            entry = _use(count, match.limit) or 0.0, match.key
            if len(heap) == n and entry <= heap[0]:
                continue
            if match.key in kept or (filters.blocked and not _is_blocked(match, count)):
                continue
            kept.add(match.key)
            heapq.heappush(heap, entry)
            if len(heap) > n:
                kept.discard(heapq.heappop(heap)[1])
    best = [key for _, key in sorted(heap, reverse=True)]
    return _states(_matches(best, search))


def describe(key: str) -> KeyState | None:
    """Return the window of a key; None if it is empty or not a window."""
    states = _states(_matches([key], Search()))
    return states[0] if states else None


def describe_all(key: str) -> list[KeyState]:
    """Return the window of a key, and the windows of its profile's other policies.

    Damaged windows have 0 hits. Return an empty list if the window of the key is empty.
    """
    search = Search()
    for match in _matches([key], search):
        states = [
            _state(match, reading or _DAMAGED, pttl, size)
            for match, reading, pttl, size in _read(_matches(search.beside(match), search))
            if pttl != -2
        ]
        return states if states and states[0].key == key else []
    return []


def damaged(filters: Filters = ALL, *, keys: Iterable[str] | None = None) -> list[KeyState]:
    """Return the windows whose values cannot be decoded, with 0 hits.

    Until such a window is reset, the fallback decides its checks.
    """
    search = Search(filters)
    pages = _pages(search, None) if keys is None else [_matches(keys, search)]
    return [
        _state(match, _DAMAGED, pttl, size)
        for matches in pages
        for match, reading, pttl, size in _read(matches)
        if reading is None
    ]


def hits(key: str) -> list[tuple[float, int]]:
    """Return the hits in the window of a key as (age in seconds, count), the oldest first."""
    for match in _matches([key], Search()):
        return reader.hits(match)
    return []


def reset_key(key: str) -> bool:
    """Delete a window, also from the shield of this process. Return whether it existed."""
    limiter = get_limiter()
    return parse_key(key, limiter.prefix) is not None and limiter.reset([key]) > 0


def _next_keys(search: Search, cursor: str, count: int) -> tuple[str, list[str], int]:
    """Return the cursor of the next page, the keys of this page, and about how many were examined.

    The server leaves out keys that do not match, so a page may have none.
    """
    limiter = get_limiter()
    exact = search.exact_keys(limiter)
    if exact is not None:
        return "0", exact, len(exact)
    cursor, keys = reader.store().scan(cursor, search.pattern(limiter.prefix), count)
    return cursor, keys, len(keys) if cursor == "0" else max(count, len(keys))


def _pages(search: Search, progress: Progress | None) -> Iterator[list[Match]]:
    """Yield the matches of each page of keys."""
    cursor, seen, total = "0", 0, None
    while True:
        cursor, keys, examined = _next_keys(search, cursor, KEYS_A_PAGE)
        seen += examined
        yield _matches(keys, search)
        if progress is not None:
            total = reader.key_count() if total is None else total
            progress(seen, total)
        if cursor == "0":
            return


def _matches(keys: Iterable[str], search: Search) -> list[Match]:
    prefix = get_limiter().prefix
    found = (search.match(key, prefix) for key in dict.fromkeys(keys))
    return [match for match in found if match is not None]


def _with_counts(matches: list[Match]) -> Iterator[tuple[Match, int]]:
    """Yield each match with its hits, without keys that are not windows."""
    for match, count in zip(matches, reader.counts(matches), strict=True):
        if count is not None:
            yield match, count


def _filtered_states(matches: list[Match], blocked: bool) -> list[KeyState]:
    """Return the states of matches. With `blocked`, return only windows that block."""
    if blocked:
        # Counting hits is half the work of reading a state.
        matches = [match for match, count in _with_counts(matches) if _is_blocked(match, count)]
    return _states(matches)


def _is_blocked(match: Match, count: int) -> bool:
    if match.limit is None or match.observed:
        return match.refused
    # A penalty blocks when there are more refusals than it tolerates.
    over = count > match.limit if match.parts.algorithm == PENALTY else count >= match.limit
    return over or match.refused


def _read(matches: list[Match]) -> Iterator[tuple[Match, Reading | None, int, int | None]]:
    """Yield each match with its reading, its PTTL and its size."""
    readings = reader.read(matches)
    sizes = reader.sizes([match.key for match in matches])
    for match, reading, (pttl, size) in zip(matches, readings, sizes, strict=True):
        yield match, reading, pttl, size


def _states(matches: list[Match]) -> list[KeyState]:
    return [
        _state(match, reading, pttl, size)
        for match, reading, pttl, size in _read(matches)
        if reading is not None and pttl != -2
    ]


def _state(match: Match, reading: Reading, pttl: int, size: int | None) -> KeyState:
    parts, limit, override = match.parts, match.limit, match.override
    blocked = match.refused or (limit is not None and reading.blocked and not match.observed)
    ends = None
    if override is not None and override.until is not None:
        ends = max(0.0, override.until - override_snapshot.clock())
    retry_after = ends if match.refused else reading.retry_after
    return KeyState(
        key=match.key,
        axis=parts.axis,
        identifier=parts.identifier,
        scope=parts.scope,
        algorithm=parts.algorithm,
        window=parts.window,
        profile=match.profile,
        limit=limit,
        hits=reading.hits,
        remaining=None if limit is None else max(0, limit - reading.hits),
        use=_use(reading.hits, limit),
        blocked=blocked,
        observed=match.observed,
        override="" if override is None else override.action,
        override_ends=ends,
        retry_after=retry_after if blocked else 0.0,
        reset_after=reading.reset_after,
        leased=reading.leased,
        in_flight_for=parts.window - reading.reset_after if match.policy.inflight else None,
        ttl=None if pttl < 0 else pttl / 1_000,
        bytes=size,
    )


def _use(hits: int, limit: int | None) -> float | None:
    if limit is None:
        return None
    return min(1.0, hits / limit) if limit else 1.0
