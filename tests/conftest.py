from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.plugin import SERVER
from tests.support.browser import chromium  # noqa: F401, a fixture
from tests.support.databases import _database_settings, log_database  # noqa: F401, fixtures
from tests.support.servers import RedisCluster, RedisServer, SentinelGroup
from tests.support.suite import selection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

# No test may fail because the machine is slow.
settings.register_profile(
    "suite",
    settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True),
)
settings.load_profile("suite")

SHARED_GROUPS = ("cluster", "sentinels", "log_database", "written")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run tests that share a server, or a run of the benchmarks, on one xdist worker."""
    for item in items:
        for name in SHARED_GROUPS:
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(name))
    selection.select(config, items)


@pytest.fixture(scope="session")
def redis_server(pytestconfig: pytest.Config) -> RedisServer:
    """This worker's server, which the cache alias `default` uses. Tests must not kill it."""
    return pytestconfig.stash[SERVER]


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[Redis]:
    """A client of this worker's server, after emptying the server."""
    with redis_server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def fresh_server() -> Iterator[RedisServer]:
    """A new server for one test, which may kill, freeze or restart it."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def _running_cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(_running_cluster: RedisCluster) -> RedisCluster:
    """An empty Redis Cluster, which all tests share."""
    _running_cluster.flush()
    return _running_cluster


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelGroup]:
    """A primary, two replicas and three sentinels, which the tests of a module share."""
    with SentinelGroup() as group:
        yield group
