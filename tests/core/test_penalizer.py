"""Limits with penalties: decisions, the shield, reports, several slots, leases and fallbacks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow import decisions
from django_slidingwindow.algorithms.penalties import Penalty
from django_slidingwindow.core.callbacks import Callbacks
from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.core.shield import Shield
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.http.headers import field_values
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.stores.protocol import Evaluate
from django_slidingwindow.stores.redis import RedisStore
from tests.core.test_limiter import AWAY, SPOILED, Store
from tests.support.clock import SECOND, Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redis import Redis

    from django_slidingwindow.core.windows import WindowSet
    from django_slidingwindow.decisions import Decision

MINUTE = Policy(limit=1, window=60)
HOUR = Policy(limit=3, window=3_600)
PENALTY = Penalty(limit=3, window=600, steps=(60.0, 600.0))


def profile(name: str = "login", *policies: Policy, **options: Any) -> Profile:
    options = {"penalty": PENALTY, **options}
    return Profile(name=name, axis="ip", policies=policies or (MINUTE,), **options)


LOGIN, PLAIN = profile(), profile("plain", Policy(limit=100, window=60), penalty=None)


class Site:
    """A limiter whose store and shield go by one clock, which stands still until it is moved."""

    def __init__(self, store: Any = None, **options: Any) -> None:
        self.clock = Clock()
        self.store = RedisStore("default", clock=self.clock) if store is None else store
        if store is not None:
            store._clock = self.clock
        self.shield = Shield(1.0, clock=lambda: self.clock.now / SECOND)
        self.limiter = Limiter(self.store, shield=self.shield, background=False, **options)

    def windows(self, *profiles: Profile, who: str = "a", cost: int = 1) -> WindowSet:
        checks = [
            ProfileCheck(one, who if one.name != "other" else "b", one.policies, cost)
            for one in profiles or (LOGIN,)
        ]
        return self.limiter.windows(checks)

    def check(self, *profiles: Profile, **options: Any) -> Decision:
        return self.limiter.charge(self.windows(*profiles, **options))

    def later(self, seconds: float) -> None:
        self.clock.now += round(seconds * SECOND)

    def refuse(self, *profiles: Profile, times: int) -> Decision:
        """Be refused by the store `times` times: the shield forgets each time."""
        for _ in range(times):
            decision = self.check(*profiles)
            assert not decision.allowed
            assert decision.source == decisions.REDIS
            self.shield.clear()
        return decision


@pytest.fixture
def site(redis: Redis) -> Iterator[Site]:
    site = Site()
    yield site
    site.store.close()


@pytest.fixture
def calls(redis: Redis) -> Callable[[], int]:
    return lambda: redis.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]


# Decisions


def test_admission_does_not_show_the_penalty(site: Site) -> None:
    decision = site.check(profile("login", MINUTE, HOUR))
    plain = site.check(profile("other", MINUTE, HOUR, penalty=None))
    assert decision[2:7] == plain[2:7]
    assert [verdict[1:2] + verdict[3:] for verdict in decision.verdicts] == [
        verdict[1:2] + verdict[3:] for verdict in plain.verdicts
    ]
    assert decision.receipt is not None
    assert [charge.policy for charge in decision.receipt.parts[0][0]] == [MINUTE, HOUR]
    assert site.limiter.refund(decision) == 2
    assert site.check(profile("login", MINUTE, HOUR)).allowed


def test_a_block_is_the_reason_and_says_when_it_ends(site: Site) -> None:
    assert site.check().allowed
    refused = site.refuse(times=3)
    assert (refused.reason, refused.retry_after) == (decisions.LIMIT, 60.0)
    assert [verdict.blocked for verdict in refused.verdicts] == [False]
    site.later(1)
    blocked = site.check()
    assert (blocked.allowed, blocked.reason, blocked.retry_after) == (False, "penalty", 60.0)
    assert (blocked.profile, blocked.policy, blocked.limit) == ("login", MINUTE, 1)
    assert blocked.remaining == 0
    assert [verdict.blocked for verdict in blocked.verdicts] == [True]
    assert blocked.key == "throttle:ip:{a}:login:c60"
    assert blocked.receipt is None
    site.later(59)
    still = site.check()
    # The window has room again, the penalty blocks.
    assert (still.reason, still.retry_after, still.remaining) == ("penalty", 1.0, 0)
    fields = field_values((still,))
    assert fields["RateLimit-Policy"] == '"login";q=1;w=60'
    assert fields["RateLimit"] == '"login";r=0;t=1'
    site.later(1)
    assert site.check().allowed


def test_of_several_refusals_the_longest_wait_decides(site: Site) -> None:
    full = profile("full", Policy(limit=0, window=60), penalty=None)
    site.check()
    site.refuse(times=4)
    assert site.check(LOGIN, full).reason == decisions.LIMIT
    day = profile("day", Policy(limit=1, window=86_400), penalty=None)
    assert site.check(day).allowed
    refused = site.check(LOGIN, day)
    assert (refused.profile, refused.reason) == ("day", decisions.LIMIT)
    assert [verdict.blocked for verdict in refused.verdicts] == [True, False]
    assert refused.replace(limit=7).verdicts == refused.verdicts


def test_a_block_charges_nothing_elsewhere(site: Site) -> None:
    site.check()
    site.refuse(times=4)
    for _ in range(3):
        assert site.check(PLAIN, LOGIN).reason == decisions.PENALTY
    assert site.check(PLAIN).remaining == 99


def test_peek_sees_the_block_and_counts_no_refusal(site: Site) -> None:
    site.check()
    looks = {site.limiter.peek(site.windows()).reason for _ in range(9)}
    assert looks == {decisions.LIMIT}
    site.refuse(times=4)
    look = site.limiter.peek(site.windows())
    assert (look.reason, look.retry_after, look.receipt) == (decisions.PENALTY, 60.0, None)


def test_observe_mode_blocks_nobody_and_says_who_would_be_blocked(site: Site) -> None:
    watched = profile(mode="observe")
    decided = [site.check(watched) for _ in range(6)]
    assert all(decision.allowed for decision in decided)
    assert [decision.reason for decision in decided] == ["allowed"] + ["observe"] * 5
    verdicts = [decision.verdicts[0] for decision in decided]
    assert [verdict.blocked for verdict in verdicts] == [False] * 4 + [True] * 2
    assert verdicts[-1].retry_after == 60.0


def test_a_penalty_needs_a_limit(site: Site) -> None:
    unlimited = site.limiter.windows([ProfileCheck(LOGIN, "a", ())])
    assert site.limiter.charge(unlimited).reason == decisions.UNLIMITED


@pytest.mark.parametrize("options", [{"mode": "deferred"}, {"lease": 5}])
def test_a_penalty_goes_with_neither_deferred_mode_nor_leases(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot be used with"):
        profile(**options)
    with pytest.raises(ValueError, match="cannot be used with a lease"):
        profile("login", Policy(limit=9, window=60, lease=5))


def test_async_checks_block_as_well(redis: Redis) -> None:
    async def flood() -> list[str]:
        site = Site()
        decided = [await site.limiter.acharge(site.windows()) for _ in range(6)]
        look = await site.limiter.apeek(site.windows())
        site.store.close()
        return [one.reason for one in (*decided, look)]

    assert asyncio.run(flood()) == ["allowed"] + ["limit"] * 3 + ["penalty"] * 3


# The shield


def test_replayed_refusals_count_and_the_one_too_many_asks(
    site: Site, calls: Callable[[], int]
) -> None:
    site.check()
    before = calls()
    assert [site.check().source for _ in range(3)] == ["redis", "shield", "shield"]
    assert calls() == before + 1
    blocked = site.check()
    assert (blocked.reason, blocked.source, blocked.retry_after) == ("penalty", "redis", 60.0)
    assert calls() == before + 2


def test_a_flood_is_answered_without_redis(site: Site, calls: Callable[[], int]) -> None:
    site.check()
    before = calls()
    sources = {site.check().source for _ in range(1_000)}
    assert sources == {"redis", "shield"}
    # The first refusal, and the one that blocks.
    assert calls() == before + 2
    site.later(0.5)
    held = site.check()
    assert (held.reason, held.source, held.retry_after) == ("penalty", "shield", 59.5)
    assert held.verdicts[0].blocked
    site.later(0.5)
    assert site.check().source == "redis"
    assert calls() == before + 3


def test_replayed_refusals_are_reported_with_the_next_call_of_their_identifier(site: Site) -> None:
    site.check()
    assert [site.check().source for _ in range(3)] == ["redis", "shield", "shield"]
    other = Limiter(RedisStore("default", clock=site.clock), background=False)
    assert other.charge(site.windows(who="b")).allowed
    # Another process knows one refusal only: this is the second one.
    assert other.charge(site.windows()).reason == decisions.LIMIT
    site.later(1)
    # Four and this one.
    assert site.check().reason == decisions.PENALTY
    assert other.charge(site.windows()).reason == decisions.PENALTY
    other.store.close()


def test_reported_refusals_come_with_an_admission_too(site: Site) -> None:
    site.check()
    for _ in range(3):
        site.check()
    site.later(60)
    assert site.check().allowed
    assert site.refuse(times=1).reason == decisions.PENALTY


def test_the_shield_forgets_a_block_when_it_ends(site: Site) -> None:
    site.check()
    # The window is empty long before the block ends.
    site.later(10)
    site.refuse(times=4)
    site.later(59.75)
    assert site.check().reason == decisions.PENALTY
    site.later(0.249)
    assert site.check().source == decisions.SHIELD
    site.later(0.001)
    assert site.check().allowed


@pytest.mark.parametrize("options", [{}, {"count_rejected": True}])
@pytest.mark.parametrize("algorithm", ["counter", "log", "buckets"])
def test_shield_holds_a_block_of_any_algorithm(
    site: Site, algorithm: str, options: dict[str, Any]
) -> None:
    login = profile("login", Policy(limit=1, window=60, algorithm=algorithm), **options)
    while site.check(login).reason != decisions.PENALTY:
        pass
    assert site.check(login).source == decisions.SHIELD


def test_shield_does_not_hold_a_block_beside_a_window_that_counts_all(site: Site) -> None:
    counting = profile("counting", HOUR, penalty=None, count_rejected=True)
    for _ in range(9):
        assert site.check(LOGIN, counting).source == decisions.REDIS


def test_refusals_of_one_identifier_count_together_whatever_is_asked(site: Site) -> None:
    site.check()
    asked = [(LOGIN,), (LOGIN, PLAIN), (LOGIN,), (LOGIN, PLAIN), (LOGIN,), (LOGIN, PLAIN), (LOGIN,)]
    decided = [site.check(*profiles) for profiles in asked]
    assert [one.reason for one in decided] == ["limit"] * 3 + ["penalty"] * 4
    # Both are held by now.
    assert [one.source for one in decided[-2:]] == [decisions.SHIELD] * 2


def test_a_refusal_that_is_not_held_counts_against_those_that_are(site: Site) -> None:
    counting = profile("counting", Policy(limit=0, window=60), penalty=None, count_rejected=True)
    site.check()
    assert site.check().source == decisions.REDIS
    assert [site.check(LOGIN, counting).source for _ in range(2)] == [decisions.REDIS] * 2
    assert site.check().reason == decisions.PENALTY


def test_the_block_of_one_profile_does_not_hide_the_refusals_of_another(site: Site) -> None:
    other = profile("more")
    assert site.check(LOGIN, other).allowed
    site.refuse(times=4)
    # The shield holds this for the block of the first, and knows what the second has left.
    assert site.check(LOGIN, other).reason == decisions.PENALTY
    site.check(other, cost=2)
    site.check(other, cost=3)
    blocked = site.check(LOGIN, other)
    assert [verdict.blocked for verdict in blocked.verdicts] == [True, True]


def test_an_admission_keeps_what_was_not_reported(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, refused = site.store.run, []

    def late(call: Any) -> Any:
        """Return the reply when others were refused, and two of them by the shield."""
        reply = run(call)
        monkeypatch.undo()
        refused.extend([site.check() for _ in range(3)])
        return reply

    monkeypatch.setattr(site.store, "run", late)
    assert site.check().allowed
    assert [one.source for one in refused] == ["redis", "shield", "shield"]
    assert site.check().reason == decisions.PENALTY


def test_a_replay_counts_once_where_profiles_share_a_penalty(site: Site) -> None:
    twins = profile("one", scope="both"), profile("two", HOUR, scope="both")
    reasons = [site.check(*twins).reason for _ in range(5)]
    assert reasons == ["allowed"] + ["limit"] * 3 + ["penalty"]


def test_only_profiles_that_refuse_count_a_replay(site: Site) -> None:
    roomy = profile("roomy", Policy(limit=100, window=60))
    site.check(LOGIN, roomy)
    for _ in range(3):
        site.check(LOGIN, roomy)
    assert site.shield.has_unreported(["throttle:ip:{a}:login:p600"])
    assert not site.shield.has_unreported(["throttle:ip:{a}:roomy:p600"])


def test_reset_unblocks_at_once_and_forgets_what_was_not_reported(site: Site) -> None:
    site.check()
    for _ in range(3):
        site.check()
    assert site.limiter.reset(site.windows().keys) == 2
    assert site.check().allowed
    assert site.limiter.peek(site.windows()).reason == decisions.LIMIT
    site.refuse(times=4)
    site.check()
    assert site.limiter.reset(["throttle:ip:{a}:login:p600"]) == 1
    assert site.check().reason == decisions.LIMIT


def test_the_shield_keeps_the_refusals_of_few_identifiers() -> None:
    now = 0.0
    shield = Shield(1.0, max_entries=2, clock=lambda: now)
    store = Store()
    limiter = Limiter(store, shield=shield, background=False)
    for who in ("a", "b", "c"):
        windows = limiter.windows([ProfileCheck(LOGIN, who, LOGIN.policies)])
        for _ in range(3):
            limiter.charge(windows)
    kept = [shield.has_unreported([f"throttle:ip:{{{who}}}:login:p600"]) for who in "abc"]
    assert kept == [False, True, True]
    assert shield.take_unreported("throttle:ip:{c}:login:p600") == (0,)
    assert shield.take_unreported("throttle:ip:{c}:login:p600") == ()


def test_refusals_of_the_shield_count_after_an_override_has_cleared_it(site: Site) -> None:
    decided = [site.check() for _ in range(4)]
    assert [one.source for one in decided] == ["redis"] * 2 + ["shield"] * 2
    site.shield.clear()
    assert site.check().reason == decisions.PENALTY


@pytest.mark.parametrize("make", [lambda: None, Store])
def test_refusal_of_an_observing_profile_blocks_the_next_request(
    make: Callable[[], Any], redis: Redis
) -> None:
    site, strict = Site(make()), Penalty(limit=0, window=600, steps=(60.0,))
    login = profile(penalty=strict)
    options = {"scope": "login", "mode": "observe", "penalty": strict}
    decision = site.check(login, profile("trial", Policy(limit=0, window=10), **options))
    assert decision.reason == decisions.OBSERVED
    assert [verdict.allowed for verdict in decision.verdicts] == [True, False]
    assert site.limiter.refund(decision) == 1
    assert site.check(login).reason == decisions.PENALTY
    site.limiter.close()


# Without the store


def test_the_fallback_blocks_in_this_process() -> None:
    store = Store()
    store.fails = lambda call: AWAY
    site = Site(store)
    site.limiter.local._clock = site.clock
    decided = [site.check() for _ in range(6)]
    assert [one.reason for one in decided] == ["allowed"] + ["fallback"] * 3 + ["penalty"] * 2
    assert {one.source for one in decided} == {decisions.LOCAL}
    site.later(60)
    assert site.check().allowed


def test_a_process_tolerates_its_share_of_the_refusals() -> None:
    store = Store()
    store.fails = lambda call: AWAY
    site = Site(store, processes=3)
    assert [site.check().reason for _ in range(3)] == ["allowed", "fallback", "penalty"]
    assert site.check(profile("search", Policy(limit=9, window=60))).limit == 3


def test_failed_report_is_not_repeated() -> None:
    told: list[str] = []
    store = Store()
    site = Site(store, callbacks=Callbacks(failed=lambda error: told.append(str(error))))
    site.check()
    for _ in range(3):
        site.check()
    store.fails = lambda call: SPOILED
    site.later(1)
    assert site.check().source == decisions.LOCAL
    assert len(told) == 1
    store.fails = lambda call: None
    site.check()
    assert [call.rules[-1].unreported for call in store.calls[-2:]] == [(10**6, 10**6), ()]


# Several calls


@pytest.fixture(params=["sync", "async"])
def charge(request: pytest.FixtureRequest) -> Callable[[Site, WindowSet], Decision]:
    if request.param == "sync":
        return lambda site, windows: site.limiter.charge(windows)
    return lambda site, windows: asyncio.run(site.limiter.acharge(windows))


def test_refusals_count_in_several_slots(charge: Callable[[Site, WindowSet], Decision]) -> None:
    site = Site(Store(split=True))
    other = profile("other", Policy(limit=100, window=60), penalty=None)
    decided = []
    for _ in range(6):
        decided.append(charge(site, site.windows(other, LOGIN)))
        site.shield.clear()
    assert [one.reason for one in decided] == ["allowed"] + ["limit"] * 3 + ["penalty"] * 2
    assert [verdict.remaining for verdict in decided[-1].verdicts] == [99, 0]
    assert site.limiter.refund(decided[0]) == 2


def test_refusals_of_another_slot_do_not_count(
    charge: Callable[[Site, WindowSet], Decision],
) -> None:
    site = Site(Store(split=True))
    other = profile("other", Policy(limit=0, window=60), penalty=None)
    for _ in range(5):
        charge(site, site.windows(other, LOGIN))
    assert site.check().allowed


def test_reports_come_before_a_check_of_several_slots(
    charge: Callable[[Site, WindowSet], Decision],
) -> None:
    store = Store(split=True)
    site = Site(store)
    other = profile("other", Policy(limit=100, window=60), penalty=None)
    site.check()
    for _ in range(3):
        site.check()
    store.calls.clear()
    decision = charge(site, site.windows(other, LOGIN))
    assert decision.reason == decisions.PENALTY
    first = store.calls[0]
    assert isinstance(first, Evaluate)
    assert first.keys == ("throttle:ip:{a}:login:p600",)
    assert first.rules[0].unreported == (0, 0)


def test_a_report_that_fails_does_not_fail_the_check() -> None:
    store = Store(split=True)
    site = Site(store)
    other = profile("other", Policy(limit=100, window=60), penalty=None)
    site.check()
    for _ in range(3):
        site.check()
    store.fails = lambda call: SPOILED if call.rules[0].unreported else None
    assert site.check(other, LOGIN).reason == decisions.LIMIT


def test_check_ends_with_a_report_that_is_not_answered(
    charge: Callable[[Site, WindowSet], Decision],
) -> None:
    store = Store(split=True)
    site = Site(store)
    other = profile("other", Policy(limit=100, window=60), penalty=None)
    for _ in range(4):
        site.check()
    store.fails = lambda call: AWAY
    store.calls.clear()
    assert charge(site, site.windows(other, LOGIN)).source == decisions.LOCAL
    assert len(store.calls) == 1


def test_leased_units_are_put_back_if_a_penalty_blocks(site: Site) -> None:
    leased = profile("leased", Policy(limit=1_000, window=60, lease=10), penalty=None)
    for _ in range(3):
        site.check(leased)
    site.check(leased, LOGIN)
    reasons = [site.check(leased, LOGIN).reason for _ in range(8)]
    assert reasons == ["limit"] * 3 + ["penalty"] * 5
    site.limiter.close()
    assert site.limiter.peek(site.windows(leased)).remaining == 995


def test_a_penalty_beside_a_deferred_profile(site: Site) -> None:
    later = profile("later", HOUR, penalty=None, mode="deferred")
    reasons = [site.check(later, LOGIN).reason for _ in range(6)]
    assert reasons == ["allowed"] + ["limit"] * 3 + ["penalty"] * 2
