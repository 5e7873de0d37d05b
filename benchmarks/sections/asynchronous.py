"""100 tasks in one event loop: checks, and requests through Django's ASGI handler."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from django.core.handlers.asgi import ASGIHandler

from ..bench import Bench
from ..contenders.base import ALLOWED, FLOOR, contenders, view_contenders
from ..measure import Probe, measure, middle, numbers
from ..requests import addresses, scope
from ..results import Row

NAME = "asynchronous"
TITLE = "Async, 100 at once"
CHECKS, REQUESTS = "checks", "requests"


def run(bench: Bench) -> list[Row]:
    loop = asyncio.new_event_loop()
    try:
        return _run(bench, loop)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _run(bench: Bench, loop: asyncio.AbstractEventLoop) -> list[Row]:
    clients = [f"client{number}" for number in range(bench.size.keys)]
    checks = [
        _probe(bench, loop, contender.name, contender.make_async(ALLOWED), clients)
        for contender in contenders()
        if contender.make_async is not None
    ]
    handler = ASGIHandler()
    views = [
        _probe(
            bench,
            loop,
            contender.name,
            requester(handler, f"/async/{contender.slug}/{ALLOWED.name}"),
            addresses(bench.size.keys),
        )
        for contender in view_contenders()
        if contender.is_async
    ]
    return _measured(bench, CHECKS, checks) + _measured(bench, REQUESTS, views)


def _probe(
    bench: Bench,
    loop: asyncio.AbstractEventLoop,
    name: str,
    check: Callable[[str], Awaitable[Any]],
    clients: list[str],
) -> Probe:
    turn = itertools.cycle(clients)

    async def worker(times: int) -> None:
        for _ in range(times):
            await check(next(turn))

    async def batch(times: int) -> None:
        at_once = bench.size.concurrent
        await asyncio.gather(*(worker(times // at_once) for _ in range(at_once)))

    def call(times: int) -> None:
        loop.run_until_complete(batch(times))

    call(bench.size.concurrent)
    return Probe(name, call)


def requester(handler: ASGIHandler, path: str) -> Callable[[str], Awaitable[None]]:
    async def request(client: str) -> None:
        unread = True

        async def receive() -> Any:
            nonlocal unread
            if not unread:
                # The client stays connected until it has its response.
                await asyncio.get_running_loop().create_future()
            unread = False
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] != 200:
                raise RuntimeError(f"{path} answers {message['status']}")

        await handler(scope(path, client), receive, send)

    return request


def _measured(bench: Bench, case: str, probes: list[Probe]) -> list[Row]:
    size = bench.size
    calls = size.concurrent * max(1, size.calls // 40)
    rounds = max(2, size.rounds // 2)
    bench.progress.begin(f"{TITLE}: {case}", rounds)
    with bench.server.one_core():
        measure(bench.server, probes, rounds=rounds, calls=calls, progress=bench.progress)
    by_name = {probe.name: probe for probe in probes}
    rows = []
    for probe in probes:
        values = numbers(probe, by_name[FLOOR], by_name)
        values["per_second"] = 1 / middle(probe.wall)[0]
        rows.append(Row(NAME, case, probe.name, values))
    return rows
