"""`limits.retry_delay` returns when a refused task should try again."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidingwindow import limits
from django_slidingwindow.decisions import BLOCK, LIMIT, OVERRIDE, REDIS, Decision
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.testing import limits_in_memory

PATIENT = 10.0**9


def refusal(retry_after: float | None, window: float = 60.0) -> Decision:
    return Decision(
        allowed=False,
        profile="crm",
        policy=Policy(limit=10, window=window),
        limit=10,
        remaining=0,
        retry_after=retry_after,
        reset_after=1.0,
        reason=LIMIT,
        source=REDIS,
    )


waits = st.floats(0, 400 * 86_400)
windows = st.floats(0.001, 400 * 86_400)


@given(wait=waits, window=windows, attempt=st.integers(0, 10**6))
def test_delay_is_retry_after_and_a_part_that_doubles_up_to_the_window(
    wait: float, window: float, attempt: int
) -> None:
    delay = limits.retry_delay(refusal(wait, window), attempt, longest=PATIENT)
    assert wait <= delay <= wait + min(2.0 ** min(attempt, 40), window)


def test_delay_follows_a_block_of_an_override_that_ends() -> None:
    blocked = refusal(60.0).replace(policy=None, limit=0, reason=BLOCK, source=OVERRIDE)
    assert 60.0 <= limits.retry_delay(blocked) <= 61.0
    assert 60.0 <= limits.retry_delay(blocked, 3) <= 68.0


@given(wait=waits, attempt=st.integers(0, 60), longest=st.floats(0.1, 10**6))
def test_delay_is_at_most_longest(wait: float, attempt: int, longest: float) -> None:
    delay = limits.retry_delay(refusal(wait), attempt, longest=longest)
    assert min(wait, longest / 2) <= delay <= longest


@pytest.mark.parametrize(
    ("wait", "attempt", "lowest", "highest"),
    [(30.0, 0, 30, 31), (30.0, 3, 30, 38), (30.0, 99, 30, 90), (86_400.0, 0, 900, 1_800)],
)
def test_delays_are_spread(wait: float, attempt: int, lowest: int, highest: int) -> None:
    delays = [limits.retry_delay(refusal(wait), attempt) for _ in range(200)]
    assert lowest <= min(delays) < max(delays) <= highest
    assert max(delays) - min(delays) > (highest - lowest) / 2


def test_retry_delay_raises_when_waiting_does_not_help() -> None:
    with pytest.raises(ValueError, match=r"profile 'crm' .* \(limit 10, reason limit\)"):
        limits.retry_delay(refusal(None))
    blocked = refusal(None).replace(policy=None, limit=0, reason=BLOCK, source=OVERRIDE)
    with pytest.raises(ValueError, match=r"no wait helps: .* \(limit 0, reason block\)"):
        limits.retry_delay(blocked)


def test_long_queue_uses_the_whole_limit_with_few_checks() -> None:
    """300 tasks at 10 a minute take half an hour if the limit is always used."""
    mine = Profile(name="crm", axis="global", policies=(Policy.parse("10/m"),))
    queue = [(0.0, task, 0) for task in range(300)]
    now, asked = 0.0, 0
    done: list[float] = []
    with limits_in_memory() as clock:
        while queue:
            due, task, attempt = heapq.heappop(queue)
            clock.advance(due - now)
            now, asked = due, asked + 1
            decision = limits.check(mine, "all")
            if decision.allowed:
                done.append(now)
            else:
                delay = limits.retry_delay(decision, attempt)
                heapq.heappush(queue, (now + delay, task, attempt + 1))
    assert all(later - earlier >= 60 for earlier, later in zip(done, done[10:], strict=False))
    assert now < 1.5 * 29 * 60
    assert asked < 30 * len(done)
