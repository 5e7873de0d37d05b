"""Threads for event loops whose connections have no asynchronous form."""

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

# Exchanges at once. More would mostly wait for one another.
_MOST = 32


async def in_thread(exchange: Callable[..., Result], *arguments: Any, deadline: float) -> Result:
    """Return `exchange(*arguments, deadline)`, which blocks, without blocking the loop.

    Raises RedisTimeoutError if no thread is free before the deadline.
    """

    def call() -> Result:
        if time.monotonic() > deadline:
            raise RedisTimeoutError("no thread was free within the time limit")
        return exchange(*arguments, deadline)

    return await asyncio.get_running_loop().run_in_executor(_executor(), call)


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST, "slidingwindow")


# A forked child has none of the parent's threads. Not every system forks.
getattr(os, "register_at_fork", dict)(after_in_child=_executor.cache_clear)
