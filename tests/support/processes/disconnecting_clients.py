"""A process that serves requests of clients who disconnect at random, by Django's ASGI handler.

Run as `python -m tests.support.processes.disconnecting_clients`. It reads jobs from stdin, one line
of JSON each: a seed and the number of requests. For each job it prints how often each status was
sent, and how many clients have disconnected ("gone").
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from typing import Any

CLIENTS = 10
VIEWS = ("/aview/", "/aview/", "/astream/", "/view/")


async def ask(handle: Any, chance: random.Random, counts: Counter[str]) -> None:
    gone = asyncio.Event()
    received = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in received:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            counts[str(message["status"])] += 1
        # The client reads slowly.
        await asyncio.sleep(chance.random() * 0.002)

    query = f"seconds={chance.random() * 0.02:.4f}" + ("&fail" if chance.random() < 0.1 else "")
    path = chance.choice(VIEWS)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": [],
        "server": ("testserver", 80),
        "client": ("127.0.0.1", 1),
    }
    handling = asyncio.ensure_future(handle(scope, receive, send))
    if chance.random() < 0.5:
        await asyncio.wait([handling], timeout=chance.random() * 0.02)
        if not handling.done():
            counts["gone"] += 1
            gone.set()
    await handling


async def serve_clients(seed: int, requests: int) -> Counter[str]:
    from tests.support.sites.inflight import asgi

    chance, counts, left = random.Random(seed), Counter[str](), [requests]

    async def client() -> None:
        while left[0]:
            left[0] -= 1
            await ask(asgi, chance, counts)

    await asyncio.gather(*[client() for _ in range(CLIENTS)])
    return counts


def main() -> None:
    import tests.support.sites.inflight  # noqa: F401, sets up the site before the first job

    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(asyncio.run(serve_clients(*json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
