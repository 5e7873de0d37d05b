"""throttled-py: its sliding window, which is two counters."""

from __future__ import annotations

from datetime import timedelta

import throttled.asyncio
from django.conf import settings
from throttled import RateLimiterType, RedisStore, Throttled, per_duration

from .base import AsyncCheck, Case, Check, Contender

NAME = "throttled-py, sliding window"


def make(case: Case) -> Check:
    limiter = Throttled(
        using=RateLimiterType.SLIDING_WINDOW.value,
        quota=per_duration(timedelta(seconds=case.window), case.limit),
        store=RedisStore(server=settings.REDIS_URL),
    )

    def check(identifier: str) -> bool:
        return not limiter.limit(f"{case.name}:{identifier}").limited

    return check


def make_async(case: Case) -> AsyncCheck:
    limiter = throttled.asyncio.Throttled(
        using=RateLimiterType.SLIDING_WINDOW.value,
        quota=per_duration(timedelta(seconds=case.window), case.limit),
        store=throttled.asyncio.RedisStore(server=settings.REDIS_URL),
    )

    async def check(identifier: str) -> bool:
        return not (await limiter.limit(f"{case.name}:{identifier}")).limited

    return check


CONTENDERS = [Contender(NAME, make, make_async)]
