"""Many processes that hammer one identifier: when its block begins and ends is exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow import decisions
from tests.support.contender import Contenders, by_reason
from tests.support.engine import SECOND, START

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

PROCESSES, TIMES = 4, 30
LIMIT, AFTER = 5, 30
HOUR = 3_600 * SECOND
# Windows are so long that no key expires by the server's own clock meanwhile.
PROFILES: dict[str, Any] = {
    "login": {
        "axis": "ip",
        "rate": f"{LIMIT}/30m",
        "penalty": {"after": f"{AFTER}/2h", "steps": ["1h", "3h"]},
    },
    "upload": {
        "axis": "ip",
        "inflight": LIMIT,
        "hold": "30m",
        "penalty": {"after": f"{AFTER}/2h", "steps": ["1h", "3h"]},
    },
}
FLOOD = PROCESSES * TIMES


def started(redis_url: str, shield_seconds: float) -> Contenders:
    caches = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": redis_url}}
    options = {"PROFILES": PROFILES, "LATENCY_BUDGET": 60, "SHIELD_SECONDS": shield_seconds}
    return Contenders(PROCESSES, caches, options)


@pytest.fixture(scope="module")
def contenders(redis_server: Any) -> Iterator[Contenders]:
    with started(redis_server.url, 0) as contenders:
        yield contenders


@pytest.mark.parametrize("profile", PROFILES)
def test_block_begins_after_the_promised_refusals_and_ends_in_all_processes_at_once(
    redis: Redis, contenders: Contenders, profile: str
) -> None:
    asked = [(profile, "203.0.113.9")]
    now = START
    for block in (1, 3, 3):
        # With the refusals that it tolerates, the block begins: one more is the first it refuses.
        answers = contenders.reasons(asked, TIMES, now)
        assert by_reason(answers) == {
            decisions.ALLOWED: LIMIT,
            decisions.LIMIT: AFTER,
            decisions.PENALTY: FLOOD - LIMIT - AFTER,
        }
        for left in (block * HOUR, 1):
            # Each process sees it, until the last microsecond. Those refusals do not extend it.
            seen = contenders.reasons(asked, TIMES, now + block * HOUR - left)
            assert seen == [{(decisions.PENALTY, left / SECOND): TIMES}] * PROCESSES
        now += block * HOUR
    others = contenders.reasons([(profile, "203.0.113.8")], 2, now)
    assert by_reason(others) == {decisions.ALLOWED: LIMIT, decisions.LIMIT: 2 * PROCESSES - LIMIT}


def test_shields_of_several_processes_do_not_hasten_a_block_and_delay_it_as_documented(
    redis: Redis, redis_server: Any
) -> None:
    asked = [("login", "203.0.113.9")]
    with started(redis_server.url, 60) as contenders:
        # Each process may have answered that many refusals before it asks.
        answers = by_reason(contenders.reasons(asked, LIMIT + 2 * AFTER, START))
        assert answers[decisions.ALLOWED] == LIMIT
        assert AFTER <= answers[decisions.LIMIT] <= AFTER + PROCESSES * AFTER
        assert by_reason(contenders.reasons(asked, 1, START)) == {decisions.PENALTY: PROCESSES}
