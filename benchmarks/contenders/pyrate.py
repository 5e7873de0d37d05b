"""pyrate-limiter: a sorted set for each identifier, kept by a factory of buckets."""

from __future__ import annotations

from django_redis import get_redis_connection
from pyrate_limiter import BucketFactory, Limiter, Rate, RateItem, RedisBucket
from pyrate_limiter.buckets.redis_bucket import LuaScript

from .base import Case, Check, Contender


class Buckets(BucketFactory):
    """One bucket for each identifier. No thread empties them during the benchmark."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._client = get_redis_connection("default")
        # `RedisBucket.init` would load the script for each bucket, which is not part of a check.
        self._script = self._client.script_load(LuaScript.PUT_ITEM)
        self._rates = [Rate(case.limit, case.window * 1_000)]
        self._buckets: dict[str, RedisBucket] = {}

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        return RateItem(name, self.get_by_name(name).now(), weight=weight)

    def get(self, item: RateItem) -> RedisBucket:
        return self.get_by_name(item.name)

    def get_by_name(self, name: str) -> RedisBucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            key = f"pyrate:{self._case.name}:{name}"
            bucket = RedisBucket(self._rates, self._client, key, self._script)
            self._buckets[name] = bucket
        return bucket


def make(case: Case) -> Check:
    limiter = Limiter(Buckets(case))

    def check(identifier: str) -> bool:
        return bool(limiter.try_acquire(identifier, blocking=False))

    return check


CONTENDERS = [Contender("pyrate-limiter", make)]
