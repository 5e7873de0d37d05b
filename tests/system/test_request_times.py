"""Redis frozen, killed, failed over: no request of a leased or deferred profile waits for long."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow import decisions, limits, signals
from django_slidingwindow.core.breaker import CLOSED, most_probes
from tests.support.load import PageLoad
from tests.support.servers.redis import wait_until
from tests.support.troubles import frozen, killed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import SettingsWrapper

    from django_slidingwindow.decisions import Decision
    from tests.support.servers import RedisServer, SentinelGroup

LIMIT, LEASE = 60, 10
# Seconds. The most that a request may take is two budgets, and some time for a busy machine.
BUDGET = 0.5
MOST = 2 * BUDGET + 0.25
OUTAGE = 5 * BUDGET


def configure(settings: SettingsWrapper, alias: dict[str, Any]) -> None:
    settings.CACHES = {"default": alias}
    settings.ROOT_URLCONF = "tests.support.outage_urls"
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
    """Deferred hits that were charged, charged over the limit, and lost; and recoveries."""
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
def test_redis_that_is_frozen_holds_up_no_request(
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
    assert max(load.seconds) < MOST
    assert 0 < admitted(during, decisions.LOCAL) <= LIMIT
    if page == "leased":
        assert admitted(load.answers, decisions.REDIS, decisions.LEASE) <= LIMIT
    else:
        judge_probes(during)
        judge_deferred(load, reported, most=LIMIT)


def test_redis_that_is_killed_holds_up_no_request(
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
        assert max(load.seconds) < MOST
        assert 0 < admitted(answers, decisions.LOCAL) <= LIMIT
    # It comes back without its windows: up to one limit more.
    assert admitted(leased.answers, decisions.REDIS, decisions.LEASE) <= 2 * LIMIT
    judge_probes(during[1])
    judge_deferred(later, reported, most=2 * LIMIT)


def test_failover_holds_up_no_request(
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
        assert max(load.seconds) < MOST
        # The fallback forgets its windows with each recovery.
        assert admitted(load.answers, decisions.LOCAL) <= (1 + reported["recovered"]) * LIMIT
    # Each caller may have had one hit acknowledged that no replica had yet, or a lease.
    lost = leased.callers + LEASE
    assert admitted(leased.answers, decisions.REDIS, decisions.LEASE) <= LIMIT + lost
    # The new primary may lack charges; at most the whole limit.
    judge_deferred(later, reported, most=2 * LIMIT)


def wait_for_outage() -> None:
    """Return when Redis was away for long enough, and the breaker has opened."""
    ends = time.monotonic() + OUTAGE
    breaker = limits.get_limiter().breaker
    wait_until(lambda: breaker.state != CLOSED, "the breaker opens", 12)
    time.sleep(max(0.0, ends - time.monotonic()))


def wait_for_recovery(*loads: PageLoad) -> None:
    """Return when Redis decides again, and has been asked for more than the limit."""
    breaker = limits.get_limiter().breaker
    for load in loads:
        wait_until(
            lambda load=load: (  # type: ignore[misc]
                breaker.state == CLOSED and load.answers[-1].source != decisions.LOCAL
            ),
            "Redis decides again",
        )
        load.go_on(2 * LIMIT)


def judge_probes(during: list[Decision]) -> None:
    """Behind the open breaker, deferred charges are probes and those that came before it opened."""
    sources = [answer.source for answer in during]
    behind = sources[sources.index(decisions.LOCAL) :]
    assert behind.count(decisions.DEFERRED) <= most_probes(12) + PageLoad.callers


def judge_deferred(load: PageLoad, reported: Counter[str], *, most: int) -> None:
    """Every deferred hit was charged or is counted as lost; `most` fit into the limit."""
    hits = admitted(load.answers, decisions.DEFERRED)
    wait_until(lambda: reported["charged"] + reported["lost"] == hits, "every hit is counted")
    assert reported["charged"] - reported["over"] <= most


def admitted(answers: list[Decision], *sources: str) -> int:
    return sum(answer.allowed for answer in answers if answer.source in sources)
