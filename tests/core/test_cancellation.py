"""A caller that is cancelled while Redis answers keeps no slot, and no hit beside it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow import limits
from django_slidingwindow.core.cancellation import charge_whole
from tests.support.servers.redis import wait_until

if TYPE_CHECKING:
    from redis import Redis

KEY = "throttle:tenant:{acme}:two:i3600"
PROFILES = {
    "two": {"axis": "tenant", "inflight": 2, "hold": "1h"},
    "both": {"axis": "tenant", "rate": "5/h", "inflight": 2, "hold": "1h"},
    "leased": {"axis": "tenant", "rate": "1000/h", "lease": 10},
}


@pytest.fixture(autouse=True)
def _limits(settings: Any, redis: Redis) -> None:
    settings.SLIDING_WINDOW = {"LOG": False, "LATENCY_BUDGET": 60, "PROFILES": PROFILES}


def scripts(redis: Redis) -> int:
    return int(redis.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


def blocked(redis: Redis) -> int:
    """Return how many clients wait until the server goes on."""
    return int(redis.info("clients")["blocked_clients"])


async def pause(seconds: float = 0.01) -> None:
    await asyncio.sleep(seconds)


@pytest.mark.parametrize("profile", ["two", "both"])
@pytest.mark.parametrize("times", [1, 2])
def test_check_that_is_cancelled_gives_back_what_it_charged(
    redis: Redis, times: int, profile: str
) -> None:
    # The scripts are loaded, so that one call is one command.
    limits.refund(limits.check(profile, "acme"))
    redis.config_resetstat()

    async def ask() -> None:
        redis.client_pause(10_000, all=False)
        task = asyncio.ensure_future(limits.acheck(profile, "acme"))
        while not blocked(redis):
            await pause()
        for _ in range(times):
            task.cancel()
            await pause()
        assert task.done() is (times == 2)
        redis.client_unpause()
        with pytest.raises(asyncio.CancelledError):
            await task
        while scripts(redis) < 2:
            await pause()

    asyncio.run(ask())
    assert redis.keys(f"throttle:tenant:{{acme}}:{profile}:*") == []


def test_error_is_raised_and_a_decision_returned(redis: Redis) -> None:
    async def refund(decision: Any) -> int:
        raise AssertionError

    async def failing() -> Any:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        asyncio.run(charge_whole(failing(), refund))
    decision = asyncio.run(limits.acheck("two", "acme"))
    assert decision.allowed
    assert redis.zcard(KEY) == 1


def test_error_of_a_cancelled_check_is_ignored() -> None:
    async def failing() -> Any:
        await asyncio.sleep(0.05)
        raise ValueError("on purpose")

    async def ask() -> None:
        task = asyncio.ensure_future(charge_whole(failing(), limits.get_limiter().arefund))
        await pause()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())


def test_slot_beside_a_lease_of_another_profile(redis: Redis) -> None:
    from django_slidingwindow.core.windows import ProfileCheck
    from django_slidingwindow.registry import registry

    limiter = limits.get_limiter()
    profiles = [registry.get("leased"), registry.get("two")]
    windows = limiter.windows([ProfileCheck(one, "acme", one.policies) for one in profiles])
    for _ in range(5):
        decision = asyncio.run(limiter.acharge(windows))
        assert decision.allowed
        assert redis.zcard(KEY) == 1
        assert asyncio.run(limiter.arelease(decision)) == 1
        assert redis.zcard(KEY) == 0
    taken = [limiter.charge(windows) for _ in range(3)]
    assert [one.allowed for one in taken] == [True, True, False]
    for one in taken:
        limiter.release(one)
    wait_until(lambda: redis.zcard(KEY) == 0, "all slots are free", 5)
    limiter.close()
