"""Values that something else than the scripts has written, or cut, under a window's key."""

from __future__ import annotations

import random
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow.decisions import Charge
from django_slidingwindow.keys import make_key
from django_slidingwindow.policies import ALGORITHMS, Policy
from django_slidingwindow.stores.base import Evaluate, Line, Refund
from django_slidingwindow.stores.errors import is_outage
from django_slidingwindow.stores.redis import RedisStore
from django_slidingwindow.stores.wire import encode, known_script
from tests.engine import SECOND, START, Clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

    from django_slidingwindow.stores.base import Call
    from tests.servers import RedisServer

VALUES = 10_000
BATCH = 250
# A window of the clock begins at START: somewhere in the middle of one.
NOW = START + 1_234_567_891


@pytest.fixture
def store(fresh_server: RedisServer, settings: Any) -> Iterator[RedisStore]:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}
    settings.CACHES = {**settings.CACHES, "fresh": cache}
    store = RedisStore("fresh", clock=Clock(NOW))
    yield store
    store.close()


def window(algorithm: str, limit: int = 100) -> Policy:
    return Policy(limit=limit, window=3_600, algorithm=algorithm, resolution=20)


def key_of(policy: Policy, name: object) -> str:
    return make_key("throttle", "tenant", str(name), "damaged", policy)


def sound_values(store: RedisStore, client: Redis, policy: Policy) -> list[Any]:
    """Values of one hit, of a few, and of so many that a log is a ring and a hash has fields."""
    values, clock = [], Clock()
    writer = RedisStore(store.alias, clock=clock)
    for hits in (1, 3, 60, 64, 90):
        clock.now = NOW - 1_700 * SECOND
        key = key_of(policy, hits)
        for _ in range(hits):
            writer.run(Evaluate((key,), (Line(policy, 1),), True))
            clock.now += 1_700 * SECOND // hits
        values.append(client.hgetall(key) if policy.algorithm == "buckets" else read(client, key))
    writer.close()
    return values


def read(client: Redis, key: str) -> Any:
    if client.type(key) == b"zset":
        return client.zrange(key, 0, -1, withscores=True)
    return client.get(key)


def damaged(value: bytes, dice: random.Random) -> bytes:
    """The value cut, longer, with other bytes in it, or with another header."""
    cut = dice.randrange(len(value) + 1)
    noise = dice.randbytes(dice.choice([1, 2, 3, 4, 8, 400]))
    numbers = struct.pack(">I", dice.choice([0, 1, 63, 64, 65, 2**16, 1_600_000_000, 2**32 - 1]))
    return dice.choice(
        [
            value[:cut],
            value + noise,
            value[:cut] + noise + value[cut + len(noise) :],
            value[: 4 * (cut // 4)] + numbers + value[4 * (cut // 4) + 4 :],
            noise + value,
            bytes([dice.randrange(4)]) + value[1:],
            value[:8] + numbers + numbers + value[16:],
            dice.randbytes(len(value)),
        ]
    )


def write(pipeline: Any, key: str, algorithm: str, value: Any, dice: random.Random) -> None:
    if algorithm in ("compact", "counter"):
        pipeline.set(key, damaged(value, dice))
    elif algorithm == "buckets":
        fields = dict(value)
        for name in dice.sample(sorted(fields), dice.randint(1, len(fields))):
            if dice.random() < 0.2:
                del fields[name]
            else:
                fields[name] = damaged(fields[name], dice)
        pipeline.hset(key, mapping=fields or {b"x": b"y"})
    else:
        members = {}
        for member, score in value:
            score = dice.choice([score, score, -score, float("inf"), float("-inf"), 0.5, score * 2])
            members[dice.choice([member, member[:5], b"%d-%d" % (NOW, 10**20)])] = score
        pipeline.zadd(key, members)


def replies(store: RedisStore, calls: list[Call]) -> list[Any]:
    """What the server says to each call, errors among it."""
    commands = [encode(call, NOW) for call in calls]
    server = store._find_server()
    deadline = time.monotonic() + 60
    said = server.exchange(b"".join(one.payload for one in commands), len(commands), deadline)
    found = []
    for command, reply in zip(commands, said, strict=True):
        flow = known_script(command, reply)
        try:
            payload = next(flow)
            while True:
                payload = flow.send(server.exchange(payload, 1, deadline)[0])
        except StopIteration as done:
            found.append(done.value)
    return found


def asked(key: str, policy: Policy) -> list[Call]:
    few = Policy(limit=5, window=policy.window, algorithm=policy.algorithm, resolution=20)
    return [
        Evaluate((key,), (Line(policy, 2),), False),
        Evaluate((key,), (Line(few, 1, count_rejected=True),), False),
        Evaluate((key,), (Line(policy, 1),), True),
        Evaluate((key,), (Line(policy, 3),), True),
        Evaluate((key,), (Line(few, 2, count_rejected=True),), True),
        Refund((Charge(key, policy, 2),), NOW - 5 * SECOND),
    ]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_damaged_value_holds_up_the_server(
    fresh_server: RedisServer, store: RedisStore, algorithm: str
) -> None:
    policy, dice = window(algorithm), random.Random(algorithm)
    with fresh_server.client(decode_responses=False) as client:
        client.config_set("slowlog-log-slower-than", 500_000)
        values = sound_values(store, client, policy)
        answered = errors = 0
        for start in range(0, VALUES, BATCH):
            keys = [key_of(policy, number) for number in range(start, start + BATCH)]
            with client.pipeline(transaction=False) as pipeline:
                for key in keys:
                    write(pipeline, key, algorithm, dice.choice(values), dice)
                pipeline.execute()
            for reply in replies(store, [call for key in keys for call in asked(key, policy)]):
                if isinstance(reply, Exception):
                    assert not is_outage(reply)
                    errors += 1
                else:
                    answered += 1
            client.flushdb()
        assert answered > VALUES
        if algorithm != "log":  # any sorted set is a log
            assert errors > VALUES
        assert client.slowlog_len() == 0
        assert client.info("memory")["used_memory_peak"] < 100_000_000
