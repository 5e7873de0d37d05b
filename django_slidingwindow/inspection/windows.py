"""Live windows in Redis: who has how much left, and who is kept out.

For people, not for requests. Keys are found by SCAN, never by KEYS, and looked at
many in a round trip. Raises StoreError when Redis is away.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ..core.keys import parse_key
from ..guard.current_limiter import get_limiter
from . import reader as readings
from .reader import Look
from .search import ALL, Filters, Match, Search

KEYS_A_PAGE = 1_000
"""Asked of SCAN at a time by whoever looks at all of them."""

Progress: TypeAlias = "Callable[[int, int], None]"
"""Told the keys seen so far, and about how many there are in the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyState:
    """One window as it is now."""

    key: str
    axis: str
    identifier: str
    scope: str
    algorithm: str
    window: float
    """Seconds."""
    profile: str | None
    """The configured profile that counts in this window; None if there is none."""
    limit: int | None
    hits: int
    remaining: int | None
    use: float | None
    """Hits by limit, 0 to 1."""
    blocked: bool
    """Whether a request of cost 1 would be refused now."""
    observed: bool
    """The profile only observes: whoever is over its limit is let in."""
    retry_after: float | None
    """Seconds until it would pass; 0.0 when it would now, None for never."""
    reset_after: float
    """Seconds until the oldest counted hit leaves."""
    ttl: float | None
    """Seconds until Redis forgets the key; None if it never does."""
    bytes: int | None
    """What the key takes in Redis; None where the server does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some windows, and where to go on."""

    states: list[KeyState]
    cursor: str
    """For the next page; "0" when there is none."""
    seen: int
    """Keys looked at."""


def scan(filters: Filters = ALL, *, cursor: str = "0", count: int = 100) -> Page:
    """A page of windows, or of those that block; it may hold fewer or more than `count`.

    A whole identifier is looked up in the windows of the configured profiles. One
    that ends in "*" is searched for among all keys.
    """
    search = Search(filters)
    cursor, keys = _find(search, cursor, count)
    return Page(
        states=_found(_matches(keys, search), filters.blocked), cursor=cursor, seen=len(keys)
    )


def walk(filters: Filters = ALL, *, progress: Progress | None = None) -> Iterator[KeyState]:
    """All windows, page by page; a window may come twice while keys are being moved."""
    search = Search(filters)
    for matches in _pages(search, progress):
        yield from _found(matches, filters.blocked)


def keys_top(n: int, filters: Filters = ALL, *, progress: Progress | None = None) -> list[KeyState]:
    """The n windows that are used most, in memory for n and a page, however many there are."""
    search = Search(filters)
    heap: list[tuple[float, str]] = []
    kept: set[str] = set()
    for matches in _pages(search, progress):
        for match, count in _counted(matches):
            found = _use(count, match.limit) or 0.0, match.key
            if len(heap) == n and found <= heap[0]:
                continue
            if match.key in kept or (filters.blocked and not _is_full(match, count)):
                continue
            kept.add(match.key)
            heapq.heappush(heap, found)
            if len(heap) > n:
                kept.discard(heapq.heappop(heap)[1])
    best = [key for _, key in sorted(heap, reverse=True)]
    return _states(_matches(best, search))


def describe(key: str) -> KeyState | None:
    """The window of a key; None if it is empty or none of ours."""
    states = _states(_matches([key], Search()))
    return states[0] if states else None


def describe_all(key: str) -> list[KeyState]:
    """The window of a key first, then those of the profile's other policies; [] if it is empty."""
    search = Search()
    for match in _matches([key], search):
        states = _states(_matches(search.beside(match), search))
        return states if states and states[0].key == key else []
    return []


def damaged(filters: Filters = ALL, *, keys: Iterable[str] | None = None) -> list[KeyState]:
    """Return the windows whose values cannot be read, as if they were empty.

    Checks of such a window are decided by the fallback until it is reset.
    """
    search = Search(filters)
    pages = _pages(search, None) if keys is None else [_matches(keys, search)]
    empty = Look(hits=0, blocked=False, retry_after=0.0, reset_after=0.0)
    return [
        _state(match, empty, *size)
        for matches in pages
        for match, look, size in zip(
            matches,
            readings.looks(matches),
            readings.sizes([match.key for match in matches]),
            strict=True,
        )
        if look is None
    ]


def hits(key: str) -> list[tuple[float, int]]:
    """The hits that count in a window, as (age in seconds, count), the oldest first."""
    for match in _matches([key], Search()):
        return readings.hits(match)
    return []


def reset_key(key: str) -> bool:
    """Forgets a window, in this process's memory as well; whether there was one."""
    limiter = get_limiter()
    return parse_key(key, limiter.prefix) is not None and limiter.reset([key]) > 0


def _find(search: Search, cursor: str, count: int) -> tuple[str, list[str]]:
    limiter = get_limiter()
    exact = search.exact_keys(limiter)
    if exact is not None:
        return "0", exact
    found: tuple[str, list[str]] = readings.store().scan(
        cursor, search.pattern(limiter.prefix), count
    )
    return found


def _pages(search: Search, progress: Progress | None) -> Iterator[list[Match]]:
    cursor, seen, total = "0", 0, None
    while True:
        cursor, keys = _find(search, cursor, KEYS_A_PAGE)
        seen += len(keys)
        yield _matches(keys, search)
        if progress is not None:
            total = readings.key_count() if total is None else total
            progress(seen, total)
        if cursor == "0":
            return


def _matches(keys: Iterable[str], search: Search) -> list[Match]:
    prefix = get_limiter().prefix
    found = (search.match(key, prefix) for key in dict.fromkeys(keys))
    return [match for match in found if match is not None]


def _counted(matches: list[Match]) -> Iterator[tuple[Match, int]]:
    for match, count in zip(matches, readings.counts(matches), strict=True):
        if count is not None:
            yield match, count


def _found(matches: list[Match], blocked: bool) -> list[KeyState]:
    """The windows; if `blocked`, those alone that block, at half the work for the others."""
    if blocked:
        matches = [match for match, count in _counted(matches) if _is_full(match, count)]
    return _states(matches)


def _is_full(match: Match, count: int) -> bool:
    return match.limit is not None and count >= match.limit and not match.observed


def _states(matches: list[Match]) -> list[KeyState]:
    looks = readings.looks(matches)
    sizes = readings.sizes([match.key for match in matches])
    return [
        _state(match, look, pttl, size)
        for match, look, (pttl, size) in zip(matches, looks, sizes, strict=True)
        if look is not None and pttl != -2
    ]


def _state(match: Match, look: Look, pttl: int, size: int | None) -> KeyState:
    parts, limit = match.parts, match.limit
    blocked = limit is not None and look.blocked and not match.observed
    return KeyState(
        key=match.key,
        axis=parts.axis,
        identifier=parts.identifier,
        scope=parts.scope,
        algorithm=parts.algorithm,
        window=parts.window,
        profile=match.profile,
        limit=limit,
        hits=look.hits,
        remaining=None if limit is None else max(0, limit - look.hits),
        use=_use(look.hits, limit),
        blocked=blocked,
        observed=match.observed,
        retry_after=look.retry_after if blocked else 0.0,
        reset_after=look.reset_after,
        ttl=None if pttl < 0 else pttl / 1_000,
        bytes=size,
    )


def _use(hits: int, limit: int | None) -> float | None:
    if limit is None:
        return None
    return min(1.0, hits / limit) if limit else 1.0
