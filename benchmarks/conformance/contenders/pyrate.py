"""pyrate-limiter: a sorted set for each client, made by a factory of buckets."""

from __future__ import annotations

from typing import Any

from ..model import ADMITTED, REFUSED, Answer, Ask, AsyncAsk, Contender, Question, Setup
from ..site import TIMEOUT, no_retry
from .libraries import LACKS


def make(setup: Setup) -> Ask:
    import redis

    options: dict[str, Any] = {}
    if setup.tuned:
        options = {
            "socket_timeout": TIMEOUT,
            "socket_connect_timeout": TIMEOUT,
            "retry": no_retry(),
        }
    client: Any = redis.Redis.from_url(setup.redis, **options)
    limiter, buckets = _limiter(setup, client)

    def ask(question: Question) -> Answer:
        if limiter.try_acquire(question.client, blocking=False):
            return Answer(ADMITTED)
        if not question.tell:
            return Answer(REFUSED)
        item = buckets.wrap_item(question.client)
        return Answer(REFUSED, buckets.get(item).waiting(item) / 1_000)

    return ask


def make_async(setup: Setup) -> AsyncAsk:
    import redis.asyncio

    limiter, _ = _limiter(setup, redis.asyncio.Redis.from_url(setup.redis))

    async def ask(question: Question) -> Answer:
        admitted = await limiter.try_acquire_async(question.client, blocking=False)
        return Answer(ADMITTED if admitted else REFUSED)

    return ask


def _limiter(setup: Setup, client: Any) -> tuple[Any, Any]:
    import redis
    from pyrate_limiter import BucketFactory, Limiter, Rate, RateItem, RedisBucket
    from pyrate_limiter.buckets.redis_bucket import LuaScript

    rates = [Rate(setup.rate.limit, setup.rate.window * 1_000)]
    # Once for all buckets: its own `init` loads the script for each.
    script = redis.Redis.from_url(setup.redis).script_load(LuaScript.PUT_ITEM)

    class Buckets(BucketFactory):
        def __init__(self) -> None:
            self.known: dict[str, Any] = {}

        def wrap_item(self, name: str, weight: int = 1) -> Any:
            return RateItem(name, self.get(RateItem(name, 0)).now(), weight=weight)

        def get(self, item: Any) -> Any:
            bucket = self.known.get(item.name)
            if bucket is None:
                bucket = RedisBucket(rates, client, f"pyrate:{item.name}", script)
                self.schedule_leak(bucket)
                self.known[item.name] = bucket
            return bucket

    buckets = Buckets()
    return Limiter(buckets), buckets


PYRATE = Contender(
    name="pyrate-limiter",
    module="pyrate_limiter",
    make=make,
    make_async=make_async,
    is_library=True,
    lacks=LACKS,
)
