"""The cache alias: is it there, and can the limits work with it? No network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.cache.backends.redis import RedisCache as DjangoRedisCache
from django.core.checks import CheckMessage
from django.utils.module_loading import import_string
from django_redis.cache import RedisCache
from django_redis.client import SentinelClient, ShardClient

from ..registry import near
from . import catalog
from .project import Project

# redis-py's own, where nothing says otherwise.
_DEFAULT_CLIENT = "django_redis.client.DefaultClient"


def check_alias(project: Project) -> Iterator[CheckMessage]:
    """At most one message: each of them hides what comes after it."""
    alias = project.conf.cache
    config = project.caches.get(alias)
    if config is None:
        yield catalog.NO_ALIAS(alias=alias, near=near(alias, project.caches))
        return
    try:
        backend = import_string(config.get("BACKEND", ""))
        client = import_string(_options(config).get("CLIENT_CLASS", _DEFAULT_CLIENT))
    except ImportError as error:
        yield catalog.BROKEN_ALIAS(alias=alias, error=error)
        return
    if issubclass(backend, DjangoRedisCache):
        yield catalog.DJANGO_BACKEND(alias=alias)
    elif not issubclass(backend, RedisCache):
        yield catalog.OTHER_BACKEND(alias=alias, backend=config["BACKEND"])
    elif issubclass(client, ShardClient):
        yield catalog.SHARDED(alias=alias)
    else:
        yield from _check_connection(project, alias, config, client)


def _check_connection(
    project: Project, alias: str, config: Mapping[str, Any], client: type
) -> Iterator[CheckMessage]:
    yield from _shared_pools(project, alias, config)
    if issubclass(client, SentinelClient):
        yield from _sentinel_time_out(project, alias, _options(config))


def _shared_pools(
    project: Project, alias: str, config: Mapping[str, Any]
) -> Iterator[CheckMessage]:
    for other, its in project.caches.items():
        if other == alias or not set(_locations(its)) & set(_locations(config)):
            continue
        if its.get("BACKEND") != config["BACKEND"]:
            continue
        mine, others = _options(config), _options(its)
        names = sorted(
            name for name in {*mine, *others} & _OF_POOLS if mine.get(name) != others.get(name)
        )
        if names:
            yield catalog.SHARED_POOL(alias=alias, other=other, names=", ".join(names))


# What a pool is made of, so that the second cache goes without its own.
_OF_POOLS = frozenset(
    "USERNAME PASSWORD SOCKET_TIMEOUT SOCKET_CONNECT_TIMEOUT CONNECTION_POOL_CLASS"
    " CONNECTION_POOL_KWARGS CONNECTION_FACTORY SENTINELS SENTINEL_KWARGS PARSER_CLASS".split()
)


def _sentinel_time_out(
    project: Project, alias: str, options: Mapping[str, Any]
) -> Iterator[CheckMessage]:
    kwargs = options.get("SENTINEL_KWARGS")
    if kwargs is None:
        # redis-py then asks the sentinels with the time-outs of the server.
        kwargs = {"socket_timeout": options.get("SOCKET_TIMEOUT")}
        kwargs |= options.get("CONNECTION_POOL_KWARGS", {})
    seconds = kwargs.get("socket_timeout")
    budget = project.conf.latency_budget
    if seconds is None or seconds > budget:
        said = "as long as redis-py likes" if seconds is None else f"{seconds} s"
        yield catalog.SLOW_SENTINEL(alias=alias, seconds=said, budget=budget)


def _options(config: Mapping[str, Any]) -> Mapping[str, Any]:
    options: Mapping[str, Any] = config.get("OPTIONS") or {}
    return options


def _locations(config: Mapping[str, Any]) -> list[str]:
    location = config.get("LOCATION") or []
    return location.split(",") if isinstance(location, str) else list(location)
