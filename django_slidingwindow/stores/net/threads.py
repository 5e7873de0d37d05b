"""Threads in which event loops use connections that have no async counterpart."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

from redis.exceptions import TimeoutError as RedisTimeoutError

Result = TypeVar("Result")

# With more threads, most of them would only wait for the others.
_MAX_THREADS = 32


async def in_thread(exchange: Callable[..., Result], *arguments: Any, deadline: float) -> Result:
    """Return `exchange(*arguments, deadline)`, without blocking the event loop.

    Raise RedisTimeoutError if no thread is free before the deadline.
    """

    def call() -> Result:
        if time.monotonic() > deadline:
            raise RedisTimeoutError("no thread was free within the time limit")
        return exchange(*arguments, deadline)

    return await asyncio.get_running_loop().run_in_executor(_executor(), call)


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MAX_THREADS, "slidingwindow")


# A forked child needs a new executor, because it does not inherit the parent's threads. Windows has
# no fork.
getattr(os, "register_at_fork", dict)(after_in_child=_executor.cache_clear)
