"""limits: its moving window (exact) and its sliding-window counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from limits import RateLimitItemPerDay, RateLimitItemPerMinute
from limits.aio.storage import RedisStorage as AsyncRedisStorage
from limits.aio.strategies import MovingWindowRateLimiter as AsyncMovingWindowRateLimiter
from limits.storage import RedisStorage
from limits.strategies import MovingWindowRateLimiter, SlidingWindowCounterRateLimiter

from .base import AsyncCheck, Case, Check, Contender, ViewContender

MOVING = "limits, moving window"


def _item(case: Case) -> Any:
    make = RateLimitItemPerMinute if case.window == 60 else RateLimitItemPerDay
    return make(case.limit)


def _maker(strategy: Any) -> Callable[[Case], Check]:
    def make(case: Case) -> Check:
        limiter = strategy(RedisStorage(settings.REDIS_URL))
        item = _item(case)

        def check(identifier: str) -> bool:
            return bool(limiter.hit(item, case.name, identifier))

        return check

    return make


def make_async(case: Case) -> AsyncCheck:
    storage = AsyncRedisStorage(f"async+{settings.REDIS_URL}", implementation="redispy")
    limiter, item = AsyncMovingWindowRateLimiter(storage), _item(case)

    async def check(identifier: str) -> bool:
        return bool(await limiter.hit(item, case.name, identifier))

    return check


def limit_async(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    check = make_async(case)

    async def limited(request: Any) -> Any:
        if await check(request.META["REMOTE_ADDR"]):
            return await view(request)
        return HttpResponse(status=429)

    return limited


CONTENDERS = [
    Contender(MOVING, _maker(MovingWindowRateLimiter), make_async),
    Contender("limits, counter", _maker(SlidingWindowCounterRateLimiter)),
]
VIEWS = [
    ViewContender("limits-async", MOVING, limit_async, base="bare-async", is_async=True),
]
