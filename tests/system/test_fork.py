"""A process that forks after its first check shares no connection with its children."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.processes.forked_limiter import CHILDREN, LIMIT, TIMES

if TYPE_CHECKING:
    from redis import Redis

    from tests.support.servers import RedisServer


def test_parent_and_children_use_connections_of_their_own(
    redis: Redis, redis_server: RedisServer
) -> None:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.support.processes.forked_limiter",
        redis_server.url,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    parent, *children, last = json.loads(done.stdout)
    processes = [parent, *children, last]
    assert [one["sources"] for one in processes] == [["redis"]] * (CHILDREN + 2)
    # If a process got the reply to another one, a number would appear twice.
    remaining = [number for one in processes for number in one["remaining"]]
    charged = 2 + 2 * TIMES * (CHILDREN + 1) + 2
    assert sorted(remaining, reverse=True) == list(range(LIMIT - 3, LIMIT - charged - 1, -1))
