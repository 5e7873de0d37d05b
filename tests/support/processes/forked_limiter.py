"""Fork a process that uses a limiter, and use the limiter in parent and children at once.

Run as `python -m tests.support.processes.forked_limiter <redis url>`, because a test process has
threads of its own. Prints a summary of the decisions of each process as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from typing import Any

LIMIT = 1000
CHILDREN = 3
TIMES = 50


def main(url: str) -> None:
    import django
    from django.conf import settings

    settings.configure(
        SECRET_KEY="forking",
        CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}},
        SLIDING_WINDOW={
            "PROFILES": {"many": {"axis": "tenant", "limit": LIMIT, "window": 3600}},
            "LATENCY_BUDGET": 20.0,
        },
    )
    django.setup()
    asyncio.run(fork_in_a_loop())
    for _ in range(CHILDREN):
        os.wait()


async def fork_in_a_loop() -> None:
    """Fork while the connections of threads and of an event loop are open, then use all of them."""
    from django_slidingwindow import limits

    limits.check("many", "k")
    await limits.acheck("many", "k")
    children = []
    for _ in range(CHILDREN):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(reader)
            os.write(writer, json.dumps(child()).encode())
            os._exit(0)
        os.close(writer)
        children.append(reader)
    answers = [limits.check("many", "k") for _ in range(TIMES)]
    answers += [await limits.acheck("many", "k") for _ in range(TIMES)]
    found: list[dict[str, Any]] = [summary(answers)]
    for reader in children:
        with os.fdopen(reader) as pipe:
            found.append(json.load(pipe))
    # After the children have ended, the parent's own connections still work.
    found.append(summary([limits.check("many", "k"), await limits.acheck("many", "k")]))
    print(json.dumps(found))


def child() -> dict[str, Any]:
    from django_slidingwindow import limits

    # In a new thread, because the parent's event loop is still on this thread's stack.
    found: list[Any] = []

    def use() -> None:
        found.extend(limits.check("many", "k") for _ in range(TIMES))
        found.extend(asyncio.run(several()))

    async def several() -> list[Any]:
        return [await limits.acheck("many", "k") for _ in range(TIMES)]

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    return summary(found)


def summary(decisions: list[Any]) -> dict[str, Any]:
    return {
        "sources": sorted({decision.source for decision in decisions}),
        "remaining": [decision.remaining for decision in decisions],
    }


if __name__ == "__main__":
    main(sys.argv[1])
