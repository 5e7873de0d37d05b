"""Units taken ahead by limiters that share one Redis, with a clock that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow import decisions
from django_slidingwindow.core import leases as leases_module
from django_slidingwindow.core import lender
from django_slidingwindow.core.callbacks import Callbacks
from django_slidingwindow.core.shield import Shield
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.stores.protocol import Evaluate, Refund
from tests.support.simulated_processes import Site, Store, leased, stored, windows

if TYPE_CHECKING:
    from redis import Redis

    from django_slidingwindow.core.limiter import Limiter
    from django_slidingwindow.decisions import Decision

pytestmark = pytest.mark.usefixtures("redis")
EXACT = ("compact", "log", "buckets")
AWAY = StoreError("it is away")


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture
def slots() -> Iterator[Site]:
    """Each identifier lies in a slot of its own."""
    site = Site(split=True)
    yield site
    site.close()


def store_of(limiter: Limiter) -> Store:
    assert isinstance(limiter.store, Store)
    return limiter.store


def sources(limiter: Limiter, *profiles: Profile, calls: int, **options: Any) -> list[str]:
    return [limiter.charge(windows(limiter, *profiles, **options)).source for _ in range(calls)]


def plain(limit: int = 5, name: str = "plain", **options: Any) -> Profile:
    return Profile(name=name, axis="tenant", policies=(Policy(limit=limit, window=60),), **options)


def warm(limiter: Limiter, profile: Profile, **options: Any) -> int:
    """Ask until units are held; return the hits admitted."""
    for calls in range(1, 10):
        if limiter.charge(windows(limiter, profile, **options)).source == "lease":
            return calls
    raise AssertionError("nothing was taken ahead")


@pytest.mark.parametrize("algorithm", EXACT)
def test_each_lease_is_twice_what_was_used_of_the_last_one(site: Site, algorithm: str) -> None:
    limiter, profile = site.process(), leased(lease=10, algorithm=algorithm)
    found = sources(limiter, profile, calls=1 + 3 + 7 + 11 + 11)
    expected = ["redis"], ["redis"] + 2 * ["lease"], ["redis"] + 6 * ["lease"]
    assert found == [*expected[0], *expected[1], *expected[2]] + 2 * (["redis"] + 10 * ["lease"])
    assert store_of(limiter).commands == 5
    assert stored(limiter, profile) == 33


def test_key_with_little_traffic_takes_nothing_ahead(site: Site) -> None:
    limiter, profile = site.process(), leased(lease_seconds=1)
    for _ in range(5):
        assert sources(limiter, profile, calls=1) == ["redis"]
        site.wait(2.1)
    assert stored(limiter, profile) == 5
    assert all(not call.ahead for call in store_of(limiter).calls if isinstance(call, Evaluate))


@pytest.mark.parametrize("algorithm", EXACT)
def test_units_of_an_ended_lease_are_returned_with_the_next_call(
    site: Site, algorithm: str
) -> None:
    limiter, profile = site.process(), leased(lease_seconds=1, algorithm=algorithm)
    used = warm(limiter, profile)
    assert stored(limiter, profile) > used
    site.wait(0.998)
    assert sources(limiter, profile, calls=1) == ["lease"]
    site.wait(0.002)
    store_of(limiter).calls.clear()
    assert sources(limiter, profile, calls=1) == ["redis"]
    (call,) = store_of(limiter).calls
    assert isinstance(call, Evaluate)
    # All that is stored was used, but for what this call took ahead.
    assert stored(limiter, profile) == used + 2 + call.ahead[0].most


def test_units_go_back_when_the_lease_ends(site: Site) -> None:
    limiter, profile = site.process(), leased(lease_seconds=1)
    used = warm(limiter, profile)
    site.wait(0.5)
    limiter.return_leases()
    assert stored(limiter, profile) == used + 1
    site.wait(0.5)
    limiter.return_leases()
    assert stored(limiter, profile) == used
    # The next lease still goes by what was used of this one.
    assert sources(limiter, profile, calls=2) == ["redis", "lease"]


def test_units_go_back_when_the_limiter_is_closed(site: Site) -> None:
    limiter, profile = site.process(), leased()
    used = warm(limiter, profile)
    limiter.close()
    assert stored(limiter, profile) == used
    assert sources(limiter, profile, calls=1) == ["redis"]


def test_hit_counts_as_much_longer_as_a_lease_lasts(site: Site) -> None:
    limiter, profile = site.process(), leased(limit=2, window=60, lease=1, lease_seconds=3)
    assert [limiter.charge(windows(limiter, profile)).allowed for _ in range(3)] == [1, 1, 0]
    refusal = limiter.charge(windows(limiter, profile))
    assert refusal.retry_after == 63
    assert (refusal.policy and refusal.policy.window) == 60
    site.wait(62.999_999)
    assert not limiter.charge(windows(limiter, profile)).allowed
    site.wait(0.000_001)
    assert limiter.charge(windows(limiter, profile)).allowed


def test_lease_takes_a_share_of_what_is_left(site: Site) -> None:
    # One process or four: an eighth. Ten: a twentieth.
    for processes, share in ((1, 8), (4, 8), (10, 20)):
        limiter = site.process(processes=processes)
        profile = leased(limit=1_000, lease=500, name=f"of{processes}")
        for _ in range(3):
            limiter.charge(windows(limiter, profile, cost=200))
        assert stored(limiter, profile) == 600 + 400 // share
        limiter.close()


def test_remaining_is_a_lower_bound_and_the_lease_is_in_the_decision(site: Site) -> None:
    limiter, other, profile = site.process(), site.process(), leased(limit=100, lease=10)
    first, second, third = (limiter.charge(windows(limiter, profile)) for _ in range(3))
    assert [first.remaining, second.remaining] == [99, 98]
    # Others may have taken all but what this process holds.
    assert (third.source, third.remaining, third.limit) == ("lease", 1, 100)
    assert (third.allowed, third.reason, third.retry_after) == (True, decisions.ALLOWED, 0.0)
    assert third.reset_after == pytest.approx(60.6)
    assert other.charge(windows(other, profile)).remaining == 100 - 2 - 2 - 1
    (verdict,) = third.verdicts
    assert (verdict.remaining, verdict.policy.window, verdict.allowed) == (1, 60, True)


def test_lease_of_another_limit_is_not_used_and_goes_back(site: Site) -> None:
    limiter, profile = site.process(), leased(limit=1_000)
    used = warm(limiter, profile)
    smaller = leased(limit=used)
    decision = limiter.charge(windows(limiter, smaller))
    assert (decision.source, decision.allowed) == ("redis", False)
    assert stored(limiter, profile) == used


def test_costs_come_from_a_lease_or_are_asked_for_at_once(site: Site) -> None:
    limiter, profile = site.process(), leased(lease=10)
    assert sources(limiter, profile, calls=3, cost=3) == ["redis", "redis", "lease"]
    # Three of six units are left. They go back with this call.
    assert sources(limiter, profile, calls=1, cost=4) == ["redis"]
    ahead = store_of(limiter).calls[-1]
    assert isinstance(ahead, Evaluate)
    assert (ahead.ahead[0].returned, ahead.ahead[0].most) == (3, 10)
    assert stored(limiter, profile) == 9 + 4 + 10
    # More than a lease holds is never taken ahead, and nothing is not taken at all.
    assert sources(limiter, profile, calls=2, cost=11) == ["redis", "redis"]
    assert sources(limiter, profile, calls=1, cost=0) == ["redis"]
    assert sources(limiter, profile, calls=1) == ["lease"]


def test_other_profile_that_refuses_leaves_the_lease_as_it_was(site: Site) -> None:
    limiter, one, other = site.process(), leased(), plain(limit=4)
    found = [limiter.charge(windows(limiter, one, other)) for _ in range(6)]
    assert [each.allowed for each in found] == [True] * 4 + [False] * 2
    # The other profile is asked each time, and the leased one twice.
    assert [each.source for each in found] == ["redis"] * 6
    asked = [call.keys for call in store_of(limiter).calls if isinstance(call, Evaluate)]
    assert [len(keys) for keys in asked] == [2, 2, 1, 1, 2, 2]
    refusal = found[-1]
    assert [verdict.allowed for verdict in refusal.verdicts] == [True, False]
    assert refusal.receipt is None
    assert stored(limiter, other) == 4
    limiter.close()
    assert stored(limiter, one) == 4


def test_unit_that_is_put_back_is_handed_out_again(site: Site) -> None:
    limiter, one, other = site.process(), leased(lease=10), plain(limit=1)
    warm(limiter, one)
    limiter.charge(windows(limiter, other))
    refusal = limiter.charge(windows(limiter, one, other))
    assert [verdict.remaining for verdict in refusal.verdicts] == [1, 0]
    store_of(limiter).calls.clear()
    assert sources(limiter, one, calls=1) == ["lease"]


def test_several_leases_answer_together(site: Site) -> None:
    limiter, one, two = site.process(), leased(name="one"), leased(name="two", limit=100)
    found = [limiter.charge(windows(limiter, one, two)) for _ in range(4)]
    assert [each.source for each in found] == ["redis", "redis", "lease", "lease"]
    assert [verdict.remaining for verdict in found[2].verdicts] == [1, 1]
    assert limiter.refund(found[3]) == 2
    assert sources(limiter, one, two, calls=2) == ["lease", "redis"]


def test_rates_of_one_profile_are_leased_together(site: Site) -> None:
    policies = tuple(Policy(limit=100 * n, window=60 * n, lease=5) for n in (1, 2))
    profile = Profile(name="rates", axis="tenant", policies=policies)
    assert sources(site.process(), profile, calls=3) == ["redis", "redis", "lease"]


def test_windows_that_profiles_share_are_not_leased(site: Site) -> None:
    limiter = site.process()
    one, two = leased(name="one", scope="shared"), leased(name="two", scope="shared", limit=20)
    assert sources(limiter, one, two, calls=6) == ["redis"] * 6
    twice = Profile(name="twice", axis="tenant", policies=one.policies + two.policies)
    assert sources(limiter, twice, calls=6) == ["redis"] * 6


def test_windows_that_profiles_share_beside_a_deferred_one_are_charged_once(site: Site) -> None:
    limiter, later = site.process(), plain(name="later", mode="deferred")
    one, two = leased(name="one", scope="shared"), leased(name="two", scope="shared", limit=20)
    for _ in range(4):
        assert limiter.charge(windows(limiter, one, two, later)).allowed
    limiter.close()
    assert stored(limiter, one) == 4


def test_observing_profile_leases_and_never_refuses(site: Site) -> None:
    limiter, profile = site.process(), leased(limit=4, lease=2, mode="observe")
    found = [limiter.charge(windows(limiter, profile)) for _ in range(6)]
    assert all(each.allowed for each in found)
    assert [each.reason for each in found] == ["allowed"] * 4 + ["observe"] * 2
    assert stored(limiter, profile) == 4


def test_counted_refusals_and_leases_share_a_window(site: Site) -> None:
    limiter, profile = site.process(), leased(limit=4, lease=2, count_rejected=True)
    found = [limiter.charge(windows(limiter, profile)).allowed for _ in range(6)]
    assert found == [True] * 4 + [False] * 2
    assert stored(limiter, profile) == 4


def test_refund_of_a_leased_hit_stays_here_while_the_lease_lasts(site: Site) -> None:
    limiter, profile = site.process(), leased(lease_seconds=1)
    used = warm(limiter, profile)
    late = limiter.charge(windows(limiter, profile))
    site.wait(0.1)
    early = limiter.charge(windows(limiter, profile))
    assert (late.source, early.source) == ("lease", "redis")
    store_of(limiter).calls.clear()
    assert limiter.refund(early) == 1
    assert store_of(limiter).calls == []
    assert limiter.refund(early) == 0
    # The lease that this hit came from has ended.
    assert limiter.refund(late) == 1
    assert [type(call) for call in store_of(limiter).calls] == [Refund]
    limiter.close()
    assert stored(limiter, profile) == used


def test_refund_after_the_lease_takes_the_hit_from_redis(site: Site) -> None:
    limiter, profile = site.process(), leased(lease_seconds=1)
    used = warm(limiter, profile)
    hit = limiter.charge(windows(limiter, profile))
    site.wait(1)
    limiter.return_leases()
    assert limiter.refund(hit) == 1
    assert stored(limiter, profile) == used


def test_reset_ends_the_leases_of_this_process(site: Site) -> None:
    limiter, profile = site.process(), leased(limit=20, lease=10)
    warm(limiter, profile)
    keys = windows(limiter, profile).keys
    assert limiter.reset(keys) == 1
    admitted = [limiter.charge(windows(limiter, profile)).allowed for _ in range(30)]
    assert admitted == [True] * 20 + [False] * 10
    limiter.return_leases()
    assert stored(limiter, profile) == 20


def test_units_that_are_granted_during_a_reset_are_not_used(site: Site) -> None:
    limiter, profile = site.process(), leased(limit=100, lease=10)
    limiter.charge(windows(limiter, profile))
    keys, store = windows(limiter, profile).keys, store_of(limiter)

    def reset_once() -> None:
        store.meanwhile = lambda: None
        limiter.reset(keys)

    store.meanwhile = reset_once
    assert sources(limiter, profile, calls=2) == ["redis", "redis"]
    limiter.return_leases()
    assert stored(limiter, profile) == 1


def test_reset_of_another_window_keeps_units_being_granted(site: Site) -> None:
    limiter, profile = site.process(), leased(limit=100, lease=10)
    limiter.charge(windows(limiter, profile))
    store = store_of(limiter)

    def reset_once() -> None:
        store.meanwhile = lambda: None
        limiter.reset(windows(limiter, profile, names=["other"]).keys)

    store.meanwhile = reset_once
    assert sources(limiter, profile, calls=2) == ["redis", "lease"]


def test_call_that_began_before_a_reset_does_not_replace_a_later_lease(site: Site) -> None:
    limiter, profile = site.process(), leased(limit=100, lease=10)
    limiter.charge(windows(limiter, profile))
    keys, store = windows(limiter, profile).keys, store_of(limiter)
    within: list[str] = []

    def reset_and_ask() -> None:
        store.meanwhile = lambda: None
        limiter.reset(keys)
        within.extend(sources(limiter, profile, calls=3))

    store.meanwhile = reset_and_ask
    assert sources(limiter, profile, calls=1) == ["redis"]
    assert within == ["redis", "redis", "lease"]
    # One of the two units that were taken after the reset.
    assert sources(limiter, profile, calls=1) == ["lease"]
    limiter.close()
    assert stored(limiter, profile) == 4


def test_peek_counts_leased_units(site: Site) -> None:
    limiter, other, profile = site.process(), site.process(), leased(limit=20, lease=10)
    warm(limiter, profile)
    held = 1
    while other.charge(windows(other, profile)).allowed:
        pass
    assert other.peek(windows(other, profile)).allowed is False
    peeked = limiter.peek(windows(limiter, profile))
    assert (peeked.allowed, peeked.source) == (True, "redis")
    assert limiter.peek(windows(limiter, profile, cost=held + 1)).allowed is False
    assert limiter.charge(windows(limiter, profile)).source == "lease"
    assert not limiter.peek(windows(limiter, profile)).allowed


def test_only_one_call_for_a_key_takes_units_ahead(site: Site) -> None:
    limiter, profile = site.process(), leased()
    limiter.charge(windows(limiter, profile))
    store, within = store_of(limiter), []

    def ask_meanwhile() -> None:
        store.meanwhile = lambda: None
        within.append(limiter.charge(windows(limiter, profile)))

    store.meanwhile = ask_meanwhile
    assert sources(limiter, profile, calls=1) == ["redis"]
    assert [each.source for each in within] == ["redis"]
    aheads = [bool(call.ahead) for call in store.calls if isinstance(call, Evaluate)]
    assert aheads == [False, True, False]


def test_leases_are_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "MAX_LEASES", 2)
    limiter, profile = site.process(), leased()
    for name in ("a", "b"):
        warm(limiter, profile, names=[name])
    # Both hold units, so nobody else can.
    assert sources(limiter, profile, calls=4, names=["c"]) == ["redis"] * 4
    sources(limiter, profile, calls=1, names=["a"])
    assert warm(limiter, profile, names=["c"])
    assert sources(limiter, profile, calls=1, names=["b"]) == ["lease"]


def test_leases_that_have_ended_take_no_memory(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    limiter, profile = site.process(), leased(limit=100_000, lease=1, lease_seconds=30)
    due = limiter._lender.leases
    sources(limiter, profile, calls=600)
    assert len(due._due) < 100
    # Nor do those that made room for others.
    monkeypatch.setattr(leases_module, "MAX_LEASES", 2)
    for number in range(200):
        sources(limiter, profile, calls=3, names=[f"t{number}"])
    assert len(due._due) < 100


def test_units_of_many_leases_go_back_in_few_round_trips(site: Site) -> None:
    limiter, profile = site.process(), leased(lease_seconds=1)
    names = [f"t{number}" for number in range(600)]
    for name in names:
        sources(limiter, profile, calls=3, names=[name])
    site.wait(1)
    store_of(limiter).trips = 0
    limiter.return_leases()
    assert store_of(limiter).trips == 2
    assert [stored(limiter, profile, name) for name in names] == [3] * 600


def test_units_stay_when_redis_goes_away_while_they_are_given_back(site: Site) -> None:
    limiter, profile = site.process(), leased(lease_seconds=1)
    for number in range(600):
        sources(limiter, profile, calls=3, names=[f"t{number}"])
    site.wait(1)
    store_of(limiter).trips = 0
    store_of(limiter).fails = lambda call: AWAY
    limiter.return_leases()
    # The first round trip failed, so there is no second.
    assert store_of(limiter).trips == 1


def test_leased_units_admit_requests_during_an_outage(site: Site) -> None:
    limiter, profile = site.process(fallback="deny"), leased(lease_seconds=1)
    sources(limiter, profile, calls=5)
    store_of(limiter).fails = lambda call: AWAY
    assert sources(limiter, plain(), calls=8) == ["deny"] * 8
    assert limiter.breaker.state == "open"
    assert sources(limiter, profile, calls=2) == ["lease"] * 2
    site.wait(1)
    store_of(limiter).calls.clear()
    assert sources(limiter, profile, calls=1) == ["deny"]
    # Four units are left. Nothing is sent, and nothing fails.
    limiter.return_leases()
    assert store_of(limiter).calls == []


def test_units_are_put_back_when_redis_does_not_answer_for_the_others(site: Site) -> None:
    limiter, one, other = site.process(fallback="allow"), leased(), plain()
    warm(limiter, one)
    store_of(limiter).fails = lambda call: AWAY
    assert sources(limiter, one, other, calls=8) == ["allow"] * 8
    assert sources(limiter, one, calls=2) == ["lease", "allow"]


def test_units_in_a_failed_call_are_not_returned_again(site: Site) -> None:
    limiter, profile = site.process(fallback="deny"), leased(lease_seconds=1)
    used = warm(limiter, profile)
    site.wait(1)
    store_of(limiter).fails = lambda call: AWAY
    assert sources(limiter, profile, calls=1) == ["deny"]
    store_of(limiter).fails = lambda call: None
    limiter.return_leases()
    assert stored(limiter, profile) == used + 1


def test_errors_that_are_not_of_the_store_are_raised(site: Site) -> None:
    limiter, one, other = site.process(), leased(), plain()
    warm(limiter, one)
    store_of(limiter).fails = lambda call: KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        limiter.charge(windows(limiter, one, other))
    assert sources(limiter, one, calls=1) == ["lease"]


def test_return_that_fails_is_not_tried_again(site: Site) -> None:
    limiter, profile = site.process(), leased(lease_seconds=1)
    warm(limiter, profile)
    site.wait(1)
    store_of(limiter).fails = lambda call: StoreError("no", outage=False)
    store_of(limiter).calls.clear()
    limiter.return_leases()
    limiter.return_leases()
    assert [type(call) for call in store_of(limiter).calls] == [Refund]


def test_acquire_does_not_wait_for_what_redis_has_left(site: Site) -> None:
    limiter, profile = site.process(), leased(limit=100, lease=2)
    found = [limiter.acquire(windows(limiter, profile), timeout=0).source for _ in range(7)]
    assert found == ["redis", "redis", "lease", "lease", "redis", "lease", "lease"]


def test_shield_replays_the_refusal_of_a_leased_profile(site: Site) -> None:
    shield = Shield(10, clock=lambda: site.clock.now / 1_000_000)
    limiter, profile = site.process(shield=shield), leased(limit=2, lease=1)
    assert sources(limiter, profile, calls=4) == ["redis", "redis", "redis", "shield"]


def test_callbacks_are_called_when_a_lease_has_ended_and_with_every_decision(site: Site) -> None:
    ended: list[tuple[str, int, int, int]] = []
    checked: list[Decision] = []
    callbacks = Callbacks(
        checked=lambda decision, seconds, error: checked.append(decision),
        leased=lambda *units: ended.append(units),
    )
    limiter, profile = site.process(callbacks=callbacks), leased(lease_seconds=1)
    sources(limiter, profile, calls=6)
    assert ended == [("leased", 2, 2, 0)]
    site.wait(1)
    limiter.return_leases()
    assert ended[1:] == [("leased", 6, 1, 5)]
    assert [each.source for each in checked] == [
        "redis",
        "redis",
        "lease",
        "lease",
        "redis",
        "lease",
    ]
    assert site.process().charge(windows(limiter, profile)).allowed


def test_async_checks_use_and_take_leases(site: Site) -> None:
    limiter, one, other = site.process(), leased(), plain()

    async def ask(*profiles: Profile) -> str:
        return (await limiter.acharge(windows(limiter, *profiles))).source

    async def several() -> list[str]:
        found = [await ask(one) for _ in range(4)]
        return [*found, await ask(one, other), await ask(one)]

    assert asyncio.run(several()) == ["redis", "redis", "lease", "lease", "redis", "lease"]


def test_cancelled_async_check_puts_leased_units_back(site: Site) -> None:
    limiter, one, other = site.process(), leased(), plain()
    warm(limiter, one)

    async def cancelled() -> None:
        asking = asyncio.ensure_future(limiter.acharge(windows(limiter, one, other)))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(cancelled())
    assert sources(limiter, one, calls=1) == ["lease"]


class TestSlots:
    """Leased windows in several slots of a cluster."""

    def test_each_slot_gives_units_ahead(self, slots: Site) -> None:
        limiter, profile = slots.process(), leased()
        names = ["a", "b"]
        found = sources(limiter, profile, leased(name="two"), calls=4, names=names)
        assert found == ["redis", "redis", "lease", "lease"]
        assert store_of(limiter).commands == 4
        assert (stored(limiter, profile, "a"), stored(limiter, leased(name="two"), "b")) == (4, 4)

    def test_other_slot_that_refuses_costs_nothing_here(self, slots: Site) -> None:
        limiter, one, other = slots.process(), leased(), plain(limit=3)
        found = [limiter.charge(windows(limiter, one, other, names=["a", "b"])) for _ in range(5)]
        assert [each.allowed for each in found] == [True] * 3 + [False] * 2
        assert [verdict.allowed for verdict in found[-1].verdicts] == [True, False]
        limiter.close()
        assert (stored(limiter, one, "a"), stored(limiter, other, "b")) == (3, 3)

    def test_leased_slot_that_refuses_is_answered_with_all_windows(self, slots: Site) -> None:
        limiter, one, other = slots.process(), leased(limit=2, lease=1), plain()
        found = [limiter.charge(windows(limiter, one, other, names=["a", "b"])) for _ in range(3)]
        assert [each.allowed for each in found] == [True, True, False]
        assert [(v.allowed, v.remaining) for v in found[-1].verdicts] == [(False, 0), (True, 3)]
        assert (stored(limiter, one, "a"), stored(limiter, other, "b")) == (2, 2)

    def test_rest_in_several_slots_is_charged_together(self, slots: Site) -> None:
        limiter, one = slots.process(), leased()
        others = plain(name="x"), plain(name="y", limit=3)
        asked = [one, *others]
        names = ["a", "b", "c"]
        found = [limiter.charge(windows(limiter, *asked, names=names)) for _ in range(5)]
        assert [each.allowed for each in found] == [True] * 3 + [False] * 2
        assert limiter.refund(found[2]) == 3
        limiter.close()
        assert [stored(limiter, *pair) for pair in zip(asked, names, strict=True)] == [2, 2, 2]

    @pytest.mark.parametrize("name", ["a", "b", "c"])
    def test_failing_slot_leaves_the_others_unchanged(self, slots: Site, name: str) -> None:
        limiter, one = slots.process(fallback="deny"), leased()
        asked, names = [one, plain(name="x"), plain(name="y")], ["a", "b", "c"]
        store = store_of(limiter)

        def fails(call: Any) -> StoreError | None:
            keys = call.keys if isinstance(call, Evaluate) else [call.charges[0].key]
            return AWAY if any(store.node(key) == name for key in keys) else None

        store.fails = fails
        assert sources(limiter, *asked, calls=8, names=names) == ["deny"] * 8
        store.fails = lambda call: None
        limiter.close()
        assert [stored(limiter, *pair) for pair in zip(asked, names, strict=True)] == [0, 0, 0]

    def test_units_of_other_nodes_go_back_while_one_is_away(
        self, slots: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lender, "_RETURNS", 2)
        limiter, profile = slots.process(), leased(lease_seconds=1)
        names = ["a", "b", "c"]
        for name in names:
            sources(limiter, profile, calls=3, names=[name])
        slots.wait(1)
        store = store_of(limiter)
        store.fails = lambda call: AWAY if "{a}" in str(call) else None
        limiter.return_leases()
        store.fails = lambda call: None
        assert [stored(limiter, profile, name) for name in names] == [4, 3, 3]

    @pytest.mark.parametrize(("delay", "left"), [(0, 0.1), (30_000, 0.04), (90_000, 0.001)])
    def test_slots_share_the_budget(self, slots: Site, delay: int, left: float) -> None:
        limiter, one, other = slots.process(budget=0.1), leased(), plain()
        store_of(limiter).delay = delay
        limiter.charge(windows(limiter, one, other, names=["a", "b"]))
        first, second = store_of(limiter).calls
        assert isinstance(first, Evaluate)
        assert isinstance(second, Evaluate)
        assert (first.within, second.within) == (None, pytest.approx(left))

    def test_error_of_another_kind_puts_units_back(self, slots: Site) -> None:
        limiter, one = slots.process(), leased()
        asked, names = [one, plain(name="x"), plain(name="y")], ["a", "b", "c"]
        warm(limiter, one, names=["a"])
        store_of(limiter).fails = lambda call: KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            limiter.charge(windows(limiter, *asked, names=names))
        assert sources(limiter, one, calls=1, names=["a"]) == ["lease"]

    def test_answer_of_a_leased_slot_closes_its_breaker(self, slots: Site) -> None:
        limiter, one, other = slots.process(), leased(), plain()
        store_of(limiter).fails = lambda call: AWAY
        limiter.charge(windows(limiter, one, names=["a"]))
        assert not limiter.breaker.is_healthy
        store_of(limiter).fails = lambda call: None
        assert limiter.charge(windows(limiter, one, other, names=["a", "b"])).source == "redis"
        assert limiter.breaker.is_healthy


def test_store_in_memory_lends_nothing(redis: Redis) -> None:
    from django_slidingwindow import limits
    from django_slidingwindow.testing import limits_in_memory

    profile = leased(limit=10, lease=5, lease_seconds=6)
    with limits_in_memory() as clock:
        found = [limits.check(profile, "acme") for _ in range(11)]
        assert [each.allowed for each in found] == [True] * 10 + [False]
        assert {each.source for each in found} == {"redis"}
        clock.advance(60)
        assert limits.check(profile, "acme").allowed
