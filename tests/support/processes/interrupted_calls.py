"""Calls to Redis that a signal handler interrupts at random.

Run as `python -m tests.support.processes.interrupted_calls <port of redis>`. Prints as JSON how
many calls were interrupted, and then the replies to calls that use all connections at once.
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

MAX_CONNECTIONS = 2
CALLS = 3000


class HandlerError(Exception):
    """Raised by the signal handler, as SoftTimeLimitExceeded is by Celery's."""


def interrupt(*_: Any) -> None:
    raise HandlerError


def main(port: int) -> None:
    target = ConnectionSettings.of(ConnectionPool.from_url(f"redis://127.0.0.1:{port}/0"), None)
    connections = Connections(lambda deadline: target, most=MAX_CONNECTIONS)
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
        connections.in_halves(pack(b"PING"), 1, time.monotonic() + 20)
        for _ in range(MAX_CONNECTIONS + 1)
    ]
    try:
        for each in halves:
            next(each)
    except MaxConnectionsError as error:
        found.append(str(error))
    for each in halves[:MAX_CONNECTIONS]:
        try:
            next(each)
        except StopIteration as stop:
            found.insert(1, stop.value[0].decode())
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]))
