"""Calls that a signal handler ends at random: `python -m tests.support.storm <port of redis>`.

Prints how many it ended, and what calls are then answered that use all connections at once.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from typing import Any

from redis.connection import ConnectionPool
from redis.exceptions import MaxConnectionsError

from django_slidingwindow.stores.commands import pack
from django_slidingwindow.stores.net.pool import Connections
from django_slidingwindow.stores.net.settings import ConnectionSettings

MOST = 2
CALLS = 3000


class HandlerError(Exception):
    """What the signal handler raises, as Celery's soft time limit does."""


def interrupt(*_: Any) -> None:
    raise HandlerError


def main(port: int) -> None:
    link = ConnectionSettings.of(ConnectionPool.from_url(f"redis://127.0.0.1:{port}/0"), None)
    connections = Connections(lambda deadline: link, most=MOST)
    signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    for number in range(CALLS):
        word = b"%d" % number
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 3e-4))
            reply = connections.exchange(pack(b"ECHO", word), 1, time.monotonic() + 20)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert reply == [word], reply
        except HandlerError:
            interrupted += 1
    found: list[Any] = [interrupted]
    halves = [
        connections.in_halves(pack(b"PING"), 1, time.monotonic() + 20) for _ in range(MOST + 1)
    ]
    try:
        for each in halves:
            next(each)
    except MaxConnectionsError as error:
        found.append(str(error))
    for each in halves[:MOST]:
        try:
            next(each)
        except StopIteration as stop:
            found.insert(1, stop.value[0].decode())
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]))
