"""A block begins and ends at exact times, even with many processes that check one identifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow import decisions
from tests.support.clock import SECOND, START
from tests.support.processes.limiters import Contenders, by_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

PROCESSES, TIMES = 4, 30
LIMIT, AFTER = 5, 30
HOUR = 3_600 * SECOND
# Windows long enough that no key expires by the server's own clock during a test.
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
        # After the tolerated refusals, one more starts the block.
        answers = contenders.reasons(asked, TIMES, now)
        assert by_reason(answers) == {
            decisions.ALLOWED: LIMIT,
            decisions.LIMIT: AFTER,
            decisions.PENALTY: FLOOD - LIMIT - AFTER,
        }
        for left in (block * HOUR, 1):
            # Each process is blocked until the last microsecond. Refusals do not extend the block.
            seen = contenders.reasons(asked, TIMES, now + block * HOUR - left)
            assert seen == [{(decisions.PENALTY, left / SECOND): TIMES}] * PROCESSES
        now += block * HOUR
    others = contenders.reasons([(profile, "203.0.113.8")], 2, now)
    assert by_reason(others) == {decisions.ALLOWED: LIMIT, decisions.LIMIT: 2 * PROCESSES - LIMIT}


def test_shields_of_several_processes_delay_a_block_only_as_documented(
    redis: Redis, redis_server: Any
) -> None:
    asked = [("login", "203.0.113.9")]
    with started(redis_server.url, 60) as contenders:
        # The shield of each process may answer this many refusals before the process asks Redis.
        answers = by_reason(contenders.reasons(asked, LIMIT + 2 * AFTER, START))
        assert answers[decisions.ALLOWED] == LIMIT
        assert AFTER <= answers[decisions.LIMIT] <= AFTER + PROCESSES * AFTER
        assert by_reason(contenders.reasons(asked, 1, START)) == {decisions.PENALTY: PROCESSES}
