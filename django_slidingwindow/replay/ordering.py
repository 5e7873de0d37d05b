"""Put the requests of several logs in the order of their stamps, with bounded memory.

Servers write a line when a request ends, and some stamp it with the time when the request began. So
lines are a little out of order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from operator import itemgetter

from .readers import Entry, Tally

BUFFER = 50_000
"""How many lines too late a line may stand in a log and still be sorted."""

_stamp = itemgetter(0)


def in_order(
    logs: Sequence[Iterable[Entry]], tally: Tally, *, buffer: int = BUFFER
) -> Iterator[Entry]:
    """Yield the requests of all logs by their stamps, which never decrease.

    A request that stands more than `buffer` lines too late gets the stamp of the request before
    it, and is counted in `tally.late`.
    """
    last = 0
    for stamp, identifier in merge(*(_sorted(log, buffer) for log in logs), key=_stamp):
        if stamp < last:
            tally.late += 1
            stamp = last
        last = stamp
        yield stamp, identifier


def _sorted(log: Iterable[Entry], buffer: int) -> Iterator[Entry]:
    """Sort twice the buffer and release the first half, so that a line can move by `buffer`."""
    held: list[Entry] = []
    for entry in log:
        held.append(entry)
        if len(held) >= 2 * buffer:
            held.sort(key=_stamp)
            yield from held[:buffer]
            del held[:buffer]
    held.sort(key=_stamp)
    yield from held
