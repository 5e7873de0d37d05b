"""Measure the memory of windows on the Redis server that REDIS_URL names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import django
from django.conf import settings
from django_redis import get_redis_connection

from django_slidingwindow.core.keys import make_key
from django_slidingwindow.policies import ALGORITHMS, Policy
from django_slidingwindow.stores.protocol import Call, Evaluate, WindowRule
from django_slidingwindow.stores.redis import RedisStore

HITS = (10, 100, 1_000, 10_000)
KEYS = {10: 4_000, 100: 2_000, 1_000: 400, 10_000: 50}
"""How many keys are created to measure one, by the hits in each."""
_DAY = 86_400
_STEPS = 60
_TOGETHER = 500


def configure() -> None:
    """Configure Django with the server."""
    alias = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": os.environ["REDIS_URL"]}
    settings.configure(CACHES={"default": alias})
    django.setup()


def server() -> str:
    """Return the version of the server."""
    return str(get_redis_connection("default").info("server")["redis_version"])


def bytes_a_key(algorithm: str, hits: int, keys: int | None = None) -> int:
    """Return the memory of one full window, including its name and expiry."""
    count = KEYS[hits] if keys is None else keys
    client = get_redis_connection("default")
    _empty(client)
    now = int(client.time()[0]) * 1_000_000
    store = RedisStore("default", clock=lambda: now)
    # Load the script before measuring, and close the connection to free its buffers.
    _run(store, [_charge(Policy(limit=1, window=1, algorithm=algorithm), "warm", 1)])
    store.close()
    before = _used(client)
    policy = Policy(limit=hits, window=_DAY, algorithm=algorithm)
    start = now - _DAY * 900_000
    for step, cost in enumerate(_costs(hits)):
        now = start + step * _DAY * 900_000 // _STEPS
        _run(store, (_charge(policy, f"tenant-{i:06}", cost) for i in range(count)))
    store.close()
    used = _used(client) - before
    _empty(client)
    return round(used / count)


def _empty(client: Any) -> None:
    """Delete all keys. Without SYNC, Valkey frees their memory later."""
    client.execute_command("FLUSHALL", "SYNC")


def _used(client: Any) -> int:
    """Return the memory in use, without connections and Lua, whose memory varies."""
    memory = client.info("memory")
    passing = int(memory["mem_clients_normal"]) + int(memory["used_memory_lua"])
    return int(memory["used_memory"]) - passing


def _costs(hits: int) -> list[int]:
    """Divide the hits into as many steps as there are sub-windows."""
    steps = min(hits, _STEPS)
    return [hits * (i + 1) // steps - hits * i // steps for i in range(steps)]


def _charge(policy: Policy, name: str, cost: int) -> Call:
    key = make_key("throttle", "tenant", name, "tenant_paid", policy)
    return Evaluate((key,), (WindowRule(policy, cost),), True)


def _run(store: RedisStore, calls: Iterator[Call] | list[Call]) -> None:
    every = list(calls)
    for start in range(0, len(every), _TOGETHER):
        for reply in store.run_many(every[start : start + _TOGETHER]):
            assert reply[0] == 1, "a window refused while it was filled"


def measure() -> dict[str, dict[int, int]]:
    """Return the bytes of one key, by algorithm and hits."""
    return {name: {hits: bytes_a_key(name, hits) for hits in HITS} for name in ALGORITHMS}
