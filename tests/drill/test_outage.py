"""An outage for one process: calls go to a local port, and then to Redis again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from django_redis.pool import ConnectionFactory

from django_slidingwindow import decisions, limits
from django_slidingwindow.drill.outage import BLACKHOLE, BREAKER, WAYS, Outage, interrupted
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.guard import current_limiter
from django_slidingwindow.stores.protocol import Reset

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper
    from redis import Redis

    from tests.support.servers import RedisCluster

PROFILES = {
    "many": {"axis": "tenant", "limit": 100, "window": 3600},
    "others": {"axis": "ip", "limit": 100, "window": 3600},
}


@pytest.fixture
def outage() -> Outage:
    return Outage()


@pytest.fixture(autouse=True)
def _settings(settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch, redis: Redis) -> None:
    # django-redis keeps a pool for each URL, with the time-outs of the test that came first.
    monkeypatch.setattr(ConnectionFactory, "_pools", {})
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES, "LATENCY_BUDGET": 2}


def use_client(settings: SettingsWrapper, **options: Any) -> None:
    location = settings.CACHES["default"]["LOCATION"]
    settings.CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": location,
            "OPTIONS": options,
        }
    }
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "TRANSPORT": "client"}


def test_outage_keeps_the_times_of_its_begin_and_end() -> None:
    outage = Outage(iter([1000.0, 1005.0]).__next__)
    assert not outage.is_on
    outage.begin()
    assert outage.is_on
    outage.end()
    assert not outage.is_on
    assert (outage.began, outage.ended) == (1000, 1005)


@pytest.mark.parametrize("transport", ["direct", "client"])
@pytest.mark.parametrize("way", WAYS)
def test_fallback_decides_until_the_outage_ends(
    way: str, transport: str, outage: Outage, settings: SettingsWrapper
) -> None:
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "LATENCY_BUDGET": 0.3}
    if transport == "client":
        use_client(settings, SOCKET_TIMEOUT=0.3)
    with interrupted(outage, way):
        assert limits.check("many", "a").source == decisions.REDIS
        outage.begin()
        assert limits.check("many", "a").source == decisions.LOCAL
        assert asyncio.run(limits.acheck("many", "a")).source == decisions.LOCAL
        outage.end()
        again = limits.check("many", "a")
    assert again.source == decisions.REDIS
    assert again.remaining == 98


def test_limiter_of_the_process_is_restored_afterwards(outage: Outage) -> None:
    before = current_limiter.get_limiter()
    with interrupted(outage, BREAKER) as limiter:
        outage.begin()
        assert current_limiter.get_limiter() is limiter
        assert limits.check("many", "a").source == decisions.LOCAL
    assert current_limiter.get_limiter() is before
    assert limits.check("many", "a").source == decisions.REDIS


def test_on_first_use_is_called_for_the_limiter_of_the_drill(
    outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []
    monkeypatch.setattr(current_limiter, "on_first_use", lambda: begun.append(True))
    with interrupted(outage, BREAKER):
        assert begun == [True]
    monkeypatch.setattr(current_limiter, "on_first_use", None)
    with interrupted(outage, BREAKER):
        assert begun == [True]


def test_all_kinds_of_calls_fail_during_the_outage(outage: Outage) -> None:
    call = Reset(("throttle:x",))
    with interrupted(outage, BREAKER) as limiter:
        store: Any = limiter.store
        assert store.run_many([call]) == [[0]]
        assert asyncio.run(store.arun(call)) == [0]
        outage.begin()
        for ask in (store.run, lambda call: asyncio.run(store.arun(call))):
            with pytest.raises(StoreError, match="connecting to 127"):
                ask(call)
        with pytest.raises(StoreError, match="connecting to 127"):
            store.run_many([call])
        assert store.client().ping(), "what pages and commands use is the real store's"


def test_calls_time_out_in_the_black_hole(outage: Outage, settings: SettingsWrapper) -> None:
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "LATENCY_BUDGET": 0.1}
    with interrupted(outage, BLACKHOLE) as limiter:
        outage.begin()
        with pytest.raises(StoreError, match=r"(?i)time"):
            limiter.store.run(Reset(("throttle:x",)))


def cluster_caches(cluster: RedisCluster) -> dict[str, Any]:
    factory = "django_slidingwindow.cluster.ClusterConnectionFactory"
    return {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": cluster.url,
            "OPTIONS": {"CONNECTION_FACTORY": factory},
        }
    }


def test_all_nodes_of_a_cluster_are_away_during_the_outage(
    outage: Outage, cluster: RedisCluster, settings: SettingsWrapper
) -> None:
    settings.CACHES = cluster_caches(cluster)

    def both(limiter: Any) -> list[Any]:
        from django_slidingwindow.core.windows import ProfileCheck
        from django_slidingwindow.registry import registry

        found = [registry.get(name) for name in ("many", "others")]
        checks = [
            ProfileCheck(profile, identifier, profile.policies)
            for profile, identifier in zip(found, ("a", "b"), strict=True)
        ]
        windows = limiter.windows(checks)
        assert limiter.store.groups(windows.keys) is not None, "in two slots"
        return [limiter.charge(windows).source, asyncio.run(limiter.acharge(windows)).source]

    with interrupted(outage, BREAKER) as limiter:
        assert both(limiter) == [decisions.REDIS] * 2
        outage.begin()
        assert both(limiter) == [decisions.LOCAL] * 2
        outage.end()
        assert both(limiter) == [decisions.REDIS] * 2


def test_interrupted_raises_for_the_client_of_a_cluster(
    outage: Outage, cluster: RedisCluster, settings: SettingsWrapper
) -> None:
    settings.CACHES = cluster_caches(cluster)
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "TRANSPORT": "client"}
    with (
        pytest.raises(NotImplementedError, match="client of a Redis Cluster"),
        interrupted(outage, BREAKER),
    ):
        pass
