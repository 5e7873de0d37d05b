"""If an alias cannot be used, the error names the alias and the fix."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django_redis.pool import ConnectionFactory
from redis import Redis
from redis.connection import Connection
from redis.exceptions import ConnectionError as RedisConnectionError

from django_slidingwindow import limits
from django_slidingwindow.decisions import LOCAL
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.stores.aliases import is_usable
from django_slidingwindow.stores.factory import store_of

URL = "redis://127.0.0.1:1"
REDIS = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"{URL}/0"}
DJANGO_REDIS = "'django_redis.cache.RedisCache'"


def make_connection(**options: Any) -> Connection:
    return Connection(**options)


FakeConnection = type("FakeConnection", (Connection,), {"__module__": "fakeredis._clients"})
FakeRedis = type("FakeRedis", (Redis,), {"__module__": "fakeredis"})


class Failing(ConnectionFactory):  # type: ignore[misc]
    """A project's factory that fails with a network error."""

    def connect(self, url: str) -> Any:
        raise RedisConnectionError("nobody there")


class Strange(ConnectionFactory):  # type: ignore[misc]
    """A project's factory that raises an unexpected error."""

    def connect(self, url: str) -> Any:
        raise ValueError("out of order")


class Making(ConnectionFactory):  # type: ignore[misc]
    """A project's factory whose connection class is a function."""

    def connect(self, url: str) -> Any:
        client = super().connect(url)
        client.connection_pool.connection_class = make_connection
        return client


def options(number: int, **given: Any) -> dict[str, Any]:
    # Each number is another URL, because django-redis keeps a pool for each URL.
    return {**REDIS, "LOCATION": f"{URL}/{number}", "OPTIONS": given}


UNUSABLE: dict[str, tuple[Any, str]] = {
    "local memory": (
        {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        f"LocMemCache, which is not django-redis. Add an alias whose BACKEND is {DJANGO_REDIS}",
    ),
    "dummy": (
        {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
        f"DummyCache, which is not django-redis. Add an alias whose BACKEND is {DJANGO_REDIS}",
    ),
    "django's": (
        {**REDIS, "BACKEND": "django.core.cache.backends.redis.RedisCache"},
        f"Django's own Redis backend. Set its BACKEND to {DJANGO_REDIS}",
    ),
    "none": (
        None,
        f"the known names are default. Name an alias of CACHES whose BACKEND is {DJANGO_REDIS}",
    ),
    "function": (
        options(1, CONNECTION_POOL_KWARGS={"connection_class": make_connection}),
        "make_connection, which does not connect to a server. Use redis.connection.Connection",
    ),
    "fake connection": (
        options(2, CONNECTION_POOL_KWARGS={"connection_class": FakeConnection}),
        "In tests, use limits_in_memory of django_slidingwindow.testing instead of fakeredis.",
    ),
    "fake client": (
        options(3, REDIS_CLIENT_CLASS="fakeredis.FakeRedis"),
        "fakeredis.FakeRedis, which does not connect to a server.",
    ),
    "sharded": (
        options(4, CLIENT_CLASS="django_redis.client.ShardClient"),
        "ShardClient, which spreads keys over several servers. Use the DefaultClient",
    ),
    "no location": ({**REDIS, "LOCATION": ""}, "it has no LOCATION. Correct its entry in CACHES."),
    "no address": ({**REDIS, "LOCATION": "localhost:6379"}, "redis://"),
    "no text": ({**REDIS, "LOCATION": [None]}, "LOCATION has None, which is not a text."),
    "time-out of text": (
        options(10, SOCKET_TIMEOUT="5"),
        "SOCKET_TIMEOUT is not a number: '5'. Correct",
    ),
    "time-out of text in the pool": (
        options(11, CONNECTION_POOL_KWARGS={"socket_timeout": "5"}),
        "socket_timeout is not a number: '5'. Correct",
    ),
    "no backend": ({**REDIS, "BACKEND": "nowhere.RedisCache"}, "No module named 'nowhere'."),
    "module as backend": (
        {**REDIS, "BACKEND": "django_redis.cache"},
        "BACKEND is not the dotted path of a class: 'django_redis.cache'. Correct",
    ),
    "module as client": (
        options(12, CLIENT_CLASS="django_redis.client"),
        "CLIENT_CLASS is not the dotted path of a class: 'django_redis.client'. Correct",
    ),
    "class instead of its path": (
        options(9, CONNECTION_FACTORY=ConnectionFactory),
        "CONNECTION_FACTORY is not the dotted path of a class: <class 'django_redis.pool.Conn",
    ),
    "no factory": (options(5, CONNECTION_FACTORY="nowhere.Factory"), "No module named 'nowhere'."),
    "broken factory": (
        options(6, CONNECTION_FACTORY="tests.stores.test_aliases.Strange"),
        "cannot be used: out of order. Correct its entry in CACHES.",
    ),
    "factory of a function": (
        options(7, CONNECTION_FACTORY="tests.stores.test_aliases.Making"),
        "tests.stores.test_aliases.make_connection, which does not connect",
    ),
    "cluster of a function": (
        options(
            0,
            CONNECTION_FACTORY="django_slidingwindow.cluster.ClusterConnectionFactory",
            CONNECTION_POOL_KWARGS={"connection_class": make_connection},
        ),
        "tests.stores.test_aliases.make_connection, which does not connect",
    ),
}

check: Any = pytest.mark.parametrize(
    "check",
    [
        lambda: limits.check("ip_public", "203.0.113.9"),
        lambda: asyncio.run(limits.acheck("ip_public", "203.0.113.9")),
    ],
    ids=["sync", "async"],
)


@pytest.fixture(autouse=True)
def _fakeredis(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("fakeredis")
    module.FakeRedis = FakeRedis
    monkeypatch.setitem(sys.modules, "fakeredis", module)


def use(settings: Any, config: Any, **user: Any) -> None:
    alias = "default" if config is None else "limits"
    settings.CACHES = {"default": REDIS} if config is None else {alias: config, "default": REDIS}
    settings.SLIDING_WINDOW = {"CACHE": "limits", **user}


@check
@pytest.mark.parametrize("kind", UNUSABLE)
def test_first_use_names_alias_and_fix_when_the_alias_cannot_be_used(
    check: Callable[[], Any], kind: str, settings: Any
) -> None:
    config, said = UNUSABLE[kind]
    use(settings, config)
    for _ in range(2):
        with pytest.raises(ImproperlyConfigured) as raised:
            check()
        assert "'limits'" in str(raised.value)
        assert said in str(raised.value)


@pytest.mark.parametrize("kind", ["local memory", "function"])
def test_view_raises_the_same_error_when_the_alias_cannot_be_used(
    kind: str, settings: Any, rf: Any
) -> None:
    config, said = UNUSABLE[kind]
    use(settings, config)

    @rate_limit("ip_public")
    def view(request: object) -> None: ...

    with pytest.raises(ImproperlyConfigured) as raised:
        view(rf.get("/"))
    assert said in str(raised.value)


@check
@pytest.mark.parametrize("kind", sorted({*UNUSABLE} - {"cluster of a function"}))
def test_alias_is_not_looked_at_when_limits_are_switched_off(
    check: Callable[[], Any], kind: str, settings: Any
) -> None:
    use(settings, UNUSABLE[kind][0], ENABLED=False)
    assert check().allowed


def test_client_of_a_store_names_alias_and_fix_when_the_alias_cannot_be_used(settings: Any) -> None:
    config, said = UNUSABLE["local memory"]
    use(settings, config)
    with pytest.raises(ImproperlyConfigured) as raised:
        store_of("limits").client()
    assert said in str(raised.value)


@pytest.mark.parametrize("name", ["PARSER_CLASS", "CONNECTION_FACTORY"])
def test_option_of_none_means_the_default_as_in_django_redis(name: str, settings: Any) -> None:
    use(settings, options(10, **{name: None}))
    assert is_usable("limits")
    assert store_of("limits").client()


@check
def test_network_error_of_a_factory_is_an_outage(check: Callable[[], Any], settings: Any) -> None:
    use(settings, options(8, CONNECTION_FACTORY="tests.stores.test_aliases.Failing"))
    assert check().source == LOCAL


def test_check_makes_no_cache_that_django_would_close_after_each_request(
    settings: Any, redis: Redis
) -> None:
    profiles = {"wide": {"axis": "ip", "rate": "100/m"}}
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "PROFILES": profiles}
    with ThreadPoolExecutor(1) as fresh_thread:

        def made() -> list[Any]:
            assert limits.check("wide", "203.0.113.9").source == "redis"
            return caches.all(initialized_only=True)

        assert fresh_thread.submit(made).result() == []
