"""Charges that no request waits for: what is decided meanwhile, and what becomes of them."""

from __future__ import annotations

import asyncio
import math
import random
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow import decisions, limits
from django_slidingwindow.core import deferred as deferred_module
from django_slidingwindow.core import outbox as outbox_module
from django_slidingwindow.core.background import Background
from django_slidingwindow.core.breaker import CLOSED, OPEN
from django_slidingwindow.core.callbacks import Callbacks, Sent
from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.policies import ALGORITHMS, Policy, Profile
from django_slidingwindow.stores.memory import MemoryStore
from django_slidingwindow.stores.protocol import PATIENCE
from django_slidingwindow.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_django.fixtures import SettingsWrapper
    from redis import Redis

    from django_slidingwindow.decisions import Decision
    from django_slidingwindow.stores.protocol import Call
    from tests.support.servers import RedisServer

SECOND = 1_000_000


class Time:
    """A clock that is passed in: for the limiter in seconds, for the store in microseconds."""

    def __init__(self) -> None:
        self.now = 1_000 * SECOND

    def microseconds(self) -> int:
        return self.now

    def seconds(self) -> float:
        return self.now / SECOND


class Store(MemoryStore):
    """A store that counts its round trips, and can be away or fail for one key."""

    source = decisions.REDIS
    remote = True

    def __init__(self, time: Time) -> None:
        super().__init__(clock=time.microseconds)
        self.trips = 0
        self.within: float | None = None
        self.error: StoreError | None = None
        self.damaged = ""
        self.meanwhile: Callable[[], object] = lambda: None

    def run_many(self, calls: Sequence[Call], within: float = PATIENCE) -> list[Any]:
        self.trips += 1
        self.within = within
        if self.error is not None:
            raise self.error
        answers = [self._answer(call) for call in calls]
        self.meanwhile()
        return answers

    def _answer(self, call: Call) -> Any:
        if self.damaged and self.damaged in str(call):
            return StoreError("damaged", outage=False)
        return self.run(call)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def store(time: Time) -> Store:
    return Store(time)


@pytest.fixture
def sent() -> list[Sent]:
    return []


@pytest.fixture
def limiter(store: Store, time: Time, sent: list[Sent], asleep: None) -> Limiter:
    return limiter_of(store, time, sent)


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent but by `flush`."""
    monkeypatch.setattr(Background, "wake", lambda self, within=0.0: None)


def limiter_of(store: Any, time: Time, sent: list[Sent] | None = None) -> Limiter:
    callbacks = Callbacks(sent=None if sent is None else sent.append)
    return Limiter(store, clock=time.seconds, callbacks=callbacks)


def profile(limit: int = 3, window: float = 60, **options: Any) -> Profile:
    options = {"name": "later", "axis": "tenant", "mode": "deferred", **options}
    algorithm = options.pop("algorithm", "compact")
    return Profile(policies=(Policy(limit=limit, window=window, algorithm=algorithm),), **options)


def charge(
    limiter: Limiter, *profiles: Profile, identifier: str = "acme", cost: int = 1
) -> Decision:
    checks = [ProfileCheck(each, identifier, each.policies, cost) for each in profiles]
    return limiter.charge(limiter.windows(checks))


def peek(limiter: Limiter, one: Profile, identifier: str = "acme") -> Decision:
    return limiter.peek(limiter.windows([ProfileCheck(one, identifier, one.policies)]))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_requests_are_refused_after_the_store_replied(
    limiter: Limiter, store: Store, time: Time, sent: list[Sent], algorithm: str
) -> None:
    later = profile(algorithm=algorithm)
    found = [charge(limiter, later) for _ in range(5)]
    assert store.trips == 0
    assert [decision.allowed for decision in found] == [True] * 5
    assert [decision.remaining for decision in found] == [2, 1, 0, 0, 0]
    assert {decision.source for decision in found} == {decisions.DEFERRED}
    limiter.deferred.flush()
    assert store.trips == 1
    assert sent == [Sent(charged=5, over=5, lost=0, seconds=0.0, error=None)]
    refusal = charge(limiter, later)
    assert (refusal.allowed, refusal.reason, refusal.source) == (
        False,
        decisions.LIMIT,
        decisions.DEFERRED,
    )
    assert refusal.retry_after is not None
    assert 0 < refusal.retry_after <= 61
    assert refusal.receipt is None
    time.now += round(refusal.retry_after * SECOND)
    assert charge(limiter, later).allowed


def test_remaining_hits_are_known_after_the_first_reply(limiter: Limiter, time: Time) -> None:
    later = profile(limit=5)
    charge(limiter, later, cost=2)
    limiter.deferred.flush()
    time.now += SECOND
    one = charge(limiter, later)
    assert (one.remaining, one.reset_after) == (2, 59.0)
    # Two are left and three are asked for; nothing leaves for another 59 seconds.
    refusal = charge(limiter, later, cost=3)
    assert (refusal.allowed, refusal.remaining, refusal.retry_after) == (False, 2, 59.0)
    assert charge(limiter, later, cost=2).remaining == 0
    assert not charge(limiter, later).allowed


def test_unsent_hits_count_before_they_are_sent(limiter: Limiter) -> None:
    later = profile(limit=3)
    charge(limiter, later)
    limiter.deferred.flush()
    assert [charge(limiter, later).allowed for _ in range(4)] == [True, True, False, False]


@pytest.mark.parametrize(("limit", "cost"), [(0, 1), (3, 4)])
def test_request_that_can_never_pass_is_refused_at_once(
    limiter: Limiter, limit: int, cost: int
) -> None:
    decision = charge(limiter, profile(limit=limit), cost=cost)
    assert (decision.allowed, decision.retry_after) == (False, None)


def test_cost_of_zero_is_not_sent(limiter: Limiter, store: Store, sent: list[Sent]) -> None:
    assert charge(limiter, profile(), cost=0).allowed
    limiter.deferred.flush()
    assert (store.trips, sent) == (0, [])


def test_cost_of_zero_passes_a_window_with_more_hits_than_its_limit(
    limiter: Limiter, store: Store
) -> None:
    later = profile(limit=1)
    charge(limiter, later)
    store.meanwhile = lambda: charge(limiter, later)
    limiter.deferred.flush()
    assert not charge(limiter, later).allowed
    assert charge(limiter, later, cost=0).allowed


@pytest.mark.parametrize("algorithm", ["compact", "log", "buckets"])
def test_counted_refusals_keep_a_client_out(limiter: Limiter, time: Time, algorithm: str) -> None:
    later = profile(limit=3, count_rejected=True, algorithm=algorithm)

    def admitted(cost: int = 1) -> bool:
        allowed = charge(limiter, later, cost=cost).allowed
        limiter.deferred.flush()
        return allowed

    assert admitted(2)
    # Above the limit it counts as much as the limit, in place of the older hits.
    assert not admitted(4)
    for _ in range(8):
        time.now += 15 * SECOND
        assert not admitted()
    time.now += 62 * SECOND
    assert admitted(3)


def test_a_counted_refusal_counts_once_where_policies_share_a_window(
    limiter: Limiter, time: Time, sent: list[Sent]
) -> None:
    profiles = [
        profile(name=f"of {limit}", scope="s", limit=limit, count_rejected=True)
        for limit in (2, 4, 3)
    ]
    assert charge(limiter, *profiles, cost=2).allowed
    limiter.deferred.flush()
    assert not charge(limiter, *profiles, cost=5).allowed
    limiter.deferred.flush()
    assert [one.charged for one in sent] == [2, 4]


class TestSeveralProfiles:
    def test_the_other_is_charged_at_once(self, limiter: Limiter, store: Store) -> None:
        now, later = profile(limit=2, name="now", mode="enforce"), profile(limit=10)
        decision = charge(limiter, now, later)
        assert (decision.profile, decision.remaining, decision.reason) == ("now", 1, "allowed")
        assert [(v.profile, v.remaining) for v in decision.verdicts] == [("now", 1), ("later", 9)]
        assert peek(limiter, now).remaining == 0
        assert peek(limiter, later).remaining == 9
        limiter.deferred.flush()
        assert peek(limiter, later).remaining == 8
        assert limiter.refund(decision) == 2
        limiter.deferred.flush()
        assert (peek(limiter, now).remaining, peek(limiter, later).remaining) == (1, 9)

    def test_a_refusal_by_one_spends_nothing_on_the_other(
        self, limiter: Limiter, store: Store
    ) -> None:
        now, later = profile(limit=1, name="now", mode="enforce"), profile(limit=2)
        assert charge(limiter, now, later).allowed
        refusal = charge(limiter, now, later)
        assert (refusal.allowed, refusal.profile) == (False, "now")
        limiter.deferred.flush()
        assert peek(limiter, later).remaining == 0  # one was charged; this would be the second
        charge(limiter, later)
        limiter.deferred.flush()
        wide = profile(limit=9, name="wide", mode="enforce")
        refusal = charge(limiter, wide, later)
        assert (refusal.allowed, refusal.profile) == (False, "later")
        assert peek(limiter, wide).remaining == 8

    def test_an_observing_profile_is_reported(self, limiter: Limiter) -> None:
        watch = profile(limit=0, name="watch", mode="observe")
        decision = charge(limiter, watch, profile())
        assert (decision.allowed, decision.reason) == (True, decisions.OBSERVED)
        # It does not limit the request, so the decision is about the other profile.
        assert (decision.profile, decision.limit, decision.remaining) == ("later", 3, 2)

    def test_on_an_event_loop_as_well(self, limiter: Limiter) -> None:
        now, later = profile(limit=2, name="now", mode="enforce"), profile(limit=10)
        checks = [ProfileCheck(each, "acme", each.policies) for each in (now, later)]
        windows = limiter.windows(checks)
        decision = asyncio.run(limiter.acharge(windows))
        assert (decision.allowed, decision.profile) == (True, "now")
        assert asyncio.run(limiter.arefund(decision)) == 2

    def test_profiles_that_share_a_window_are_charged_once(self, limiter: Limiter) -> None:
        one, other = profile(name="one", scope="s"), profile(name="other", scope="s", limit=5)
        charge(limiter, one, other)
        limiter.deferred.flush()
        assert peek(limiter, other).remaining == 3

    @pytest.mark.parametrize("limits", [(2, 5), (5, 2)])
    def test_each_of_the_profiles_that_share_a_window_refuses(
        self, limiter: Limiter, time: Time, sent: list[Sent], limits: tuple[int, int]
    ) -> None:
        profiles = [profile(name=f"of {one}", scope="s", limit=one) for one in limits]
        assert [charge(limiter, *profiles).allowed for _ in range(4)] == [True] * 4
        limiter.deferred.flush()
        assert (sent[0].charged, sent[0].over) == (4, 4)
        refusal = charge(limiter, *profiles)
        assert (refusal.allowed, refusal.profile, refusal.remaining) == (False, "of 2", 0)
        time.now += 60 * SECOND
        assert charge(limiter, *profiles).allowed

    def test_hits_that_were_not_sent_count_for_all_profiles_of_a_window(
        self, limiter: Limiter
    ) -> None:
        one, other = profile(name="one", scope="s"), profile(name="other", scope="s", limit=5)
        charge(limiter, one, other)
        limiter.deferred.flush()
        assert charge(limiter, one).remaining == 1
        assert [charge(limiter, other).remaining for _ in range(2)] == [2, 1]
        assert not charge(limiter, one).allowed

    def test_a_window_that_is_also_charged_at_once_is_charged_once(
        self, limiter: Limiter, store: Store
    ) -> None:
        now = profile(limit=5, name="now", scope="s", mode="enforce")
        later, apart = profile(limit=3, scope="s"), profile(name="apart")
        decision = charge(limiter, now, later, apart)
        assert decision.source == decisions.REDIS
        assert peek(limiter, later).remaining == 1
        limiter.deferred.flush()
        assert [peek(limiter, one).remaining for one in (now, later, apart)] == [3, 1, 1]
        assert [charge(limiter, now, later).allowed for _ in range(3)] == [True, True, False]
        assert limiter.refund(decision) == 2
        assert charge(limiter, now, later).allowed

    def test_refund_where_profiles_share_a_window_of_different_resolutions(
        self, limiter: Limiter
    ) -> None:
        profiles = [
            Profile(
                name=f"of {resolution}",
                axis="tenant",
                scope="s",
                mode="deferred",
                policies=(
                    Policy(limit=limit, window=60, algorithm="buckets", resolution=resolution),
                ),
            )
            for limit, resolution in ((5, 7), (9, 60))
        ]
        decision = charge(limiter, *profiles)
        limiter.deferred.flush()
        assert peek(limiter, profiles[0]).remaining == 3
        assert limiter.refund(decision) == 1
        limiter.deferred.flush()
        assert peek(limiter, profiles[0]).remaining == 4


class TestRefunds:
    def test_refund_of_unsent_hits(self, limiter: Limiter, sent: list[Sent]) -> None:
        decision = charge(limiter, profile())
        assert limiter.refund(decision) == 1
        assert limiter.refund(decision) == 0
        limiter.deferred.flush()
        assert sent[0].charged == 0
        assert peek(limiter, profile()).remaining == 2

    def test_refund_of_sent_hits(self, limiter: Limiter) -> None:
        decision = charge(limiter, profile())
        limiter.deferred.flush()
        assert limiter.refund(decision) == 1
        assert peek(limiter, profile()).remaining == 1
        limiter.deferred.flush()
        assert peek(limiter, profile()).remaining == 2

    def test_window_is_read_again_after_a_refund(self, limiter: Limiter, sent: list[Sent]) -> None:
        full, after = profile(limit=2), profile(limit=2, name="after")
        old = [charge(limiter, full), charge(limiter, full)]
        charge(limiter, after)
        limiter.deferred.flush()
        assert not charge(limiter, full).allowed
        assert limiter.refund(old[0]) == 1
        limiter.deferred.flush()
        # The refund made room before these hits came.
        assert [charge(limiter, full).allowed for _ in range(2)] == [True, False]
        assert limiter.refund(old[1]) == 1
        limiter.deferred.flush()
        assert [(one.charged, one.over) for one in sent] == [(3, 0), (0, 0), (1, 0)]
        assert peek(limiter, full).remaining == 0

    def test_refund_of_hits_under_way(self, limiter: Limiter, store: Store) -> None:
        decision = charge(limiter, profile())
        store.meanwhile = lambda: limiter.refund(decision)
        limiter.deferred.flush()
        limiter.deferred.flush()
        assert peek(limiter, profile()).remaining == 2

    def test_refund_of_a_forgotten_window(
        self, limiter: Limiter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(deferred_module, "_MAX_KNOWN", 1)
        later = profile(limit=3)
        decision = charge(limiter, later)
        charge(limiter, later, identifier="other")
        limiter.refund(decision)
        assert charge(limiter, later).remaining == 2


class TestReset:
    def test_reset_forgets_known_windows(self, limiter: Limiter) -> None:
        later = profile(limit=1)
        charge(limiter, later)
        limiter.deferred.flush()
        windows = limiter.windows([ProfileCheck(later, "acme", later.policies)])
        assert not charge(limiter, later).allowed
        limiter.reset(["another"])
        assert not charge(limiter, later).allowed
        limiter.reset(windows.keys)
        assert charge(limiter, later).allowed

    def test_reset_drops_unsent_hits(self, limiter: Limiter, sent: list[Sent]) -> None:
        later = profile(limit=3)
        windows = limiter.windows([ProfileCheck(later, "acme", later.policies)])
        old = [charge(limiter, later) for _ in range(3)]
        limiter.reset(windows.keys)
        # It has nothing to give back any more.
        limiter.refund(old[0])
        assert [charge(limiter, later).remaining for _ in range(3)] == [2, 1, 0]
        limiter.deferred.flush()
        assert (sent[0].charged, sent[0].over) == (3, 0)

    def test_reply_from_before_a_reset_is_ignored(self, limiter: Limiter, store: Store) -> None:
        later = profile(limit=1)
        windows = limiter.windows([ProfileCheck(later, "acme", later.policies)])
        charge(limiter, later)

        def reset_and_charge() -> None:
            limiter.reset(windows.keys)
            charge(limiter, later)

        store.meanwhile = reset_and_charge
        limiter.deferred.flush()
        # It is not full, as far as is known, but one hit waits.
        assert (charge(limiter, later).allowed, peek(limiter, later).remaining) == (True, 0)
        assert limiter.deferred._outbox.unsent(windows.keys[0]) == 2

    def test_reset_of_another_window_keeps_charges_under_way(
        self, limiter: Limiter, store: Store
    ) -> None:
        later = profile(limit=1)
        charge(limiter, later)
        store.meanwhile = lambda: limiter.reset(["another"])
        limiter.deferred.flush()
        assert not charge(limiter, later).allowed

    def test_reset_by_another_process_is_noticed(
        self, limiter: Limiter, store: Store, time: Time
    ) -> None:
        later = profile(limit=1)
        charge(limiter, later)
        limiter.deferred.flush()
        limiter_of(store, time).reset(
            limiter.windows([ProfileCheck(later, "acme", later.policies)]).keys
        )
        assert not charge(limiter, later).allowed
        limiter.deferred.flush()
        assert store.trips == 1  # known for less than a second
        time.now += 2 * SECOND
        assert not charge(limiter, later).allowed
        limiter.deferred.flush()
        assert charge(limiter, later).allowed


class TestTroubles:
    def test_too_many_windows_are_dropped_and_counted(
        self,
        store: Store,
        time: Time,
        sent: list[Sent],
        asleep: None,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(outbox_module, "_MAX_WINDOWS", 2)
        limiter = limiter_of(store, time, sent)
        for identifier in ("a", "b", "c", "a"):
            assert charge(limiter, profile(), identifier=identifier).allowed
        # Two profiles of one window are charged once, so they lose one hit.
        pair = profile(limit=3, scope="pair"), profile(limit=9, scope="pair", name="wide")
        charge(limiter, *pair, identifier="d")
        limiter.deferred.flush()
        assert (sent[0].charged, sent[0].lost) == (3, 2)

    def test_hits_are_given_back_even_if_too_many_windows_wait(
        self, store: Store, time: Time, asleep: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(outbox_module, "_MAX_WINDOWS", 1)
        limiter = limiter_of(store, time)
        decision = charge(limiter, profile())
        limiter.deferred.flush()
        charge(limiter, profile(), identifier="other")
        assert limiter.refund(decision) == 1
        limiter.deferred.flush()
        assert peek(limiter, profile()).remaining == 2

    def test_number_of_known_windows_is_bounded(
        self, limiter: Limiter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(deferred_module, "_MAX_KNOWN", 2)
        for identifier in ("a", "b", "c"):
            charge(limiter, profile(), identifier=identifier)
        limiter.deferred.flush()
        assert len(limiter.deferred._known) == 2

    def test_one_damaged_window_does_not_concern_others(
        self, limiter: Limiter, store: Store, sent: list[Sent]
    ) -> None:
        store.damaged = "bad"
        for identifier in ("bad", "good"):
            charge(limiter, profile(limit=1), identifier=identifier)
        limiter.deferred.flush()
        assert (sent[0].charged, sent[0].lost) == (1, 1)
        assert not charge(limiter, profile(limit=1), identifier="good").allowed
        assert limiter.breaker.state == CLOSED

    def test_while_the_store_is_away_the_fallback_decides(
        self, limiter: Limiter, store: Store, sent: list[Sent], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.error = StoreError("it is away")
        while limiter.breaker.state == CLOSED:
            assert charge(limiter, profile()).source == decisions.DEFERRED
            limiter.deferred.flush()
        assert sum(each.lost for each in sent) == len(sent)
        assert sent[-1].error is store.error
        found = [charge(limiter, profile()) for _ in range(4)]
        assert [(each.allowed, each.source) for each in found] == [
            (True, decisions.LOCAL),
            (True, decisions.LOCAL),
            (True, decisions.LOCAL),
            (False, decisions.LOCAL),
        ]
        store.error = None
        assert limiter.breaker.state == OPEN
        monkeypatch.setattr(limiter.breaker.of(""), "_probe_at", 0.0)
        assert charge(limiter, profile()).source == decisions.DEFERRED  # the probe
        limiter.deferred.flush()
        assert limiter.breaker.state == CLOSED

    @pytest.mark.parametrize(("budget", "within"), [(None, 2.0), (0.1, 2.0), (3.0, 3.0)])
    def test_a_batch_waits_for_two_seconds_or_a_longer_budget(
        self, store: Store, time: Time, asleep: None, budget: float | None, within: float
    ) -> None:
        limiter = Limiter(store, clock=time.seconds, budget=budget)
        decision = charge(limiter, profile())
        limiter.deferred.flush()
        assert store.within == within
        store.within = None
        limiter.refund(decision)
        limiter.deferred.flush()
        assert store.within == within

    def test_fallback_decides_about_all_profiles_together(self, limiter: Limiter) -> None:
        now, later = profile(limit=9, name="now", mode="enforce"), profile(limit=1)
        open_breaker(limiter)
        assert charge(limiter, now, later).source == decisions.LOCAL
        refusal = charge(limiter, now, later)
        assert (refusal.allowed, refusal.profile) == (False, "later")
        assert (refusal.reason, refusal.receipt) == (decisions.FALLBACK, None)
        # It has charged nothing: one hit was before, and a peek counts itself in.
        assert peek(limiter, now).remaining == 7

    def test_unsent_probe_is_left_to_the_next_caller(
        self, limiter: Limiter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now, later = profile(limit=1, name="now", mode="enforce"), profile()
        open_breaker(limiter)
        assert charge(limiter, now).source == decisions.LOCAL
        monkeypatch.setattr(limiter.breaker.of(""), "_probe_at", 0.0)
        # The deferred charge would be the probe, but the other profile refuses.
        assert not charge(limiter, now, later).allowed
        assert limiter.breaker.state == OPEN
        # With another that the fallback admits, it is sent.
        assert charge(limiter, profile(name="wide", mode="enforce"), later).allowed
        limiter.deferred.flush()
        assert limiter.breaker.state == CLOSED

    @pytest.mark.parametrize(("probe_at", "state"), [(0.0, CLOSED), (math.inf, OPEN)])
    def test_read_of_a_full_window_is_the_probe_if_one_is_due(
        self,
        limiter: Limiter,
        time: Time,
        monkeypatch: pytest.MonkeyPatch,
        probe_at: float,
        state: str,
    ) -> None:
        """Or else the breaker would stay open for as long as every request is refused here."""
        charge(limiter, profile(limit=1))
        limiter.deferred.flush()
        open_breaker(limiter)
        monkeypatch.setattr(limiter.breaker.of(""), "_probe_at", probe_at)
        time.now += 2 * SECOND
        refusal = charge(limiter, profile(limit=1))
        assert (refusal.allowed, refusal.source) == (False, decisions.DEFERRED)
        limiter.deferred.flush()
        assert limiter.breaker.state == state

    def test_flush_waits_for_the_batch_under_way(self, limiter: Limiter, store: Store) -> None:
        begun, answered = threading.Event(), threading.Event()
        store.meanwhile = lambda: (begun.set(), answered.wait(20))
        charge(limiter, profile())
        rounds = [threading.Thread(target=limiter.deferred.flush) for _ in range(2)]
        rounds[0].start()
        assert begun.wait(20)
        rounds[1].start()
        rounds[1].join(0.05)
        assert rounds[1].is_alive()
        answered.set()
        for each in rounds:
            each.join(20)
        assert store.trips == 1

    def test_flush_without_work_reports_nothing(self, limiter: Limiter, sent: list[Sent]) -> None:
        limiter.deferred.flush()
        assert sent == []


@pytest.mark.parametrize("algorithm", ["compact", "log"])
def test_no_window_holds_more_than_the_docs_say(redis: Redis, algorithm: str, asleep: None) -> None:
    """The limit, and what reaches each process in two rounds: 100 random runs, on one clock."""
    rng = random.Random(7)
    for run in range(100):
        time = Time()
        limit, window = rng.choice([1, 5, 20]), rng.choice([1.0, 4.0])
        cycle = rng.choice([0.05, 0.2])
        later = profile(limit=limit, window=window, algorithm=algorithm)
        store = RedisStore("default", clock=time.microseconds)
        processes = [limiter_of(store, time) for _ in range(rng.choice([1, 3]))]
        flushed = [0] * len(processes)
        arrived: list[list[int]] = [[] for _ in processes]
        admitted: list[int] = []
        for _ in range(rng.randrange(20, 60)):
            time.now += rng.choice([0, 1_000, 20_000, 300_000])
            for number, process in enumerate(processes):
                if time.now - flushed[number] >= cycle * SECOND:
                    flushed[number] = time.now
                    process.deferred.flush()
            number = rng.randrange(len(processes))
            arrived[number].append(time.now)
            if charge(processes[number], later, identifier=f"run{run}").allowed:
                admitted.append(time.now)
        # Between two rounds of a process there may pass a whole step more.
        slack = round(2 * (cycle + 0.3) * SECOND)
        over = sum(most_within(each, slack) for each in arrived)
        assert most_within(admitted, round(window * SECOND)) <= limit + over
        store.close()


def most_within(stamps: list[int], span: int) -> int:
    return max(
        (sum(start <= stamp < start + span for stamp in stamps) for start in stamps), default=0
    )


class TestProcesses:
    def test_the_thread_sends_by_itself(self, settings: SettingsWrapper, redis: Redis) -> None:
        settings.SLIDING_WINDOW = {
            "PROFILES": {"later": {"axis": "tenant", "rate": "5/m", "mode": "deferred"}},
            "DEFERRED_SECONDS": 0.01,
        }
        assert limits.check("later", "acme").source == decisions.DEFERRED
        until(lambda: limits.peek("later", "acme").remaining == 3)

    def test_nothing_is_lost_at_exit_nor_charged_twice_after_a_fork(
        self, redis_server: RedisServer, redis: Redis
    ) -> None:
        program = f"""
            import os, sys
            import django
            from django.conf import settings
            settings.configure(
                INSTALLED_APPS=["django_slidingwindow"],
                CACHES={{"default": {{
                    "BACKEND": "django_redis.cache.RedisCache",
                    "LOCATION": {redis_server.url!r},
                }}}},
                SLIDING_WINDOW={{
                    "PROFILES": {{
                        "later": {{"axis": "tenant", "rate": "100/m", "mode": "deferred"}}
                    }},
                    "DEFERRED_SECONDS": 60,
                    "LOG": False,
                }},
            )
            django.setup()
            from django_slidingwindow import limits
            for _ in range(7):
                limits.check("later", "acme")
            child = os.fork()
            limits.check("later", "child" if child == 0 else "acme")
            if child:
                assert os.waitpid(child, 0)[1] == 0
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)
        later = profile(limit=100, name="later")
        limiter = Limiter(RedisStore("default"))
        assert peek(limiter, later, "acme").remaining == 91
        assert peek(limiter, later, "child").remaining == 98
        limiter.close()


def open_breaker(limiter: Limiter) -> None:
    while limiter.breaker.state == CLOSED:
        limiter.breaker.failed("")


def until(true: Callable[[], bool]) -> None:
    from time import monotonic, sleep

    ends = monotonic() + 30
    while not true():
        assert monotonic() < ends
        sleep(0.005)
