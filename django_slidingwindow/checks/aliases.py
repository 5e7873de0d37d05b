"""The cache alias: is it there, and can the limits work with it? No network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.cache.backends.redis import RedisCache as DjangoRedisCache
from django.core.checks import CheckMessage
from django.utils.module_loading import import_string
from django_redis.cache import RedisCache
from django_redis.client import ShardClient
from redis.connection import parse_url

from ..registry import near
from . import catalog
from .project import Project

_DEFAULT_CLIENT = "django_redis.client.DefaultClient"
_DOTTED = frozenset(
    "CONNECTION_FACTORY CONNECTION_POOL_CLASS REDIS_CLIENT_CLASS PARSER_CLASS".split()
)
# What a pool is made of, so that the second cache goes without its own.
_OF_POOLS = frozenset(
    "USERNAME PASSWORD SOCKET_TIMEOUT SOCKET_CONNECT_TIMEOUT CONNECTION_POOL_CLASS"
    " CONNECTION_POOL_KWARGS CONNECTION_FACTORY SENTINELS SENTINEL_KWARGS PARSER_CLASS".split()
)


def check_alias(project: Project) -> Iterator[CheckMessage]:
    """What is wrong with it hides what comes after."""
    alias = project.conf.cache
    config = project.caches.get(alias)
    if config is None:
        yield catalog.NO_ALIAS(alias=alias, near=near(alias, project.caches))
        return
    try:
        backend = import_string(config.get("BACKEND", ""))
        client = import_string(_options(config).get("CLIENT_CLASS", _DEFAULT_CLIENT))
        for name in _DOTTED & set(_options(config)):
            import_string(_options(config)[name])
    except ImportError as error:
        yield catalog.BROKEN_ALIAS(alias=alias, error=f"{error}.")
        return
    if issubclass(backend, DjangoRedisCache):
        yield catalog.DJANGO_BACKEND(alias=alias)
    elif not issubclass(backend, RedisCache):
        yield catalog.OTHER_BACKEND(alias=alias, backend=config["BACKEND"])
    elif issubclass(client, ShardClient):
        yield catalog.SHARDED(alias=alias)
    else:
        yield from _check_connection(project, alias, config)


def _check_connection(
    project: Project, alias: str, config: Mapping[str, Any]
) -> Iterator[CheckMessage]:
    problem = _location_problem(config)
    if problem is not None:
        yield catalog.BROKEN_ALIAS(alias=alias, error=problem)
        return
    yield from _shared_pools(project, alias, config)
    yield from _short_time_out(project, alias, _options(config))


def _location_problem(config: Mapping[str, Any]) -> str | None:
    if not _locations(config):
        return "it has no LOCATION."
    # A factory of the project's own may have its own addresses.
    if "CONNECTION_FACTORY" not in _options(config):
        try:
            for location in _locations(config):
                parse_url(location)
        except ValueError as error:
            return str(error)
    return None


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


def _short_time_out(
    project: Project, alias: str, options: Mapping[str, Any]
) -> Iterator[CheckMessage]:
    """Longer ones do no harm: the limits have connections of their own, within the budget."""
    seconds = options.get("SOCKET_TIMEOUT")
    seconds = options.get("CONNECTION_POOL_KWARGS", {}).get("socket_timeout", seconds)
    budget = project.conf.latency_budget
    if seconds and seconds < budget and "LATENCY_BUDGET" in project.given:
        yield catalog.SHORT_TIME_OUT(alias=alias, seconds=seconds, budget=budget)


def _options(config: Mapping[str, Any]) -> Mapping[str, Any]:
    options: Mapping[str, Any] = config.get("OPTIONS") or {}
    return options


def _locations(config: Mapping[str, Any]) -> list[str]:
    location = config.get("LOCATION") or []
    return location.split(",") if isinstance(location, str) else list(location)
