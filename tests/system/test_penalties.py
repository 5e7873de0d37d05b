"""Penalties in every store: which refusals are an offence, and when a block begins and ends."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow.algorithms.penalties import Penalty
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.policies import ALGORITHMS, Policy
from django_slidingwindow.stores.client import ClientStore
from django_slidingwindow.stores.memory import MemoryStore
from django_slidingwindow.stores.protocol import Ahead, Evaluate, Reset, WindowRule
from django_slidingwindow.stores.redis import RedisStore
from tests.support.clock import SECOND, Clock
from tests.support.store_harness import WindowAnswer, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redis import Redis

MINUTE = 60 * SECOND
PENALTY = Penalty(limit=2, window=600, steps=(60.0, 600.0))
OTHER = "throttle:ip:{b}:other:c60"


class Door:
    """A profile with one window and a penalty, optionally beside a window of another profile."""

    def __init__(self, run: Callable[[Any], Any], clock: Clock, policy: Policy) -> None:
        self.run = run
        self.clock = clock
        self.policy = policy
        self.keys = ("throttle:ip:{a}:login:w", "throttle:ip:{a}:login:p600")

    def ask(
        self,
        *,
        cost: int = 1,
        observed: bool = False,
        writes: bool = True,
        ages: tuple[int, ...] = (),
        penalty: Penalty = PENALTY,
        count_rejected: bool = False,
        beside: WindowRule | None = None,
    ) -> tuple[bool, WindowAnswer, WindowAnswer]:
        rules = (
            WindowRule(self.policy, cost, observed, count_rejected),
            WindowRule(penalty, cost, observed, watches=1, unreported=ages),
        )
        keys = self.keys
        if beside is not None:
            rules, keys = (*rules, beside), (*keys, OTHER)
        admitted, clock, *rest = self.run(Evaluate(keys, rules, writes))
        assert clock == self.clock.now
        windows = [
            WindowAnswer(bool(a), *others) for a, *others in zip(*[iter(rest)] * 4, strict=True)
        ]
        return bool(admitted), windows[0], windows[1]

    def refuse(self, times: int) -> tuple[bool, WindowAnswer, WindowAnswer]:
        for _ in range(times):
            last = self.ask()
            assert not last[0]
        return last

    def block(self) -> int:
        """Cause a block, and return its duration."""
        while self.ask()[2].admits:
            pass
        return self.ask()[2].retry


@pytest.fixture(params=["memory", "redis", "client"])
def store(request: pytest.FixtureRequest) -> Iterator[Any]:
    clock = Clock()
    if request.param == "memory":
        yield MemoryStore(clock=clock)
        return
    request.getfixturevalue("redis")
    store = (RedisStore if request.param == "redis" else ClientStore)("default", clock=clock)
    yield store
    store.close()


@pytest.fixture(params=["sync", "async"])
def run(store: Any, request: pytest.FixtureRequest) -> Iterator[Callable[[Any], Any]]:
    if request.param == "sync":
        yield partial(ask, store)
        return
    loop = asyncio.new_event_loop()
    yield lambda call: loop.run_until_complete(store.arun(call))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.fixture
def door(store: Any, run: Callable[[Any], Any]) -> Door:
    return Door(run, store._clock, Policy(limit=1, window=60, algorithm="log"))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_refusals_beyond_the_tolerated_ones_block(
    store: Any, run: Callable[[Any], Any], algorithm: str
) -> None:
    door = Door(run, store._clock, Policy(limit=1, window=30, algorithm=algorithm))
    assert door.ask()[2] == WindowAnswer(True, 2, 0, 0)
    assert [door.ask()[2] for _ in range(2)] == [
        WindowAnswer(True, 1, 0, PENALTY.window_us),
        WindowAnswer(True, 0, 0, PENALTY.window_us),
    ]
    admitted, window, penalty = door.ask()
    assert not admitted
    assert penalty == WindowAnswer(False, 2, MINUTE, MINUTE)
    assert not window.admits
    assert window.remaining == 0
    assert window.retry == max(MINUTE, window.retry)


def test_block_ends_to_the_microsecond(door: Door) -> None:
    began = door.clock.now
    assert door.block() == MINUTE
    door.clock.now = began + MINUTE - 1
    assert door.ask()[0] is False
    assert door.ask()[2].retry == 1
    door.clock.now = began + MINUTE
    assert door.ask()[0] is True


def test_refusals_while_blocked_neither_count_nor_extend_the_block(door: Door) -> None:
    began = door.clock.now
    door.block()
    door.clock.now += MINUTE // 2
    assert door.refuse(50)[2] == WindowAnswer(False, 2, MINUTE // 2, MINUTE // 2)
    door.clock.now = began + MINUTE
    assert door.ask()[2] == WindowAnswer(True, 2, 0, 0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_blocked_request_stores_nothing(
    store: Any, run: Callable[[Any], Any], algorithm: str
) -> None:
    door = Door(run, store._clock, Policy(limit=3, window=30, algorithm=algorithm))
    door.ask(cost=3)
    while door.ask(count_rejected=True)[2].admits:
        pass
    # All hits have expired, and the block continues.
    door.clock.now += 10 * MINUTE
    door.clock.now -= door.clock.now % (30 * SECOND)
    longer = Penalty(limit=0, window=600, steps=(86_400.0,))
    assert door.ask(cost=4, penalty=longer)[2].retry == 86_400 * SECOND
    assert door.ask(penalty=longer, count_rejected=True)[1] == WindowAnswer(
        False, 0, 86_400 * SECOND, 0
    )
    run(Reset(door.keys[1:]))
    assert door.ask()[1].remaining == 2


def test_each_offence_blocks_for_the_next_step_and_the_last_step_repeats(door: Door) -> None:
    blocked = []
    for _ in range(4):
        blocked.append(door.block())
        door.clock.now += blocked[-1]
    assert blocked == [MINUTE, 10 * MINUTE, 10 * MINUTE, 10 * MINUTE]


@pytest.mark.parametrize(("early", "step"), [(1, 10 * MINUTE), (0, MINUTE)])
def test_offences_expire_the_last_step_and_the_window_after_a_block(
    door: Door, early: int, step: int
) -> None:
    door.clock.now += door.block() + 10 * MINUTE + 10 * MINUTE - early
    assert door.block() == step


def test_refusals_expire_to_the_microsecond(door: Door) -> None:
    door.ask()
    door.refuse(1)
    door.clock.now += 10 * MINUTE - 1
    assert door.ask()[2] == WindowAnswer(True, 1, 0, 1)
    door.refuse(1)
    door.clock.now += 1
    assert door.ask()[2].remaining == 0
    assert door.ask()[2].admits is False


def test_no_tolerance_blocks_with_the_first_refusal(door: Door) -> None:
    strict = Penalty(limit=0, window=600, steps=(60.0,))
    assert door.ask(penalty=strict)[0]
    assert door.ask(penalty=strict)[2] == WindowAnswer(False, 0, MINUTE, MINUTE)


def test_retry_is_the_longer_wait_of_window_and_block(
    store: Any, run: Callable[[Any], Any]
) -> None:
    door = Door(run, store._clock, Policy(limit=1, window=3_600, algorithm="log"))
    door.block()
    _, window, penalty = door.ask()
    assert (window.retry, penalty.retry) == (3_600 * SECOND, MINUTE)
    assert door.ask(cost=2)[1].retry == -1


def test_cost_of_zero_passes_and_sees_the_block(door: Door) -> None:
    door.block()
    admitted, window, penalty = door.ask(cost=0)
    assert admitted
    assert window.admits
    assert not penalty.admits


def test_peek_returns_the_answer_of_check_and_changes_nothing(door: Door) -> None:
    door.ask()
    door.refuse(2)
    looks = [door.ask(writes=False) for _ in range(3)]
    assert looks[0] == looks[2]
    assert looks[0] == door.ask()


def test_observed_block_admits_and_is_reported(door: Door) -> None:
    for _ in range(3):
        assert door.ask(observed=True)[0]
    admitted, window, penalty = door.ask(observed=True)
    assert admitted
    assert (window.admits, window.retry, penalty.retry) == (False, MINUTE, MINUTE)
    # As with an enforced block, nothing is stored during the block.
    door.clock.now += MINUTE - 1
    door.ask(observed=True)
    door.clock.now += 1
    assert door.ask(observed=True)[1].admits


def test_block_charges_no_other_profile_and_refusals_of_others_are_no_offence(door: Door) -> None:
    beside = WindowRule(Policy(limit=1, window=60), 1)
    assert door.ask(beside=beside)[0]
    door.clock.now += MINUTE
    # The other profile refuses, but this one has room.
    door.run(Evaluate((OTHER,), (beside,), True))
    assert door.ask(beside=beside)[2].remaining == 2
    door.block()
    door.clock.now += MINUTE - 1
    assert not door.ask(beside=beside)[0]
    assert door.run(Evaluate((OTHER,), (beside,), False))[3] == 0
    door.clock.now += 1
    assert door.ask(beside=beside)[0]


def test_reported_refusals_count_at_their_own_time(door: Door) -> None:
    assert door.ask(ages=(5 * MINUTE, MINUTE))[2] == WindowAnswer(True, 0, 0, 5 * MINUTE)
    door.clock.now += 5 * MINUTE
    assert door.ask()[2] == WindowAnswer(True, 1, 0, 4 * MINUTE)


def test_too_many_reported_refusals_block_a_request_that_has_room(door: Door) -> None:
    admitted, window, penalty = door.ask(ages=(3, 2, 1))
    assert not admitted
    assert window == WindowAnswer(False, 0, MINUTE, 0)
    assert penalty.retry == MINUTE


def test_reported_refusals_from_before_the_end_of_a_block_do_not_count(door: Door) -> None:
    door.block()
    assert door.ask(ages=(1,))[2].retry == MINUTE
    door.clock.now += MINUTE + 10
    assert door.ask(ages=(11, 12))[2].remaining == 2
    assert door.ask(ages=(10,))[2].remaining == 0
    door.clock.now += 10 * MINUTE
    assert door.ask(ages=(10 * MINUTE,))[2].remaining == 2


def test_clock_that_steps_back_blocks_no_longer_than_a_step(door: Door) -> None:
    door.block()
    door.clock.now -= 3_600 * SECOND
    assert door.ask(writes=False)[2].retry == MINUTE
    assert door.ask()[2].retry == MINUTE
    door.clock.now += MINUTE - 1
    assert door.ask()[2].retry == 1


def test_refusals_in_the_future_count_for_one_window_from_now(door: Door) -> None:
    door.ask()
    door.refuse(1)
    door.clock.now -= 3_600 * SECOND
    assert door.ask()[2] == WindowAnswer(True, 0, 0, PENALTY.window_us)


def test_reset_unblocks(door: Door) -> None:
    door.block()
    assert door.run(Reset(door.keys)) == [2]
    assert door.ask()[2] == WindowAnswer(True, 2, 0, 0)


def test_profiles_of_one_scope_share_a_penalty_and_count_a_request_once(door: Door) -> None:
    one = WindowRule(door.policy, 1), WindowRule(PENALTY, 1, watches=1)
    keys = (*door.keys, "throttle:ip:{a}:login:c9", door.keys[1])
    other = WindowRule(Policy(limit=0, window=9), 1), WindowRule(PENALTY, 1, watches=1)
    for left in (1, 0):
        reply = door.run(Evaluate(keys, (*one, *other), True))
        assert (reply[7], reply[15]) == (left, left)
    assert list(door.run(Evaluate(keys, (*one, *other), True)))[6::8] == [0, 0]


def test_penalty_can_be_read_without_windows(door: Door) -> None:
    door.block()
    look = Evaluate(door.keys[1:], (WindowRule(PENALTY, 0),), False)
    assert list(door.run(look))[2:] == [0, 2, MINUTE, MINUTE]


def test_units_can_be_leased_beside_a_penalty(redis: Redis) -> None:
    store = RedisStore("default", clock=Clock())
    rules = (
        WindowRule(Policy(limit=100, window=60, lease=10), 1),
        WindowRule(Policy(limit=1, window=60), 1),
        WindowRule(PENALTY, 1, watches=1),
    )
    keys = ("throttle:ip:{a}:leased:c60", "throttle:ip:{a}:login:c60", "throttle:ip:{a}:login:p600")
    ahead = (Ahead(5, 8), Ahead(), Ahead())
    reply = store.run(Evaluate(keys, rules, True, None, ahead))
    assert reply.admitted
    assert reply.granted == (5, 0, 0)
    for blocked in (0, 0, 1):
        reply = store.run(Evaluate(keys, rules, True, None, ahead))
        assert reply.granted == (0, 0, 0)
        assert reply.window(2).admits == 1 - blocked
    store.close()


@pytest.mark.parametrize("value", [b"", b"\x01\x01", b"\x02" + bytes(8), b"\x01" + bytes(10)])
def test_damaged_value_is_an_error_of_its_key(redis: Redis, value: bytes) -> None:
    store = RedisStore("default", clock=Clock())
    door = Door(partial(ask, store), store._clock, Policy(limit=1, window=60))
    redis.set(door.keys[1], value)
    with pytest.raises(StoreError, match=r"damaged value in KEYS\[2\]") as raised:
        door.ask()
    assert not raised.value.outage
    store.run(Reset(door.keys))
    assert door.ask()[0]
    store.close()


def test_penalty_expires_when_nothing_in_it_counts(redis: Redis) -> None:
    store = RedisStore("default", clock=Clock())
    door = Door(partial(ask, store), store._clock, Policy(limit=1, window=60))
    door.ask()
    assert not redis.exists(door.keys[1])
    door.refuse(1)
    assert 599_000 < redis.pttl(door.keys[1]) <= 600_001
    door.block()
    assert 1_259_000 < redis.pttl(door.keys[1]) <= 1_260_001
    assert redis.strlen(door.keys[1]) == 9
    store.close()


def test_memory_store_drops_an_expired_penalty() -> None:
    store = MemoryStore(clock=Clock())
    door = Door(partial(ask, store), store._clock, Policy(limit=1, window=60))
    door.block()
    assert len(store) == 2
    door.clock.now += 10 * 3_600 * SECOND
    hit = WindowRule(Policy(limit=100, window=60), 1)
    for _ in range(8):
        store.run(Evaluate((OTHER,), (hit,), True))
    assert len(store) == 1
