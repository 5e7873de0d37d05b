"""The fast path of the compact log in Lua replies and stores the same as the general path."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from django_slidingwindow.algorithms.decode import Hits, compact_hits
from django_slidingwindow.algorithms.scripts import _sections, script
from django_slidingwindow.policies import Policy
from django_slidingwindow.stores.commands import encode
from django_slidingwindow.stores.protocol import Evaluate, WindowRule
from tests.support.clock import START

if TYPE_CHECKING:
    from redis import Redis

    from tests.support.servers import RedisServer

SHORT = script("evaluate", ("compact",))
BEFORE, AFTER = SHORT.source.split(_sections("compact")["usual"])
LONG = BEFORE + AFTER


class Pair:
    """The same windows twice: one set is checked with the fast path, the other without it."""

    def __init__(self, redis: Redis, policies: list[Policy]) -> None:
        self.redis = redis
        self.policies = policies
        self.shas = {
            "short": SHORT.sha.encode(),
            "long": redis.script_load(LONG).encode(),
        }
        redis.script_load(SHORT.source)

    def check(self, now: int, cost: int, flags: int, *, writes: bool) -> None:
        lines = tuple(
            WindowRule(policy, cost, bool(flags & 1), flags > 1) for policy in self.policies
        )
        replies = []
        for way, sha in self.shas.items():
            payload = encode(Evaluate(self._keys(way), lines, writes), lambda: now).payload
            connection = self.redis.connection_pool.get_connection()
            connection.send_packed_command([payload.replace(SHORT.sha.encode(), sha)])
            replies.append(connection.read_response())
            self.redis.connection_pool.release(connection)
        assert replies[0] == replies[1]

    def assert_same(self, now: int) -> None:
        """Assert that both sets count the same hits."""
        for i, policy in enumerate(self.policies):
            short, long = (self._counted(self._keys(way)[i], policy, now) for way in self.shas)
            assert short == long

    def _keys(self, way: str) -> tuple[str, ...]:
        return tuple(f"{{{way}}}:{i}" for i in range(len(self.policies)))

    def _counted(self, key: str, policy: Policy, now: int) -> tuple[Hits, bool]:
        """Return the hits that still count, and whether the key expires."""
        return compact_hits(self.redis.get(key) or b"", policy, now), self.redis.pttl(key) > 0


@pytest.fixture
def raw(redis: Redis, redis_server: RedisServer) -> Iterator[Redis]:
    """A client of the emptied server that does not decode replies."""
    with redis_server.client(decode_responses=False) as client:
        yield client


@pytest.mark.parametrize("windows", [1, 3])
@pytest.mark.parametrize("limit", [1, 5, 64, 65, 130, 400])
@pytest.mark.parametrize("window", [60, 86_400 * 90])
def test_fast_path_equals_general_path(raw: Redis, windows: int, limit: int, window: int) -> None:
    chance = random.Random(f"{windows} {limit} {window}")
    policies = [Policy(limit=limit + 7 * i, window=window * (i + 1)) for i in range(windows)]
    pair = Pair(raw, policies)
    now, apart = START, window * 1_000_000 // limit
    for step in range(8 * min(limit, 64) + 2 * limit):
        # Traffic about as fast as the limit, bursts, pauses of a window, and a clock set back.
        # In whole steps, so that some hits expire at the exact microsecond of a check.
        now += chance.choices(
            [
                round(chance.expovariate(1)) * apart,
                0,
                round(chance.random() * 1.1 * limit) * apart,
                -int(chance.random() * window * 10_000),
            ],
            [90, 8, 2, 0.5],
        )[0]
        cost = chance.choices([1, 0, 2, 40], [95, 1, 3, 1])[0]
        flags = chance.choices([0, 1, 2, 3], [91, 3, 3, 3])[0]
        pair.check(now, cost, flags, writes=chance.random() < 0.95)
        if step % 5 == 0:
            pair.assert_same(now)


@pytest.mark.parametrize("early", [0, 1])
@pytest.mark.parametrize("left", range(20))
def test_hit_that_expires_at_this_microsecond_does_not_count_after_a_pause(
    raw: Redis, left: int, early: int
) -> None:
    pair = Pair(raw, [Policy(limit=400, window=60)])
    for number in range(300):
        pair.check(START + 100_000 * number, 1, 0, writes=True)
    # The last of the old hits expires now, or a microsecond later.
    now = START + 100_000 * (299 - left) + 60_000_000 - early
    pair.check(now, 1, 0, writes=True)
    pair.assert_same(now)
    assert len(compact_hits(raw.get("{short}:0"), pair.policies[0], now)) == left + early + 1
