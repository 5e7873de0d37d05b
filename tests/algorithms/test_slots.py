"""Slots of requests in flight: Redis and memory give the same replies, which an oracle checks."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from redis.exceptions import ResponseError

from django_slidingwindow.algorithms.scripts import script
from django_slidingwindow.algorithms.slots import Taken
from django_slidingwindow.decisions import Charge
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.policies import ALGORITHMS, SLOTS, Policy
from django_slidingwindow.stores.client import ClientStore
from django_slidingwindow.stores.memory import MemoryStore
from django_slidingwindow.stores.protocol import (
    Ahead,
    Evaluate,
    Refund,
    Reply,
    Reset,
    WindowRule,
    WindowRules,
)
from django_slidingwindow.stores.redis import RedisStore
from tests.support.clock import SECOND, START, Clock
from tests.support.store_harness import key_of

if TYPE_CHECKING:
    from redis import Redis

    from tests.support.servers import RedisServer

HOLD = 120
FIVE = Policy(limit=5, window=HOLD, algorithm=SLOTS)


class Bench:
    """A store with a clock, and the calls that a limiter makes."""

    def __init__(self, store: Any, clock: Clock, wait: Callable[[Any], Any] | None) -> None:
        self.store = store
        self.clock = clock
        self._wait = wait

    def take(self, policy: Policy = FIVE, cost: int = 1, **options: Any) -> Reply:
        return self.charge((key_of(policy),), (WindowRule(policy, cost, **options),))

    def charge(self, keys: tuple[str, ...], rules: tuple[WindowRule, ...]) -> Reply:
        given = keys, WindowRules(rules)
        if self._wait is None:
            return Reply(self.store.charge(*given))
        return Reply(self._wait(self.store.acharge(*given)))

    def run(self, call: Any) -> Any:
        return self.store.run(call) if self._wait is None else self._wait(self.store.arun(call))

    def free(self, taken: int, cost: int = 1, policy: Policy = FIVE) -> int:
        (freed,) = self.run(Refund((Charge(key_of(policy), policy, cost),), taken))
        return int(freed)

    def left(self, policy: Policy = FIVE) -> int:
        reply = self.run(Evaluate((key_of(policy),), (WindowRule(policy, 0),), False))
        return int(reply.window(0).remaining)


@pytest.fixture(params=["memory", "redis", "client"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def store_of(kind: str, clock: Clock, request: pytest.FixtureRequest) -> Any:
    if kind == "memory":
        return MemoryStore(clock=clock)
    request.getfixturevalue("redis")
    return (RedisStore if kind == "redis" else ClientStore)("default", clock=clock)


@pytest.fixture(params=["sync", "async"])
def bench(kind: str, request: pytest.FixtureRequest) -> Iterator[Bench]:
    clock = Clock()
    store = store_of(kind, clock, request)
    if request.param == "sync":
        yield Bench(store, clock, None)
    else:
        loop = asyncio.new_event_loop()
        yield Bench(store, clock, loop.run_until_complete)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    store.close()


def test_slots_are_admitted_up_to_the_limit(bench: Bench) -> None:
    replies = [bench.take() for _ in range(7)]
    assert [reply.admitted for reply in replies] == [1] * 5 + [0] * 2
    assert list(replies[4])[2:] == [1, 0, 0, HOLD * SECOND]
    # It is not known when a slot is given back, so a refusal does not say how long to wait.
    assert list(replies[5])[2:] == [0, 0, 0, HOLD * SECOND]


def test_slot_is_free_after_hold_and_not_a_microsecond_earlier(bench: Bench) -> None:
    for _ in range(5):
        bench.take()
        bench.clock.now += SECOND
    bench.clock.now = START + HOLD * SECOND - 1
    assert bench.take().window(0)[:] == (0, 0, 0, 1)
    bench.clock.now += 1
    assert bench.take().window(0)[:] == (1, 0, 0, SECOND)
    assert not bench.take().admitted


def test_slots_of_one_microsecond_are_given_back_one_by_one(bench: Bench) -> None:
    taken = [bench.take().clock for _ in range(5)]
    assert len({int(one) for one in taken}) == 1
    assert len({one.token for one in taken}) == 5
    for number, one in enumerate(taken, 1):
        assert bench.free(one) == 1
        assert bench.free(one) == 0
        assert bench.left() == number


def test_cost_takes_and_frees_as_many_slots(bench: Bench) -> None:
    one, three = bench.take().clock, bench.take(cost=3).clock
    assert bench.left() == 1
    assert not bench.take(cost=2).admitted
    assert bench.free(three, cost=3) == 3
    assert bench.left() == 4
    assert bench.free(one) == 1
    assert bench.take(cost=6).window(0)[:] == (0, 5, -1, 0)


def test_giving_back_is_harmless_after_a_reset_in_the_same_microsecond(bench: Bench) -> None:
    before = bench.take().clock
    bench.run(Reset((key_of(FIVE),)))
    after = bench.take().clock
    assert bench.free(before) == 0
    assert bench.left() == 4
    assert bench.free(after) == 1


def test_giving_back_is_harmless_after_hold(bench: Bench) -> None:
    before = bench.take().clock
    bench.clock.now += HOLD * SECOND
    after = bench.take().clock
    assert bench.free(before) == 0
    bench.clock.now += 1
    assert bench.left() == 4
    assert bench.free(after) == 1
    assert bench.free(after) == 0


def test_giving_back_without_a_token_frees_nothing(bench: Bench) -> None:
    taken = bench.take().clock
    assert bench.free(int(taken)) == 0
    assert bench.left() == 4


def test_slots_ahead_of_a_clock_that_steps_back_end_a_hold_from_then(bench: Bench) -> None:
    taken = [bench.take().clock for _ in range(5)]
    bench.clock.now -= 50 * SECOND
    assert not bench.take().admitted
    assert bench.free(taken[0]) == 1
    bench.clock.now += HOLD * SECOND - 1
    assert bench.left() == 1
    bench.clock.now += 1
    assert bench.left() == 5


def test_refusals_that_count_elsewhere_take_no_slot(bench: Bench) -> None:
    for _ in range(8):
        bench.take(count_rejected=True)
    bench.clock.now += HOLD * SECOND - 1
    assert not bench.take(count_rejected=True).admitted
    bench.clock.now += 1
    assert bench.left() == 5


def test_observed_slots_are_counted_and_refuse_nobody(bench: Bench) -> None:
    replies = [bench.take(observed=True) for _ in range(7)]
    assert [reply.admitted for reply in replies] == [1] * 7
    assert [reply.window(0).admits for reply in replies] == [1] * 5 + [0] * 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rate_and_slot_are_taken_together_or_not_at_all(bench: Bench, algorithm: str) -> None:
    rate = Policy(limit=3, window=60, algorithm=algorithm)
    two = Policy(limit=2, window=HOLD, algorithm=SLOTS)
    keys, rules = (key_of(rate), key_of(two)), (WindowRule(rate, 1), WindowRule(two, 1))
    taken = [bench.charge(keys, rules).clock for _ in range(2)]
    assert not bench.charge(keys, rules).admitted
    assert (bench.left(rate), bench.left(two)) == (1, 0)
    assert bench.free(taken[0], policy=two) == 1
    assert bench.charge(keys, rules).admitted
    # Now the rate refuses, and no slot is taken.
    assert bench.free(taken[1], policy=two) == 1
    assert not bench.charge(keys, rules).admitted
    assert (bench.left(rate), bench.left(two)) == (0, 1)


def test_two_profiles_on_one_key_share_a_slot(bench: Bench) -> None:
    other = Policy(limit=3, window=HOLD, algorithm=SLOTS)
    keys = (key_of(FIVE), key_of(other), "throttle:tenant:{acme}:other:i120")
    rules = (WindowRule(FIVE, 1), WindowRule(other, 1), WindowRule(FIVE, 1))
    taken = bench.charge(keys, rules)
    assert [row[1] for row in taken.windows()] == [4, 2, 4]
    # One token is for all slots of a call.
    charges = (Charge(keys[0], FIVE, 1), Charge(keys[2], FIVE, 1))
    assert bench.run(Refund(charges, taken.clock)) == [1, 1]
    assert bench.left() == 5


def test_expired_slots_do_not_stay_in_memory() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    bench = Bench(store, clock, None)
    for name in "abcdef":
        policy = Policy(limit=5, window=HOLD, algorithm=SLOTS)
        bench.charge((key_of(policy, name),), (WindowRule(policy, 1),))
    assert len(store) == 6
    clock.now += HOLD * SECOND
    for _ in range(8):
        bench.take()
    assert len(store) == 1
    assert bench.run(Reset((key_of(FIVE),))) == [1]


def test_key_is_gone_when_the_last_slot_is_free(redis: Redis) -> None:
    bench = Bench(RedisStore("default", clock=Clock()), Clock(), None)
    taken = bench.take().clock
    assert redis.zrange(key_of(FIVE), 0, -1) == [f"{taken.token}-1"]
    # Half a second more, so that a busy key does not need a new expiry for every hit.
    assert HOLD * 1000 <= redis.pttl(key_of(FIVE)) <= HOLD * 1000 + 1001
    bench.free(taken)
    assert not redis.exists(key_of(FIVE))
    bench.store.close()


def test_foreign_members_count_and_leave_and_another_type_is_an_error(redis: Redis) -> None:
    bench = Bench(RedisStore("default", clock=Clock()), Clock(), None)
    redis.zadd(key_of(FIVE), {"foreign": START, "early": float("-inf"), "late": float("inf")})
    assert bench.take().window(0).remaining == 2
    redis.set(key_of(FIVE), "text")
    with pytest.raises(StoreError, match="WRONGTYPE") as raised:
        bench.take()
    assert not raised.value.outage
    bench.store.close()


def test_missing_right_is_not_reported_as_a_damaged_value(fresh_server: RedisServer) -> None:
    with fresh_server.client() as client:
        client.acl_setuser("default", enabled=True, nopass=True, commands=["+@all", "-zcard"])
        source = script("evaluate", (SLOTS,)).source
        with pytest.raises(ResponseError, match=r"can't run this command|no permissions"):
            client.eval(source, 1, key_of(FIVE), "w", b"i" + bytes(23) + b"0", "token")


def test_slots_beside_a_lease_in_one_call(redis: Redis) -> None:
    bench = Bench(RedisStore("default", clock=Clock()), Clock(), None)
    leased = Policy(limit=1_000, window=60, lease=10)
    call = Evaluate(
        (key_of(leased), key_of(FIVE)),
        (WindowRule(leased, 1), WindowRule(FIVE, 1)),
        True,
        ahead=(Ahead(10, 8), Ahead()),
    )
    reply = bench.run(call)
    assert reply.granted == (10, 0)
    assert bench.free(reply.clock) == 1
    assert bench.left() == 5
    bench.store.close()


def test_taken_stays_itself_when_it_is_pickled() -> None:
    taken = Taken(START)
    again = pickle.loads(pickle.dumps(taken))
    assert (again, again.token) == (START, taken.token)
    assert Taken(START).token != taken.token


class Oracle:
    """Slots by brute force. A slot is the number of the call that took it, and the time."""

    def __init__(self, clock: Clock, limit: int, hold: int) -> None:
        self.clock, self.limit, self.hold = clock, limit, hold
        self.slots: list[tuple[int, int]] = []

    def alive(self, *, writes: bool = True) -> list[tuple[int, int]]:
        now = self.clock.now
        alive = [(call, min(at, now)) for call, at in self.slots if at + self.hold > now]
        if writes:
            self.slots = alive
        return alive

    def take(self, call: int, cost: int) -> list[int]:
        alive = self.alive()
        admits = len(alive) + cost <= self.limit
        if admits:
            alive += [(call, self.clock.now)] * cost
        reset = min((at for _, at in alive), default=None)
        until = 0 if reset is None else reset + self.hold - self.clock.now
        never = -1 if cost > self.limit else 0
        return [int(admits), self.limit - len(alive), 0 if admits else never, until]

    def free(self, call: int) -> int:
        freed = [slot for slot in self.alive() if slot[0] == call]
        self.slots = [slot for slot in self.slots if slot[0] != call]
        return len(freed)


@pytest.mark.parametrize("seed", range(8))
def test_random_calls_against_the_oracle(kind: str, seed: int, request: Any) -> None:
    clock = Clock()
    store = store_of(kind, clock, request)
    chance = random.Random(seed)
    bench, oracle = Bench(store, clock, None), Oracle(clock, 5, 10 * SECOND)
    five = Policy(limit=5, window=10, algorithm=SLOTS)
    # For each call that took slots: its number, the clock of its reply, and the cost.
    taken: list[tuple[int, int, int]] = []
    for call in range(300):
        what = chance.random()
        if what < 0.5:
            cost = chance.choice((1, 1, 1, 2, 6))
            reply = bench.take(five, cost)
            assert list(reply)[2:] == oracle.take(call, cost)
            if reply.admitted:
                taken.append((call, reply.clock, cost))
        elif what < 0.85 and taken:
            # The slots may have been given back before.
            earlier, stamp, cost = chance.choice(taken)
            assert bench.free(stamp, cost, five) == oracle.free(earlier)
        elif what < 0.88:
            bench.run(Reset((key_of(five),)))
            oracle.slots = []
        elif what < 0.92:
            clock.now -= chance.randrange(5 * SECOND)
        else:
            clock.now += chance.randrange(4 * SECOND)
        assert bench.left(five) == 5 - len(oracle.alive(writes=False))
    store.close()
