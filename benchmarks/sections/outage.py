"""The time of a check while Redis is away, compared with the time while Redis answers."""

from __future__ import annotations

import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.test import override_settings

from django_slidingwindow import limits
from django_slidingwindow.core.breaker import OPEN
from django_slidingwindow.guard.current_limiter import limiters_from
from django_slidingwindow.guard.limiter_factory import make_limiter

from ..bench import Bench
from ..contenders.base import BIG, BY_DECORATOR, BY_MIDDLEWARE, CHECK
from ..contenders.ours import MIDDLEWARE
from ..measure import MICRO, middle
from ..requests import addresses, environ
from ..results import Row
from ..server import running
from .asynchronous import requester
from .views import request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_slidingwindow.core.limiter import Limiter

NAME = "outage"
TITLE = "Outage"
BARE = "bare"
USUAL, AWAY = "usual", "away"
CLIENTS = addresses(20)

Measure = Callable[[int], float]
"""Make this number of calls, and return the median of their times."""


def run(bench: Bench) -> list[Row]:
    limiters = {USUAL: make_limiter(), AWAY: _behind_an_open_breaker()}
    loop = asyncio.new_event_loop()
    try:
        return _case(bench, "sync", _sync(), limiters) + _case(
            bench, "async", _async(loop), limiters
        )
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _case(
    bench: Bench, case: str, ways: dict[str, Measure], limiters: dict[str, Limiter]
) -> list[Row]:
    size = bench.size
    calls = max(2, size.calls // 4)
    took: dict[tuple[str, str], list[float]] = {
        (state, way): [] for state in limiters for way in ways
    }
    bench.server.flush()
    bench.progress.begin(f"{TITLE}: {case}", size.outage_rounds)
    # Elapsed time, because requests wait for Redis. So Redis needs its own core, as over a network.
    with bench.server.own_core():
        for _ in range(size.outage_rounds):
            for state, limiter in limiters.items():
                with limiters_from(lambda limiter=limiter: limiter):  # type: ignore[misc]
                    for way, measure in ways.items():
                        measure(2)
                        took[state, way].append(measure(calls))
            bench.progress.step()
    assert limiters[AWAY].breaker.state == OPEN
    rows = []
    for way in (CHECK, BY_DECORATOR, BY_MIDDLEWARE):
        usual, away = (
            [
                seconds if way == CHECK else seconds - bare
                for seconds, bare in zip(took[state, way], took[state, BARE], strict=True)
            ]
            for state in (USUAL, AWAY)
        )
        _, low, high = middle([a / b for a, b in zip(away, usual, strict=True)])
        # The ratio of the medians, because the added time is a small difference of large times.
        values = {"ratio": middle(away)[0] / middle(usual)[0], "ratio_low": low}
        values |= {"ratio_high": high, "usual_us": middle(usual)[0] * MICRO}
        values["away_us"] = middle(away)[0] * MICRO
        rows.append(Row(NAME, case, way, values))
    return rows


def _behind_an_open_breaker() -> Limiter:
    """Return a limiter whose Redis has gone away."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as server:
        caches = {**settings.CACHES, AWAY: {**settings.CACHES["default"], "LOCATION": server.url}}
        ours = {**settings.SLIDING_WINDOW, "CACHE": AWAY}
        with override_settings(CACHES=caches, SLIDING_WINDOW=ours):
            limiter = make_limiter()
            with limiters_from(lambda: limiter), _unlogged():
                limits.check(f"{BIG.name}_compact", "somebody")
                server.client.shutdown(nosave=True)
                while limiter.breaker.state != OPEN:
                    limits.check(f"{BIG.name}_compact", "somebody")
    return limiter


@contextmanager
def _unlogged() -> Iterator[None]:
    """Do not log that Redis is away, which is intended here."""
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _sync() -> dict[str, Measure]:
    def timed(ask: Callable[[str], object]) -> Measure:
        clients = cycle(CLIENTS)

        def measure(times: int) -> float:
            took = []
            for _ in range(times):
                client = next(clients)
                start = time.perf_counter()
                ask(client)
                took.append(time.perf_counter() - start)
            return statistics.median(took)

        return measure

    def asks(handler: WSGIHandler, path: str) -> Measure:
        return timed(lambda client: request(handler, environ(path, client)))

    handler = WSGIHandler()
    with override_settings(MIDDLEWARE=[MIDDLEWARE]):
        limiting = WSGIHandler()
    return {
        CHECK: timed(lambda client: limits.check(f"{BIG.name}_compact", client)),
        BY_DECORATOR: asks(handler, f"/ours-decorator/{BIG.name}"),
        BY_MIDDLEWARE: asks(limiting, f"/ours-middleware/{BIG.name}"),
        BARE: asks(handler, f"/bare/{BIG.name}"),
    }


def _async(loop: asyncio.AbstractEventLoop) -> dict[str, Measure]:
    def timed(ask: Callable[[str], Awaitable[Any]]) -> Measure:
        clients = cycle(CLIENTS)

        async def measure(times: int) -> float:
            took = []
            for _ in range(times):
                client = next(clients)
                start = time.perf_counter()
                await ask(client)
                took.append(time.perf_counter() - start)
            return statistics.median(took)

        return lambda times: loop.run_until_complete(measure(times))

    handler = ASGIHandler()
    with override_settings(MIDDLEWARE=[MIDDLEWARE]):
        limiting = ASGIHandler()
    bare = f"/async/bare-async/{BIG.name}"
    return {
        CHECK: timed(lambda client: limits.acheck(f"{BIG.name}_compact", client)),
        BY_DECORATOR: timed(requester(handler, f"/async/ours-async/{BIG.name}")),
        # A rule in the settings matches this path. The other handler has no middleware.
        BY_MIDDLEWARE: timed(requester(limiting, bare)),
        BARE: timed(requester(handler, bare)),
    }
