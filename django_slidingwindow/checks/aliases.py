"""Check the cache alias: whether it exists, and whether limits can use it, without the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.cache.backends.base import default_key_func
from django.core.checks import CheckMessage
from django.utils.module_loading import import_string
from redis.connection import parse_url
from redis.retry import Retry

from ..cluster import ClusterConnectionFactory
from ..registry import near
from ..stores import aliases
from ..stores.aliases import fault_of, locations
from . import catalog
from .project import Project

# Options of a connection pool. Caches that share a pool cannot differ in them.
_POOL_OPTIONS = frozenset(
    "USERNAME PASSWORD SOCKET_TIMEOUT SOCKET_CONNECT_TIMEOUT CONNECTION_POOL_CLASS"
    " CONNECTION_POOL_KWARGS CONNECTION_FACTORY SENTINELS SENTINEL_KWARGS PARSER_CLASS".split()
)
# The parts of an address that do not apply to all nodes of a cluster. Its only database is 0.
_OF_ONE_NODE = ("host", "port", "path", "db")
# The problem that reports each fault of an alias.
_PROBLEMS = {
    aliases.DJANGO_BACKEND: catalog.DJANGO_BACKEND,
    aliases.OTHER_BACKEND: catalog.OTHER_BACKEND,
    aliases.SHARDED: catalog.SHARDED,
    aliases.BROKEN: catalog.BROKEN_ALIAS,
    aliases.NO_CONNECTION: catalog.NO_CONNECTION,
}
# The values of key options that change nothing.
_DEFAULT_KEY_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "KEY_PREFIX": ("", None),
    "VERSION": (1, None),
    "KEY_FUNCTION": (None, default_key_func, "django.core.cache.backends.base.default_key_func"),
}


def check_alias(project: Project) -> Iterator[CheckMessage]:
    """Report why the alias cannot be used; if it can, report options that may surprise."""
    alias = project.conf.cache
    config = project.caches.get(alias)
    if config is None:
        yield catalog.NO_ALIAS(alias=alias, near=near(alias, project.caches))
        return
    found = fault_of(alias, config)
    if found is not None:
        fault, facts = found
        yield _PROBLEMS[fault](**facts)
        return
    yield from _cluster_options(alias, config)
    yield from _shared_pools(project, alias, config)
    pool = _pool_options(config)
    yield from _short_time_out(project, alias, pool)
    if project.conf.transport == "client":
        yield from _through_client(project, alias, pool)
    yield from _ignored_keys(project, alias, config)


def _cluster_options(alias: str, config: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """Report addresses of a cluster whose options differ from those of the first address."""
    path = _options(config).get("CONNECTION_FACTORY")
    factory = import_string(path) if path else None
    if not isinstance(factory, type) or not issubclass(factory, ClusterConnectionFactory):
        return
    addresses = locations(config)
    known = [options for options in map(_address_options, addresses) if options is not None]
    if len(known) < len(addresses):
        return
    first, *others = known
    names = {
        name for other in others for name in {*first, *other} if first.get(name) != other.get(name)
    }
    if names:
        yield catalog.CLUSTER_OPTIONS(alias=alias, names=", ".join(sorted(names)))


def _address_options(address: Any) -> dict[str, Any] | None:
    """Return the options of an address by name: scheme, username, password and its query.

    Return None if the address is not a URL: a project's connection factory may use any address.
    """
    if not isinstance(address, str):
        return None
    try:
        options: dict[str, Any] = {"scheme": address.partition(":")[0], **parse_url(address)}
    except ValueError:
        return None
    for name in (*_OF_ONE_NODE, "connection_class"):
        options.pop(name, None)
    return options


def _shared_pools(
    project: Project, alias: str, config: Mapping[str, Any]
) -> Iterator[CheckMessage]:
    """Report caches that share a connection pool with the alias and have other options."""
    for other, other_config in project.caches.items():
        # Other backends may have any kind of LOCATION, such as the path of a folder.
        if other == alias or other_config.get("BACKEND") != config["BACKEND"]:
            continue
        shared = locations(other_config)
        if not any(address in shared for address in locations(config)):
            continue
        mine, theirs = _options(config), _options(other_config)
        names = sorted(
            name for name in {*mine, *theirs} & _POOL_OPTIONS if mine.get(name) != theirs.get(name)
        )
        if names:
            yield catalog.SHARED_POOL(alias=alias, other=other, names=", ".join(names))


def _short_time_out(
    project: Project, alias: str, pool: Mapping[str, Any]
) -> Iterator[CheckMessage]:
    """Report a time-out below the budget.

    A longer one is harmless with the direct transport, which never waits longer than the budget.
    """
    seconds, budget = pool["socket_timeout"], project.conf.latency_budget
    if seconds and seconds < budget and "LATENCY_BUDGET" in project.given:
        yield catalog.SHORT_TIME_OUT(alias=alias, seconds=seconds, budget=budget)


def _through_client(
    project: Project, alias: str, pool: Mapping[str, Any]
) -> Iterator[CheckMessage]:
    """Report options that make django-redis's client retry, or wait longer than the budget."""
    retries = [name for name in ("retry", "retry_on_error", "retry_on_timeout") if pool.get(name)]
    # A `Retry` with 0 retries overrides the other two options. In a URL, `retry` is only a text.
    retry = pool.get("retry")
    if retries and not (isinstance(retry, Retry) and retry.get_retries() == 0):
        yield catalog.CLIENT_RETRIES(alias=alias, names=", ".join(retries))
    seconds = pool["socket_timeout"]
    if not seconds or seconds > project.conf.latency_budget:
        wait = f"{seconds} s" if seconds else "the default time-out of redis-py"
        yield catalog.CLIENT_TIME_OUT(alias=alias, wait=wait)


def _ignored_keys(
    project: Project, alias: str, config: Mapping[str, Any]
) -> Iterator[CheckMessage]:
    """Report options for keys in the alias: the keys of windows do not use them."""
    names = [
        name for name, defaults in _DEFAULT_KEY_OPTIONS.items() if config.get(name) not in defaults
    ]
    if names and "PREFIX" not in project.given:
        yield catalog.IGNORED_KEYS(alias=alias, names=", ".join(names))


def _pool_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the alias's connections. Those in the address take precedence."""
    options = _options(config)
    pool = {"socket_timeout": options.get("SOCKET_TIMEOUT")}
    pool |= options.get("CONNECTION_POOL_KWARGS") or {}
    return pool | (_address_options(locations(config)[0]) or {})


def _options(config: Mapping[str, Any]) -> Mapping[str, Any]:
    options: Mapping[str, Any] = config.get("OPTIONS") or {}
    return options
