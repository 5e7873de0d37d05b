"""Exactly one charge of many processes that share a window sends `limit_near`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow.policies import ALGORITHMS
from tests.support.processes.limiters import Contenders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

# One xdist worker runs all tests of this module, so that the processes start only once.
pytestmark = pytest.mark.xdist_group("near")

PROCESSES, LIMIT, TIMES = 8, 100, 25
# Long enough that no hit expires during a test.
WINDOW = 400 * 86_400
PROFILES: dict[str, Any] = {
    algorithm: {"axis": "tenant", "limit": LIMIT, "window": WINDOW, "algorithm": algorithm}
    for algorithm in ALGORITHMS
} | {
    "leased": {"axis": "tenant", "limit": 1_000, "window": WINDOW, "lease": 20},
    "deferred": {"axis": "tenant", "limit": 2_000, "window": WINDOW, "mode": "deferred"},
}


@pytest.fixture(scope="module")
def contenders(redis_server: Any) -> Iterator[Contenders]:
    caches = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": redis_server.url}}
    options = {"PROFILES": PROFILES, "LATENCY_BUDGET": 60, "SHIELD_SECONDS": 0}
    with Contenders(PROCESSES, caches, options, listens=True) as contenders:
        yield contenders


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_exactly_one_charge_of_all_processes_sends_limit_near(
    redis: Redis, contenders: Contenders, algorithm: str
) -> None:
    for identifier in ("acme", "globex", "initech"):
        answers = contenders.check([(algorithm, identifier)], TIMES)
        assert answers["redis True"] == LIMIT
        assert answers["redis False"] == PROCESSES * TIMES - LIMIT
        assert answers["near"] == 1


def test_each_of_several_windows_sends_limit_near_once(
    redis: Redis, contenders: Contenders
) -> None:
    answers = contenders.check([("compact", "acme"), ("log", "acme"), ("counter", "acme")], TIMES)
    assert answers["redis True"] == LIMIT
    assert answers["near"] == 3


def test_leased_units_send_limit_near_once(redis: Redis, contenders: Contenders) -> None:
    answers = contenders.check([("leased", "acme")], 130)
    assert answers["lease True"] > 0
    # A process that finishes first keeps the units that it holds.
    assert 800 < answers["lease True"] + answers["redis True"] <= 1_000
    assert answers["near"] == 1


def test_deferred_charges_send_limit_near_once(redis: Redis, contenders: Contenders) -> None:
    # So few that no batch exceeds the limit.
    answers = contenders.check([("deferred", "acme")], 220)
    assert answers["deferred True"] == PROCESSES * 220
    assert answers["near"] == 1
