"""One of a crowd of processes that answer requests of clients who go away, by Django's own handler.

A line of JSON comes by stdin: the seed, and how many requests. A line of JSON goes to stdout: how
many were admitted, how many refused, and how many clients have gone away.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from typing import Any

AT_ONCE = 10
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
        # A slow client.
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


async def crowd(seed: int, requests: int) -> Counter[str]:
    from tests.support.inflight_app import asgi

    chance, counts, left = random.Random(seed), Counter[str](), [requests]

    async def client() -> None:
        while left[0]:
            left[0] -= 1
            await ask(asgi, chance, counts)

    await asyncio.gather(*[client() for _ in range(AT_ONCE)])
    return counts


def main() -> None:
    import tests.support.inflight_app  # noqa: F401, it makes the site

    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(asyncio.run(crowd(*json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
