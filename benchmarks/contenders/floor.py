"""The least cost of a Redis script in a Django project: a script that does nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis.asyncio
from django.conf import settings
from django_redis import get_redis_connection

from .base import BARE, FLOOR, AsyncCheck, Case, Check, Contender, ViewContender

SOURCE = "return 1"


def make(case: Case) -> Check:
    client = get_redis_connection("default")
    sha = client.script_load(SOURCE)

    def check(identifier: str) -> bool:
        return bool(client.evalsha(sha, 1, identifier))

    return check


def make_async(case: Case) -> AsyncCheck:
    client: Any = redis.asyncio.Redis.from_url(settings.REDIS_URL)
    sha = get_redis_connection("default").script_load(SOURCE)

    async def check(identifier: str) -> bool:
        return bool(await client.evalsha(sha, 1, identifier))

    return check


def bare(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    return view


def limit(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    sha = get_redis_connection("default").script_load(SOURCE)

    def limited(request: Any) -> Any:
        get_redis_connection("default").evalsha(sha, 1, request.META["REMOTE_ADDR"])
        return view(request)

    return limited


def limit_async(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    check = make_async(case)

    async def limited(request: Any) -> Any:
        await check(request.META["REMOTE_ADDR"])
        return await view(request)

    return limited


CONTENDERS = [Contender(FLOOR, make, make_async, stores=False)]
VIEWS = [
    ViewContender("bare", BARE, bare),
    ViewContender("floor", FLOOR, limit, base="bare"),
    ViewContender("bare-async", BARE, bare, is_async=True),
    ViewContender("floor-async", FLOOR, limit_async, base="bare-async", is_async=True),
]
