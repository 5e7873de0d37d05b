"""Scripts on a server that forgets them, and their visible version."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow.algorithms.scripts import SCRIPT_VERSION, script
from django_slidingwindow.core.keys import make_key
from django_slidingwindow.decisions import Charge
from django_slidingwindow.policies import ALGORITHMS, Policy
from django_slidingwindow.stores.client import ClientStore
from django_slidingwindow.stores.protocol import Evaluate, Refund, WindowRule
from django_slidingwindow.stores.redis import RedisStore

if TYPE_CHECKING:
    from redis import Redis

    from tests.support.servers import RedisServer

SETS = list(chain.from_iterable(combinations(sorted(ALGORITHMS), size) for size in range(1, 5)))


@pytest.fixture(params=[RedisStore, ClientStore])
def store(redis: Redis, request: pytest.FixtureRequest) -> Iterator[RedisStore | ClientStore]:
    redis.script_flush()
    store = request.param("default")
    yield store
    store.close()


def policies(algorithms: tuple[str, ...], limit: int = 1_000) -> list[Policy]:
    return [Policy(limit=limit, window=86_400, algorithm=name) for name in algorithms]


def check(*policies: Policy, name: str = "acme", writes: bool = True, cost: int = 1) -> Evaluate:
    keys = tuple(make_key("throttle", "tenant", name, "x", policy) for policy in policies)
    return Evaluate(keys, tuple(WindowRule(policy, cost) for policy in policies), writes)


def counted(store: RedisStore | ClientStore, policy: Policy) -> int:
    return policy.limit - store.run(check(policy, writes=False, cost=0))[3]


@contextmanager
def scripts_flushed_all_the_time(redis_server: RedisServer) -> Iterator[threading.Event]:
    """Flush the scripts again and again. Yield an event, which each flush sets."""
    stop, flushed = threading.Event(), threading.Event()

    def flush() -> None:
        with redis_server.client() as client:
            while not stop.is_set():
                client.script_flush()
                flushed.set()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        yield flushed
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("algorithms", SETS, ids="+".join)
def test_each_set_of_algorithms_is_one_script_that_the_server_then_knows(
    redis: Redis, store: RedisStore | ClientStore, algorithms: tuple[str, ...]
) -> None:
    used = script("evaluate", algorithms)
    assert redis.script_exists(used.sha) == [False]
    replies = [store.run(check(*policies(algorithms))) for _ in range(2)]
    size = len(algorithms)
    assert [reply.remaining for reply in replies] == [(999,) * size, (998,) * size]
    assert redis.script_exists(used.sha) == [True]
    assert redis.info("memory")["number_of_cached_scripts"] == 1


@pytest.mark.parametrize("algorithms", SETS, ids="+".join)
def test_each_set_of_algorithms_has_a_refund_script(
    redis: Redis, store: RedisStore | ClientStore, algorithms: tuple[str, ...]
) -> None:
    call = check(*policies(algorithms), cost=3)
    stamp = store.run(call)[1]
    charges = tuple(
        Charge(key, rule.policy, 2) for key, rule in zip(call.keys, call.rules, strict=True)
    )
    assert store.run(Refund(charges, stamp)) == [2] * len(algorithms)
    assert redis.script_exists(script("refund", algorithms).sha) == [True]
    assert [counted(store, policy) for policy in policies(algorithms)] == [1] * len(algorithms)


def test_loaded_script_begins_with_its_version(
    redis: Redis, store: RedisStore | ClientStore
) -> None:
    with redis.monitor() as monitor:
        store.run(check(*policies(("compact",))))
        loaded = next(
            command["command"]
            for command in monitor.listen()
            if command["command"].startswith("SCRIPT LOAD")
        )
    head = f"-- django_slidingwindow evaluate, version {SCRIPT_VERSION}: compact"
    assert loaded.startswith(f"SCRIPT LOAD {head}")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_scripts_flushed_between_calls_lose_nothing(
    redis: Redis, store: RedisStore | ClientStore, algorithm: str
) -> None:
    [policy] = policies((algorithm,))
    for hits in range(1, 11):
        redis.script_flush()
        assert store.run(check(policy))[3] == 1_000 - 2 * hits + 1
        redis.script_flush()
        assert (await store.arun(check(policy)))[3] == 1_000 - 2 * hits
    assert counted(store, policy) == 20


def test_scripts_flushed_before_a_pipeline_lose_nothing(
    redis: Redis, store: RedisStore | ClientStore
) -> None:
    mixed = [check(*policies(algorithms), name=str(i)) for i in range(5) for algorithms in SETS]
    for expected in (999, 998):
        redis.script_flush()
        replies = store.run_many(mixed)
        assert len(replies) == len(mixed)
        for call, reply in zip(mixed, replies, strict=True):
            assert reply[0] == 1
            assert len(reply[3::4]) == len(call.keys)
        assert store.run_many([]) == []
        # Each key is in eight of the fifteen sets.
        least = min(remaining for reply in replies for remaining in reply[3::4])
        assert least == 1_000 - 8 * (1_000 - expected)


def test_scripts_flushed_during_pipelines_lose_nothing(
    redis: Redis, redis_server: RedisServer, store: RedisStore | ClientStore
) -> None:
    [policy] = policies(("compact",))
    with scripts_flushed_all_the_time(redis_server) as flushed:
        for _ in range(20):
            flushed.clear()
            replies = store.run_many([check(policy)] * 25)
            assert [reply[0] for reply in replies] == [1] * 25
            assert flushed.wait(20)
    assert counted(store, policy) == 500


def test_scripts_flushed_during_many_threads_calls_lose_nothing(
    redis: Redis, redis_server: RedisServer, store: RedisStore | ClientStore
) -> None:
    both = policies(("compact", "log"))

    def ask(_: int) -> int:
        return store.run(check(*both))[0]

    with scripts_flushed_all_the_time(redis_server), ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(400))) == [1] * 400
    assert [counted(store, policy) for policy in both] == [400, 400]


async def test_scripts_flushed_during_many_tasks_calls_lose_nothing(
    redis: Redis, redis_server: RedisServer, store: RedisStore | ClientStore
) -> None:
    [policy] = policies(("compact",))
    with scripts_flushed_all_the_time(redis_server):
        for _ in range(10):
            replies = await asyncio.gather(*(store.arun(check(policy)) for _ in range(40)))
            assert [reply[0] for reply in replies] == [1] * 40
    assert counted(store, policy) == 400


def test_scripts_are_loaded_again_when_the_server_was_restarted(
    fresh_server: RedisServer, settings: Any
) -> None:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}
    settings.CACHES = {**settings.CACHES, "fresh": cache}
    store = RedisStore("fresh")
    [policy] = policies(("compact",))
    assert store.run(check(policy))[3] == 999
    fresh_server.restart(keep_data=True)
    store.close()
    assert store.run(check(policy))[3] == 998
    store.close()
