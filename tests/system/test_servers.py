"""The servers of tests/support/servers, which other tests rely on."""

from __future__ import annotations

import pytest
import redis
from django.core.cache import cache

from tests.support.servers import RedisCluster, RedisServer, SentinelGroup
from tests.support.servers.redis import HOST, has_tls
from tests.support.suite.needs import TLS, require


def test_cache_alias_is_the_server_of_this_worker(redis: redis.Redis) -> None:
    cache.set("name", "value")
    assert redis.dbsize() == 1


def test_server_can_be_frozen_restarted_and_killed(fresh_server: RedisServer) -> None:
    with fresh_server.client(socket_timeout=0.2) as client:
        client.set("key", "value")
        fresh_server.freeze()
        with pytest.raises(redis.TimeoutError):
            client.get("key")
        fresh_server.thaw()
        fresh_server.restart(keep_data=True)
        assert client.get("key") == "value"
        fresh_server.restart()
        assert client.get("key") is None
        fresh_server.kill()
        with pytest.raises(redis.ConnectionError):
            client.get("key")


def test_server_with_password_and_users_answers_on_both_sockets() -> None:
    with RedisServer("user ann on >pw ~throttle:* +@all", password="s3c:/@") as server:
        for url in (server.url, server.unix_url):
            with redis.Redis.from_url(url) as client:
                assert client.ping()
        with (
            redis.Redis(HOST, server.port, username="ann", password="pw") as client,
            pytest.raises(redis.exceptions.NoPermissionError),
        ):
            client.get("another key")


def test_server_with_tls_is_verified_by_its_own_authority() -> None:
    require(TLS, has_tls())
    with RedisServer(tls=True) as server:
        with server.client() as client:
            assert client.ping()
        plain = server.url.replace("rediss:", "redis:").partition("?")[0]
        with redis.Redis.from_url(plain) as client, pytest.raises(redis.ConnectionError):
            client.ping()


def test_cluster_serves_a_slot_while_it_moves(cluster: RedisCluster) -> None:
    names = [f"{{tag}}{number}" for number in range(20)]
    with cluster.client() as client:
        for name in names:
            client.set(name, name)
        slot = client.keyslot("{tag}")
        home = cluster.owner(slot)
        away = next(node for node in cluster.nodes[:3] if node is not home)
        migration = cluster.migrate(slot, away)
        assert migration.move_keys(5) == 5
        assert [client.get(name) for name in names] == names
        migration.finish()
        assert cluster.owner(slot) is away
        assert [client.get(name) for name in names] == names
    cluster.migrate(slot, home).finish()


def test_sentinels_choose_another_primary(sentinels: SentinelGroup) -> None:
    old = sentinels.primary
    old.kill()
    new = sentinels.wait_for_failover(old)
    assert new is not old
    with new.client() as client:
        assert client.set("key", "value")
