"""Calls to Redis that a signal handler interrupts at random.

Run as `python -m tests.support.processes.interrupted_calls <port of redis>`. Prints as JSON how
many calls were interrupted in each function of the pool, how many were not, and the replies to
calls that use all connections at once.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
import traceback
from collections import Counter
from typing import Any

from redis.connection import ConnectionPool
from redis.exceptions import MaxConnectionsError

from django_slidingwindow.stores.commands import pack
from django_slidingwindow.stores.net import pool
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

    def echo(word: bytes) -> None:
        reply = connections.exchange(pack(b"ECHO", word), 1, time.monotonic() + 20)
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert reply == [word], reply

    def seconds(connected: bool) -> float:
        if not connected:
            connections.close()
        start = time.monotonic()
        echo(b"usual")
        return time.monotonic() - start

    usual = {each: sorted(seconds(each) for _ in range(21))[10] for each in (False, True)}
    signal.signal(signal.SIGALRM, interrupt)
    interrupted: Counter[str] = Counter()
    for number in range(CALLS):
        connected = number % 2 == 0
        if not connected:
            connections.close()
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2 * usual[connected]))
            echo(b"%d" % number)
        except Exception as error:
            # redis-py 6.0 may raise another error in a `finally`.
            if HandlerError not in (type(error), type(error.__context__)):
                raise
            interrupted[function_of_the_pool(error)] += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    found: list[str] = []
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
            found.insert(0, stop.value[0].decode())
    print(json.dumps([interrupted, CALLS - interrupted.total(), found]))


def function_of_the_pool(error: Exception) -> str:
    """Return the innermost function of the pool that the handler has interrupted; "" for none."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [code.co_name for code in frames if code.co_filename == pool.__file__]
    return names[-1] if names else ""


if __name__ == "__main__":
    main(int(sys.argv[1]))
