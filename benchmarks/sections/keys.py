"""Many keys: their memory, the time of a check among them, and how they expire.

Checks fill all keys: with the script and the arguments of `limits.check`, many in one round trip.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from django_slidingwindow import limits
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.stores.protocol import Evaluate

from ..bench import Bench
from ..measure import MICRO, percentiles
from ..results import Row

NAME = "keys"
TITLE = "Many keys"
FILLED, CHECKED, EXPIRED = "filled by checks", "a check among them", "expiry among them"
# A window of a day, so that none of these keys expires during the benchmark.
STAYING = Profile(name="staying", axis="tenant", policies=(Policy(limit=100, window=86_400),))
# Checks in one round trip, and single checks between two round trips.
_BATCH, _BETWEEN = 1_000, 20
# Seconds between two rounds of checks while keys expire.
_PAUSE = 0.05

RandomName = Callable[[], str]
"""Return a random identifier of a filled key."""


def run(bench: Bench) -> list[Row]:
    size = bench.size
    points = sorted({max(1, size.filled_keys // part) for part in (100, 10, 1)})
    bench.progress.begin(TITLE, _batches(0, size.filled_keys) + len(points) + 1)
    bench.server.flush()
    limits.check(STAYING, "warm")
    rows, filled, empty = [], 0, bench.server.used_memory()
    with bench.server.own_core():
        for point in points:
            values = _fill(bench, STAYING, filled, point)
            used = bench.server.used_memory() - empty
            values |= {"MB": used / 1e6, "bytes each": used / point}
            rows.append(Row(NAME, FILLED, f"ours, {point:,} keys", values))
            filled = point
            rows.append(Row(NAME, CHECKED, f"ours, {point:,} keys", _check(bench, point)))
            bench.progress.step(CHECKED)
        rows.append(_expire(bench, filled))
        bench.progress.step(EXPIRED)
    return rows


def _batches(first: int, last: int) -> int:
    return -(-(last - first) // _BATCH)


def _fill(bench: Bench, profile: Profile, first: int, last: int) -> dict[str, float]:
    """Check the identifiers from `first` up to, but not including, `last` once each."""
    served, start = bench.server.cpu(), time.perf_counter()
    for _ in _filling(profile, first, last):
        bench.progress.step(FILLED)
    took = time.perf_counter() - start
    return {
        "checks a second": (last - first) / took,
        "server µs": (bench.server.cpu() - served) / (last - first) * MICRO,
    }


def _filling(profile: Profile, first: int, last: int) -> Iterator[None]:
    """Check identifiers once each, and yield after each round trip."""
    limiter = limits.get_limiter()
    template = limiter.template(profile, profile.policies, 1)
    for begin in range(first, last, _BATCH):
        names = [_name(number) for number in range(begin, min(begin + _BATCH, last))]
        calls = [Evaluate(template.windows(name).keys, template.rules, True) for name in names]
        assert all(reply.admitted for reply in limiter.store.run_many(calls))
        yield


def _name(number: int) -> str:
    return f"client{number:08}"


def _among(count: int) -> RandomName:
    order = random.Random(7)
    return lambda: _name(order.randrange(count))


def _check(bench: Bench, count: int) -> dict[str, float]:
    """Measure single checks of random identifiers."""
    order, calls = _among(count), bench.size.rounds * bench.size.calls
    _timed(order, max(1, calls // 10))
    served, used = bench.server.cpu(), time.process_time()
    took = _timed(order, calls)
    return {
        **_percent(took),
        "client µs": (time.process_time() - used) / calls * MICRO,
        "server µs": (bench.server.cpu() - served) / calls * MICRO,
    }


def _timed(order: RandomName, calls: int) -> list[float]:
    took = []
    for _ in range(calls):
        name = order()
        start = time.perf_counter()
        limits.check(STAYING, name)
        took.append(time.perf_counter() - start)
    return took


def _percent(took: list[float]) -> dict[str, float]:
    return {f"{part} %, µs": value * MICRO for part, value in percentiles(took).items()}


def _expire(bench: Bench, filled: int) -> Row:
    """Add keys with a short window, and let all of them expire beside those that stay."""
    size, server, order = bench.size, bench.server, _among(filled)
    policy = Policy(limit=100, window=size.expiring_window)
    passing = Profile(name="passing", axis="tenant", policies=(policy,))
    before, used = server.client.dbsize(), server.used_memory()
    took: list[float] = []
    for _ in _filling(passing, 0, size.expiring_keys):
        took += _timed(order, _BETWEEN)
    # The last key lives for its window and less than a second longer.
    due = time.perf_counter() + size.expiring_window + 1
    left: dict[str, float] = {}
    for after in size.expiry_looks:
        while time.perf_counter() < due + after:
            took += _timed(order, _BETWEEN)
            time.sleep(_PAUSE)
        left[f"left after {after:g} s"] = server.client.dbsize() - before
    return Row(
        NAME,
        EXPIRED,
        f"ours, {size.expiring_keys:,} keys that expire",
        {
            **left,
            "MB more than before": max(0, server.used_memory() - used) / 1e6,
            **_percent(took),
        },
    )
