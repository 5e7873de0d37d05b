"""Callers that wait are admitted in their order, and only the first of them asks the store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.core.waiting_lines import Ask, Pause, Turn, atake, take
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.decisions import Decision
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.stores.memory import MemoryStore
from django_slidingwindow.stores.protocol import Reply, WindowRules
from django_slidingwindow.stores.redis import RedisStore
from tests.support.clock import SECOND
from tests.support.servers.redis import wait_until

if TYPE_CHECKING:
    from redis import Redis
    from typing_extensions import Self

WAITERS = 20


def checks(
    rate: str = "2/100ms", cost: int = 1, algorithm: str = "compact", **fields: Any
) -> list[ProfileCheck]:
    policy = Policy.parse(rate, algorithm=algorithm)
    profile = Profile(name="upstream", axis="global", policies=(policy,), **fields)
    return [ProfileCheck(profile, "x", profile.policies, cost)]


@pytest.fixture
def limiter(redis: Redis) -> Iterator[Limiter]:
    limiter = Limiter(RedisStore("default", budget=60))
    yield limiter
    assert len(limiter._lines) == 0, "all have left"
    limiter.close()


class Crowd:
    """Callers of `acquire` that come one after the other, in threads or in tasks of a loop."""

    def __init__(self, limiter: Limiter, kind: str) -> None:
        self.limiter = limiter
        self.kind = kind
        self.admitted: list[int] = []
        self.joined = threading.Semaphore(0)
        join = limiter._lines._join

        def joining(plan: Any) -> Any:
            found = join(plan)
            self.joined.release()
            return found

        limiter._lines._join = joining  # type: ignore[method-assign]

    def add(self, number: int, mine: list[ProfileCheck], timeout: float | None = None) -> Any:
        """Return the future of a caller that stands in the line."""
        if self.kind == "threads" or (self.kind == "both" and number % 2):
            found: Any = self.pool.submit(
                lambda: self._note(
                    number,
                    self.limiter.acquire(self.limiter.windows(mine), timeout),
                )
            )
        else:
            found = asyncio.run_coroutine_threadsafe(self._wait(number, mine, timeout), self.loop)
        assert self.joined.acquire(timeout=60), "it stands in the line"
        return found

    async def _wait(self, number: int, mine: list[ProfileCheck], timeout: float | None) -> Decision:
        return self._note(
            number,
            await self.limiter.aacquire(self.limiter.windows(mine), timeout),
        )

    def _note(self, number: int, decision: Decision) -> Decision:
        assert decision.allowed
        self.admitted.append(number)
        return decision

    def __enter__(self) -> Self:
        self.pool = ThreadPoolExecutor(WAITERS)
        self.loop = asyncio.new_event_loop()
        self.runner = threading.Thread(target=self.loop.run_forever)
        self.runner.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()
        asyncio.run_coroutine_threadsafe(self.loop.shutdown_asyncgens(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.runner.join()
        self.loop.close()


@pytest.fixture(params=["threads", "tasks", "both"])
def crowd(request: pytest.FixtureRequest, limiter: Limiter) -> Iterator[Crowd]:
    with Crowd(limiter, request.param) as crowd:
        yield crowd


def first_waits(limiter: Limiter) -> bool:
    return any(line.opens is not None for line in tuple(limiter._lines._lines.values()))


def asked(redis: Redis) -> int:
    return redis.info("commandstats")["cmdstat_evalsha"]["calls"]  # type: ignore[no-any-return]


class Held:
    """Windows that are full for an hour, until they are freed."""

    def __init__(self, limiter: Limiter) -> None:
        self.limiter = limiter
        self.mine = checks("1/h")
        assert limiter.charge(limiter.windows(self.mine)).allowed

    def free(self) -> None:
        self.limiter.reset(self.limiter.windows([self.mine[0]]).keys)


@pytest.fixture
def held(limiter: Limiter, monkeypatch: pytest.MonkeyPatch) -> Held:
    # So that the first soon notices that they are free.
    monkeypatch.setattr("django_slidingwindow.core.waiting_lines._LONGEST_PAUSE", 0.01)
    return Held(limiter)


def test_waiters_are_admitted_in_their_order_with_few_calls(
    crowd: Crowd, limiter: Limiter, redis: Redis
) -> None:
    mine = checks("4/400ms")
    limiter.charge(limiter.windows(checks("4/400ms", cost=4)))
    redis.config_resetstat()
    waiting = [crowd.add(number, mine) for number in range(WAITERS)]
    for one in waiting:
        one.result(timeout=60)
    assert crowd.admitted == list(range(WAITERS))
    # Each is admitted once, and refused at most once: if it came before the first was refused.
    # The rest is for pauses that end early.
    assert asked(redis) <= 2.2 * WAITERS


def test_only_the_first_of_a_line_asks(limiter: Limiter, redis: Redis) -> None:
    mine = checks(f"{WAITERS}/2s")
    limiter.charge(limiter.windows(checks(f"{WAITERS}/2s", cost=WAITERS)))
    redis.config_resetstat()
    with Crowd(limiter, "both") as crowd:
        waiting = [crowd.add(0, mine)]
        wait_until(lambda: first_waits(limiter), "it was refused")
        waiting += [crowd.add(number, mine) for number in range(1, WAITERS)]
        for one in waiting:
            one.result(timeout=60)
    assert crowd.admitted == list(range(WAITERS))
    # One more, if a pause ends early.
    assert WAITERS < asked(redis) <= WAITERS + 2


def test_cancelled_waiter_does_not_hold_up_the_others(limiter: Limiter, held: Held) -> None:
    with Crowd(limiter, "tasks") as crowd:
        waiting = [crowd.add(number, held.mine) for number in range(5)]
        for number in (0, 2):
            waiting[number].cancel()
        wait_until(lambda: len(limiter._lines) == 3, "they have left")
        for number in (1, 3, 4):
            held.free()
            assert waiting[number].result(timeout=60).allowed
    assert crowd.admitted == [1, 3, 4]


async def test_abandoned_waiter_leaves_the_line(limiter: Limiter, held: Held) -> None:
    first = asyncio.ensure_future(limiter.aacquire(limiter.windows(held.mine)))
    await asyncio.to_thread(wait_until, lambda: first_waits(limiter), "it was refused")
    second = limiter.aacquire(limiter.windows(held.mine))
    second.send(None)
    assert len(limiter._lines) == 2
    second.close()
    assert len(limiter._lines) == 1
    held.free()
    assert (await first).allowed


def test_waiter_is_refused_at_once_if_the_first_waits_longer_than_it_can(
    crowd: Crowd, held: Held, limiter: Limiter
) -> None:
    first = crowd.add(0, held.mine)
    wait_until(lambda: first_waits(limiter), "it was refused")
    decision = limiter.acquire(limiter.windows(held.mine), timeout=600)
    assert not decision.allowed
    assert decision.retry_after is not None
    assert decision.retry_after > 600
    held.free()
    assert first.result(timeout=60).allowed


class Now:
    """A clock in seconds, and a limiter in memory that goes by it."""

    def __init__(self) -> None:
        self.now = 0.0
        store = MemoryStore(clock=lambda: round(self.now * SECOND))
        self.limiter = Limiter(store, clock=lambda: self.now)

    def begin(self, mine: list[ProfileCheck], timeout: float | None = None) -> Any:
        """Return the flow of a caller that cannot be admitted now, and what it waits for."""
        flow = self.limiter._lines.acquire(self.limiter.windows(mine), timeout)
        step = next(flow)
        return flow, flow.send(self.limiter.charge(self.limiter.windows(mine))) if isinstance(
            step, Ask
        ) else step

    def end(self, flow: Any, mine: list[ProfileCheck]) -> Decision:
        """Return what the flow comes to that asks now."""
        with pytest.raises(StopIteration) as ended:
            flow.send(self.limiter.charge(self.limiter.windows(mine)))
        return ended.value.value  # type: ignore[no-any-return]


def test_waiter_whose_time_is_up_asks_once_more_out_of_turn() -> None:
    clock, mine = Now(), checks("1/4s")
    clock.limiter.charge(clock.limiter.windows(mine))
    first, pause = clock.begin(mine)
    assert pause == Pause(4.0)
    second, turn = clock.begin(mine, timeout=4.0)
    assert turn.seconds == 4.0
    clock.now = 4.0
    assert isinstance(second.send(None), Ask)
    assert clock.end(second, mine).allowed
    assert isinstance(first.send(None), Ask)
    assert first.send(clock.limiter.charge(clock.limiter.windows(mine))) == Pause(4.0)
    first.close()


def test_waiter_is_refused_when_the_next_slot_is_too_late_for_it() -> None:
    clock, mine = Now(), checks("1/4s")
    clock.limiter.charge(clock.limiter.windows(mine))
    first, _ = clock.begin(mine)
    second, turn = clock.begin(mine, timeout=6.0)
    clock.now = 4.0
    assert isinstance(first.send(None), Ask)
    assert not turn.comes.done()
    assert clock.end(first, mine).allowed
    assert turn.comes.done()
    assert isinstance(second.send(None), Ask), "the next slot comes at 8"
    assert clock.end(second, mine).retry_after == 4.0


def test_next_waiter_asks_when_there_can_be_room() -> None:
    """An admission that leaves nothing says when that is, unless it is an estimate."""
    for rate, algorithm, waits in (
        ("1/2s", "compact", [Pause(2.0)]),
        ("2/2s", "compact", []),
        ("1/2s", "counter", []),
    ):
        clock, mine = Now(), checks(rate, algorithm=algorithm)
        all_of_it = checks(rate, mine[0].policies[0].limit, algorithm)
        clock.limiter.charge(clock.limiter.windows(all_of_it))
        first, pause = clock.begin(mine)
        second, _ = clock.begin(mine)
        clock.now += pause.seconds
        assert isinstance(first.send(None), Ask)
        assert clock.end(first, mine).allowed
        steps = [second.send(None)]
        if isinstance(steps[0], Pause):
            clock.now += steps[0].seconds
            steps.append(second.send(None))
        assert steps[:-1] == waits
        assert isinstance(steps[-1], Ask)
        second.close()


def test_first_in_line_is_skipped_when_it_does_not_ask() -> None:
    clock, mine = Now(), checks("1/4s")
    clock.limiter.charge(clock.limiter.windows(mine))
    first, _ = clock.begin(mine)
    second, turn = clock.begin(mine)
    assert turn.seconds == 9.0
    clock.now = 9.0
    assert isinstance(second.send(None), Ask)
    assert clock.end(second, mine).allowed
    first.close()


def test_first_asks_now_and_then_whether_room_was_made() -> None:
    clock, mine = Now(), checks("1/h")
    clock.limiter.charge(clock.limiter.windows(mine))
    first, pause = clock.begin(mine)
    assert pause == Pause(5.0)
    clock.limiter.reset(clock.limiter.windows([mine[0]]).keys)
    assert isinstance(first.send(None), Ask)
    assert clock.end(first, mine).allowed


def test_refusal_that_has_ended_still_causes_a_pause() -> None:
    clock, mine = Now(), checks("1/4s")
    flow = clock.limiter._lines.acquire(clock.limiter.windows(mine), None)
    next(flow)
    clock.limiter.charge(clock.limiter.windows(mine))
    refusal = clock.limiter.charge(clock.limiter.windows(mine)).replace(retry_after=0.0)
    assert flow.send(refusal).seconds == pytest.approx(0.005)  # type: ignore[union-attr]
    flow.close()


def test_first_does_not_ask_early_when_refusals_count() -> None:
    clock, mine = Now(), checks("1/h", count_rejected=True)
    clock.limiter.charge(clock.limiter.windows(mine))
    clock.now = 60.0
    first, pause = clock.begin(mine)
    assert pause == Pause(3_600.0)
    clock.now += pause.seconds
    assert isinstance(first.send(None), Ask)
    assert clock.end(first, mine).allowed


async def test_turn_is_awaited_no_longer_than_its_seconds() -> None:
    turn = Turn(Future(), 0.01)
    take(turn)
    await atake(turn)
    assert not turn.comes.done()


def test_callers_that_find_room_do_not_wait_for_each_other() -> None:
    limiter = Limiter(MemoryStore())
    mine = checks("100/h")
    flows = [limiter._lines.acquire(limiter.windows(mine), None) for _ in range(3)]
    assert [type(next(flow)).__name__ for flow in flows] == ["Ask"] * 3
    for flow in flows[::-1]:
        with pytest.raises(StopIteration):
            flow.send(limiter.charge(limiter.windows(mine)))
    assert len(limiter._lines) == 0


def test_other_cost_and_limit_have_lines_of_their_own(
    limiter: Limiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_slidingwindow.core.waiting_lines._LONGEST_PAUSE", 0.01)
    with Crowd(limiter, "threads") as crowd:
        limiter.charge(limiter.windows(checks("2/h", cost=2)))
        waiting = crowd.add(0, checks("2/h", cost=2), timeout=None)
        assert not limiter.acquire(limiter.windows(checks("2/h")), timeout=1).allowed
        assert limiter.acquire(limiter.windows(checks("3/h")), timeout=1).allowed
        assert limiter.reset(limiter.windows([checks("2/h")[0]]).keys) == 1
        assert waiting.result(timeout=60).allowed


def test_call_is_admitted_by_a_fallback_that_allows_more_than_the_limit() -> None:
    class Away(MemoryStore):
        def charge(self, keys: tuple[str, ...], rules: WindowRules) -> Reply:
            raise StoreError("away")

    limiter = Limiter(Away(), fallback="allow")
    decision = limiter.acquire(limiter.windows(checks("0/h")))
    assert decision.allowed
    assert decision.remaining == 0
