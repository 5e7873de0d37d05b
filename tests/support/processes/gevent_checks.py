"""Checks in greenlets that gevent's time-outs interrupt, before and after Redis is frozen.

Run as `python -m tests.support.processes.gevent_checks <redis url> <pid of redis>`. Prints the
sources of the decisions as JSON.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402

BUDGET = 0.5
FROZEN = 3.0
CONNECTIONS = 4


def main(url: str, pid: int) -> None:
    import django
    from django.conf import settings

    alias = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": url,
        "OPTIONS": {"CONNECTION_POOL_KWARGS": {"max_connections": CONNECTIONS}},
    }
    settings.configure(
        SECRET_KEY="greenlets",
        CACHES={"default": alias},
        SLIDING_WINDOW={
            "PROFILES": {"many": {"axis": "tenant", "limit": 1_000_000, "window": 3600}},
            "LATENCY_BUDGET": BUDGET,
            "LOG": False,
        },
    )
    django.setup()
    found: dict[str, Any] = {"interrupted": sum(gevent_map(interrupted, 400))}
    found["after interruptions"] = recovered()
    os.kill(pid, signal.SIGSTOP)
    # Without this, a check that ignores its latency budget would wait forever.
    thaw = gevent.spawn_later(FROZEN, os.kill, pid, signal.SIGCONT)
    answers = gevent_map(check, 20)
    found["frozen"] = sorted({source for source, _ in answers})
    found["slowest"] = max(seconds for _, seconds in answers)
    thaw.kill()
    os.kill(pid, signal.SIGCONT)
    found["thawed"] = recovered()
    print(json.dumps(found))


def gevent_map(function: Any, count: int) -> list[Any]:
    running = [gevent.spawn(function) for _ in range(count)]
    gevent.joinall(running, raise_error=True)
    return [each.value for each in running]


def check() -> tuple[str, float]:
    from django_slidingwindow import limits

    start = time.monotonic()
    source = limits.check("many", "k").source
    return source, time.monotonic() - start


def interrupted() -> bool:
    """Whether a time-out came while the check waited for a connection or for its reply."""
    try:
        with gevent.Timeout(random.uniform(0, 0.05)):
            check()
    except gevent.Timeout:
        return True
    return False


def recovered() -> list[str]:
    """Return the sources of concurrent checks, one per connection, once all of them are Redis.

    After 20 seconds, return the sources of the last checks.
    """
    deadline = time.monotonic() + 20
    while True:
        sources = sorted({source for source, _ in gevent_map(check, CONNECTIONS)})
        if sources == ["redis"] or time.monotonic() > deadline:
            return sources
        gevent.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
