"""An alias with Sentinel: the primary is found, also after a failover, by sync and async code."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from django_redis import get_redis_connection

from django_slidingwindow import decisions, limits, signals
from django_slidingwindow.core.breaker import CLOSED
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.stores.client import ClientStore
from django_slidingwindow.stores.commands import pack
from django_slidingwindow.stores.protocol import Reset
from django_slidingwindow.stores.redis import RedisStore
from tests.support.background_load import Load
from tests.support.redis_failures import frozen, listening
from tests.support.servers.redis import wait_until

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

    from tests.support.servers import SentinelGroup

LIMIT, LEASE = 300, 10
PING = pack(b"PING")


def configure(
    settings: SettingsWrapper, sentinels: SentinelGroup, addresses: Any = None, **options: Any
) -> None:
    settings.CACHES = {"default": sentinels.alias(addresses)}
    many = {"axis": "tenant", "limit": LIMIT, "window": 3600}
    profiles = {
        "many": many,
        "leased": {**many, "lease": LEASE},
        "later": {**many, "mode": "deferred"},
        "penalized": {
            "axis": "tenant",
            "rate": "1/h",
            "penalty": {"after": "2/2h", "steps": ["1h", "1d"]},
        },
    }
    # By default a large budget: a busy machine must not look like an outage.
    settings.SLIDING_WINDOW = {"PROFILES": profiles, "LATENCY_BUDGET": 5.0, **options}


@pytest.fixture(autouse=True)
def empty(sentinels: SentinelGroup) -> None:
    with sentinels.primary.client() as client:
        client.flushall()


async def test_primary_is_found_through_the_sentinels(
    sentinels: SentinelGroup, settings: SettingsWrapper
) -> None:
    configure(settings, sentinels, LATENCY_BUDGET=10.0)
    assert limits.check("many", "k").remaining == LIMIT - 1
    found = await limits.acheck("many", "k")
    assert (found.source, found.remaining) == (decisions.REDIS, LIMIT - 2)


async def test_primary_is_found_by_the_client_of_django_redis(
    sentinels: SentinelGroup, settings: SettingsWrapper
) -> None:
    configure(settings, sentinels, LATENCY_BUDGET=10.0, TRANSPORT="client")
    assert limits.check("many", "k").remaining == LIMIT - 1
    found = await limits.acheck("many", "k")
    assert (found.source, found.remaining) == (decisions.REDIS, LIMIT - 2)
    assert isinstance(limits.get_limiter().store, ClientStore)
    options = settings.CACHES["default"] | {"LOCATION": "redis://unheard-of/0?client_name=x"}
    settings.CACHES = {"default": options}
    with pytest.raises(StoreError, match="No master found") as raised:
        ClientStore("default").run(Reset(("k",)))
    assert raised.value.outage


async def test_next_sentinel_is_asked_when_one_is_down_or_hangs(
    sentinels: SentinelGroup, settings: SettingsWrapper
) -> None:
    with listening() as silent:
        addresses = [("127.0.0.1", 1), ("127.0.0.1", silent), *sentinels.addresses]
        configure(settings, sentinels, addresses, LATENCY_BUDGET=2.0)
        assert limits.check("many", "k").source == decisions.REDIS
    with listening() as silent:
        addresses = [("127.0.0.1", silent), ("127.0.0.1", 1), *sentinels.addresses]
        configure(settings, sentinels, addresses, LATENCY_BUDGET=2.0)
        assert (await limits.acheck("many", "k")).source == decisions.REDIS


async def test_sentinels_that_all_hang_cost_no_more_than_the_budget(
    sentinels: SentinelGroup, settings: SettingsWrapper
) -> None:
    with listening() as one, listening() as two:
        addresses = [("127.0.0.1", one), ("127.0.0.1", two)]
        configure(settings, sentinels, addresses, LATENCY_BUDGET=0.1)
        start = time.monotonic()
        assert limits.check("many", "k").source == decisions.LOCAL
        assert (await limits.acheck("many", "k")).source == decisions.LOCAL
        # Each check ends within 0.1 s. redis-py would ask each sentinel several times.
        assert time.monotonic() - start < 2


async def test_sentinels_that_do_not_know_the_name_are_an_outage(
    sentinels: SentinelGroup, settings: SettingsWrapper
) -> None:
    configure(settings, sentinels)
    options = settings.CACHES["default"] | {"LOCATION": "redis://unheard-of/0"}
    settings.CACHES = {"default": options}
    store = RedisStore("default")
    with pytest.raises(StoreError, match="no sentinel knows a primary of 'unheard-of'") as one:
        store.run(Reset(("k",)))
    with pytest.raises(StoreError, match="no sentinel knows a primary of 'unheard-of'") as two:
        await store.arun(Reset(("k",)))
    assert one.value.outage
    assert two.value.outage


async def test_error_says_why_the_last_sentinel_did_not_answer(
    sentinels: SentinelGroup, settings: SettingsWrapper
) -> None:
    configure(settings, sentinels, [("127.0.0.1", 1)])
    store = RedisStore("default")
    expected = rf"no sentinel knows a primary of '{sentinels.name}': .*127\.0\.0\.1:1\b"
    with pytest.raises(StoreError, match=expected):
        store.run(Reset(("k",)))
    with pytest.raises(StoreError, match=expected.replace(":1", "(:1|', 1)")):
        await store.arun(Reset(("k",)))


async def test_call_without_a_time_limit_finds_the_primary(
    sentinels: SentinelGroup, settings: SettingsWrapper
) -> None:
    configure(settings, sentinels)
    store = RedisStore("default")
    assert store.run(Reset(("k",))) == [0]
    assert await store.arun(Reset(("k",))) == [0]


def test_windows_can_be_scanned_on_the_primary(
    sentinels: SentinelGroup, settings: SettingsWrapper
) -> None:
    configure(settings, sentinels)
    limits.check("many", "k")
    store = limits.get_limiter().store
    assert isinstance(store, RedisStore)
    assert store.scan("0", "throttle:*", 100) == ("0", ["throttle:tenant:{k}:many:c3600"])
    assert store.client().ping()


def test_primary_that_was_demoted_is_left(
    sentinels: SentinelGroup, settings: SettingsWrapper
) -> None:
    """A manual failover: the old primary keeps running as a replica."""
    configure(settings, sentinels)
    wait_until(lambda: limits.check("many", "k").source == decisions.REDIS, "Redis decides")
    old = sentinels.primary
    with sentinels.sentinels[0].client() as client:
        wait_until(
            lambda: client.execute_command("SENTINEL", "FAILOVER", sentinels.name),
            "a replica is fit to take over",
        )
    sentinels.wait_for_failover(old)
    wait_until(
        lambda: limits.check("many", "k").source == decisions.REDIS, "the new primary decides"
    )
    assert limits.get_limiter().store.client().connection_pool.service_name == sentinels.name


def test_block_and_refusals_survive_a_failover(
    sentinels: SentinelGroup, settings: SettingsWrapper
) -> None:
    """A manual failover, in which Sentinel chooses a replica that has all data."""
    configure(settings, sentinels, SHIELD_SECONDS=0)
    reasons = [limits.check("penalized", "k").reason for _ in range(5)]
    assert reasons == ["allowed", "limit", "limit", "penalty", "penalty"]
    assert [limits.check("penalized", "half").allowed for _ in range(2)] == [True, False]
    key = "throttle:tenant:{k}:penalized:p7200"
    old = sentinels.primary
    with old.client(decode_responses=False) as client:
        before = client.get(key)
        # Replication is asynchronous.
        assert client.wait(1, 20_000) >= 1
    with sentinels.sentinels[0].client() as client:
        wait_until(
            lambda: client.execute_command("SENTINEL", "FAILOVER", sentinels.name),
            "a replica is fit to take over",
        )
    new = sentinels.wait_for_failover(old)
    wait_until(
        lambda: limits.peek("penalized", "k").source == decisions.REDIS, "the new primary decides"
    )
    assert limits.check("penalized", "k").reason == decisions.PENALTY
    with new.client(decode_responses=False) as client:
        assert client.get(key) == before
    # The block ends at the same microsecond as it would have ended without the failover.
    store = limits.get_limiter().store
    ends = int.from_bytes(before[2:9], "big")
    for store._clock, reason in ((lambda: ends - 1, "penalty"), (lambda: ends, "allowed")):
        assert limits.check("penalized", "k").reason == reason
    store._clock = None
    # One refusal was counted before the failover.
    reasons = [limits.check("penalized", "half").reason for _ in range(2)]
    assert reasons == ["limit", "penalty"]


def test_frozen_primary_does_not_hold_up_requests(
    sentinels: SentinelGroup, settings: SettingsWrapper
) -> None:
    configure(settings, sentinels, LATENCY_BUDGET=0.1)
    wait_until(lambda: limits.check("many", "k").source == decisions.REDIS, "Redis decides")
    old = sentinels.primary
    with frozen(old):
        start = time.monotonic()
        for _ in range(10):
            limits.check("many", "k")
        assert time.monotonic() - start < 5
        sentinels.wait_for_failover(old)
        wait_until(
            lambda: limits.check("many", "k").source == decisions.REDIS,
            "the new primary decides",
        )
    assert get_redis_connection("default").ping()


def test_idle_connections_to_a_frozen_primary_do_not_fail_one_by_one(
    sentinels: SentinelGroup, settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are as many idle connections as were once in use at the same time."""
    configure(settings, sentinels, LATENCY_BUDGET=0.5)
    wait_until(lambda: limits.check("many", "k").source == decisions.REDIS, "Redis decides")
    limiter = limits.get_limiter()
    assert isinstance(limiter.store, RedisStore)
    server = limiter.store._find_server()
    halves = [server.in_halves(PING, 1, time.monotonic() + 5) for _ in range(10)]
    for half in halves:
        next(half)
    for half in halves:
        next(half, None)
    old = sentinels.primary
    with frozen(old):
        sentinels.wait_for_failover(old)
        failed = []
        unanswered = limiter._health.unanswered

        def noted(*arguments: Any, **options: Any) -> None:
            failed.append(arguments)
            unanswered(*arguments, **options)

        wait_until(
            lambda: limits.check("many", "k") and limiter.breaker.state != CLOSED,
            "the breaker opens",
        )
        monkeypatch.setattr(limiter._health, "unanswered", noted)
        wait_until(
            lambda: limits.check("many", "k").source == decisions.REDIS,
            "the new primary decides",
        )
    # Ten connections were idle, and three failures have opened the breaker.
    assert len(failed) < 4


def test_primary_killed_under_load_is_replaced_and_the_limit_holds(
    sentinels: SentinelGroup, settings: SettingsWrapper
) -> None:
    """At most the limit and the lost hits are admitted.

    This must be the last test of the module, because the primary is not started again.
    """
    configure(settings, sentinels, FALLBACK="deny", SHIELD_SECONDS=0, LATENCY_BUDGET=0.5)
    old = sentinels.primary
    reported: Counter[str] = Counter()

    def note(charged: int, over: int, lost: int, **_: Any) -> None:
        reported.update(charged=charged, over=over, lost=lost)

    signals.deferred_sent.connect(note)
    with Load("many", "k") as load, Load("leased", "k") as leased, Load("later", "k") as later:
        load.go_on(LIMIT // 4)
        before = len(load.answers)
        old.kill()
        new = sentinels.wait_for_failover(old)
        for each in (load, leased, later):
            wait_until(
                lambda each=each: each.answers[-1].reason == decisions.LIMIT,  # type: ignore[misc]
                "the new primary has admitted what was left",
            )
    limits.get_limiter().close()
    signals.deferred_sent.disconnect(note)
    # Twice the budget, plus some time for a busy machine.
    assert max(load.seconds + leased.seconds + later.seconds) < 2.5
    sources = {answer.source for answer in load.answers[before:]}
    assert sources == {decisions.DENY, decisions.REDIS}
    with new.client() as client:
        kept = client.strlen("throttle:tenant:{k}:many:c3600")
    assert kept > 0
    # For each caller, one acknowledged hit may be missing on the replica.
    assert LIMIT - load.callers <= load.admitted <= LIMIT + load.callers
    # With leases, the units of one lease may be missing as well.
    assert leased.admitted <= LIMIT + load.callers + LEASE
    assert leased.sources == {decisions.DENY, decisions.REDIS, decisions.LEASE}
    assert later.sources == {decisions.DENY, decisions.DEFERRED}
    assert reported["charged"] + reported["lost"] == later.admitted
    assert reported["charged"] - reported["over"] <= LIMIT
