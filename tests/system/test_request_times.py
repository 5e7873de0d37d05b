"""Outages delay no request of a leased or deferred profile for long."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow import decisions, limits, signals
from django_slidingwindow.core.breaker import CLOSED, most_probes
from tests.support.background_load import PageLoad
from tests.support.redis_failures import frozen, killed
from tests.support.servers.redis import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import SettingsWrapper

    from django_slidingwindow.decisions import Decision
    from tests.support.servers import RedisServer, SentinelGroup

LIMIT, LEASE = 60, 10
# In seconds. A request may take two latency budgets, and longer on a busy machine, but less than
# the outage.
BUDGET = 0.5
MAX_SECONDS = 2.5
OUTAGE = 3.0


def configure(settings: SettingsWrapper, alias: dict[str, Any]) -> None:
    settings.CACHES = {"default": alias}
    settings.ROOT_URLCONF = "tests.support.sites.outage_urls"
    settings.MIDDLEWARE = ["django_slidingwindow.middleware.RateLimitMiddleware"]
    counted = {"axis": "ip", "limit": LIMIT, "window": 3600}
    settings.SLIDING_WINDOW = {
        "PROFILES": {
            "many": counted,
            "leased": {**counted, "lease": LEASE},
            "later": {**counted, "mode": "deferred"},
        },
        "LATENCY_BUDGET": BUDGET,
        "LOG": False,
        "SHIELD_SECONDS": 0,
    }


def alias_of(server: RedisServer) -> dict[str, Any]:
    return {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}


@pytest.fixture
def reported() -> Iterator[Counter[str]]:
    """Counts of recoveries, and of deferred hits: charged, charged over the limit, and lost."""
    found: Counter[str] = Counter()

    def sent(charged: int, over: int, lost: int, **_: Any) -> None:
        found.update(charged=charged, over=over, lost=lost)

    def recovered(**_: Any) -> None:
        found.update(recovered=1)

    signals.deferred_sent.connect(sent)
    signals.store_recovered.connect(recovered)
    yield found
    signals.deferred_sent.disconnect(sent)
    signals.store_recovered.disconnect(recovered)


@pytest.mark.parametrize("page", ["leased", "later"])
def test_frozen_redis_delays_no_request(
    page: str, fresh_server: RedisServer, settings: SettingsWrapper, reported: Counter[str]
) -> None:
    configure(settings, alias_of(fresh_server))
    with PageLoad(page) as load:
        load.go_on(15)
        before = len(load.answers)
        with frozen(fresh_server):
            wait_for_outage()
            load.go_on(30)
            during = load.answers[before:]
        wait_for_recovery(load)
    assert max(load.seconds) < MAX_SECONDS
    assert 0 < admitted(during, decisions.LOCAL) <= LIMIT
    if page == "leased":
        assert admitted(load.answers, decisions.REDIS, decisions.LEASE) <= LIMIT
    else:
        assert_only_probes(during)
        assert_deferred_hits_are_counted(load, reported, most=LIMIT)


def test_killed_redis_delays_no_request(
    fresh_server: RedisServer, settings: SettingsWrapper, reported: Counter[str]
) -> None:
    configure(settings, alias_of(fresh_server))
    with PageLoad("leased") as leased, PageLoad("later") as later:
        leased.go_on(15)
        with killed(fresh_server):
            wait_for_outage()
            leased.go_on(30)
            later.go_on(30)
            during = [*leased.answers], [*later.answers]
        wait_for_recovery(leased, later)
    for load, answers in zip((leased, later), during, strict=True):
        assert max(load.seconds) < MAX_SECONDS
        assert 0 < admitted(answers, decisions.LOCAL) <= LIMIT
    # Redis comes back without its windows, so up to one more limit is admitted.
    assert admitted(leased.answers, decisions.REDIS, decisions.LEASE) <= 2 * LIMIT
    assert_only_probes(during[1])
    assert_deferred_hits_are_counted(later, reported, most=2 * LIMIT)


def test_failover_delays_no_request(
    sentinels: SentinelGroup, settings: SettingsWrapper, reported: Counter[str]
) -> None:
    configure(settings, sentinels.alias())
    old = sentinels.primary
    with PageLoad("leased") as leased, PageLoad("later") as later:
        leased.go_on(15)
        with frozen(old):
            sentinels.wait_for_failover(old)
            wait_for_recovery(leased, later)
    for load in (leased, later):
        assert max(load.seconds) < MAX_SECONDS
        # The fallback empties its windows with each recovery.
        assert admitted(load.answers, decisions.LOCAL) <= (1 + reported["recovered"]) * LIMIT
    # The new primary may lack one hit of each caller, and a lease.
    lost = leased.callers + LEASE
    assert admitted(leased.answers, decisions.REDIS, decisions.LEASE) <= LIMIT + lost
    # The new primary may lack charges, but at most the whole limit.
    assert_deferred_hits_are_counted(later, reported, most=2 * LIMIT)


def wait_for_outage() -> None:
    """Wait until the outage was long enough and the breaker is open."""
    ends = time.monotonic() + OUTAGE
    breaker = limits.get_limiter().breaker
    wait_until(lambda: breaker.state != CLOSED, "the breaker opens", 12)
    time.sleep(max(0.0, ends - time.monotonic()))


def wait_for_recovery(*loads: PageLoad) -> None:
    """Wait until Redis decides again and has checked more than the limit."""
    breaker = limits.get_limiter().breaker
    for load in loads:
        wait_until(
            lambda load=load: (  # type: ignore[misc]
                breaker.state == CLOSED and load.answers[-1].source != decisions.LOCAL
            ),
            "Redis decides again",
        )
        load.go_on(2 * LIMIT)


def assert_only_probes(during: list[Decision]) -> None:
    """Assert that behind the open breaker only probes and earlier hits are deferred."""
    sources = [answer.source for answer in during]
    behind = sources[sources.index(decisions.LOCAL) :]
    assert behind.count(decisions.DEFERRED) <= most_probes(12) + PageLoad.callers


def assert_deferred_hits_are_counted(load: PageLoad, reported: Counter[str], *, most: int) -> None:
    """Assert that each deferred hit is charged or counted as lost, and at most `most` fit."""
    hits = admitted(load.answers, decisions.DEFERRED)
    wait_until(lambda: reported["charged"] + reported["lost"] == hits, "every hit is counted")
    assert reported["charged"] - reported["over"] <= most


def admitted(answers: list[Decision], *sources: str) -> int:
    return sum(answer.allowed for answer in answers if answer.source in sources)
