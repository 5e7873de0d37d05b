"""Cache aliases: their clients and pools, and why an alias cannot be used.

The system checks and the first use of an alias report the same faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from django.core.cache import caches
from django.core.cache.backends.redis import RedisCache as DjangoRedisCache
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from django_redis import get_redis_connection
from django_redis.cache import RedisCache
from django_redis.client import ShardClient
from redis.connection import AbstractConnection, ConnectionPool, parse_url
from redis.exceptions import RedisError

_DOTTED = (
    "CLIENT_CLASS",
    "CONNECTION_FACTORY",
    "CONNECTION_POOL_CLASS",
    "PARSER_CLASS",
    "REDIS_CLIENT_CLASS",
)


_TIME_OUTS = ("SOCKET_TIMEOUT", "SOCKET_CONNECT_TIMEOUT")
_POOL_TIME_OUTS = tuple(name.lower() for name in _TIME_OUTS)


class Fault(NamedTuple):
    """One kind of alias that cannot be used."""

    text: str
    """The problem, as a format string."""
    hint: str

    def improper(self, **facts: Any) -> ImproperlyConfigured:
        return ImproperlyConfigured(f"{self.text.format(**facts)} {self.hint}")


NO_ALIAS = Fault(
    "SLIDING_WINDOW['CACHE'] names the cache {alias!r}, which CACHES does not have: {near}",
    "Name an alias of CACHES whose BACKEND is 'django_redis.cache.RedisCache'.",
)
DJANGO_BACKEND = Fault(
    "The cache {alias!r} uses Django's own Redis backend.",
    "Set its BACKEND to 'django_redis.cache.RedisCache' (LOCATION may stay), or add an alias "
    "with that backend and name it in SLIDING_WINDOW['CACHE'].",
)
OTHER_BACKEND = Fault(
    "The cache {alias!r} uses {backend}, which is not django-redis.",
    "Add an alias whose BACKEND is 'django_redis.cache.RedisCache', and name it in "
    "SLIDING_WINDOW['CACHE'].",
)
SHARDED = Fault(
    "The cache {alias!r} uses django-redis's ShardClient, which spreads keys over several servers.",
    "Use the DefaultClient on one server, or a Redis Cluster with CONNECTION_FACTORY "
    "'django_slidingwindow.cluster.ClusterConnectionFactory'.",
)
BROKEN = Fault("The cache {alias!r} cannot be used: {error}", "Correct its entry in CACHES.")
NO_CONNECTION = Fault(
    "The cache {alias!r} creates its connections with {what}, which does not connect to a server.",
    "Use redis.connection.Connection or a class derived from it. In tests, use limits_in_memory "
    "of django_slidingwindow.testing instead of fakeredis.",
)


def fault_of(alias: str, config: Mapping[str, Any]) -> tuple[Fault, dict[str, Any]] | None:
    """Return why an entry of CACHES cannot be used, and the values for the fault's text.

    Return None if it can be used.
    """
    options: Mapping[str, Any] = config.get("OPTIONS") or {}
    malformed = _malformed(options)
    if malformed is not None:
        return BROKEN, {"alias": alias, "error": malformed}
    paths = {name: options[name] for name in _DOTTED if options.get(name) is not None}
    named: dict[str, Any] = {}
    for name, path in {"BACKEND": config.get("BACKEND", ""), **paths}.items():
        try:
            named[name] = import_string(path) if isinstance(path, str) else None
        except ImportError as error:
            return BROKEN, {"alias": alias, "error": f"{error}."}
        if not callable(named[name]):
            problem = f"{name} is not the dotted path of a class: {path!r}."
            return BROKEN, {"alias": alias, "error": problem}
    if _is_derived(named["BACKEND"], DjangoRedisCache):
        return DJANGO_BACKEND, {"alias": alias}
    if not _is_derived(named["BACKEND"], RedisCache):
        return OTHER_BACKEND, {"alias": alias, "backend": config["BACKEND"]}
    if _is_derived(named.get("CLIENT_CLASS"), ShardClient):
        return SHARDED, {"alias": alias}
    location_problem = _location_problem(config, options)
    if location_problem is not None:
        return BROKEN, {"alias": alias, "error": location_problem}
    connections = (options.get("CONNECTION_POOL_KWARGS") or {}).get("connection_class")
    if connections is not None and not _connects(connections):
        return NO_CONNECTION, {"alias": alias, "what": _name(connections)}
    if _is_fake(named.get("REDIS_CLIENT_CLASS")):
        return NO_CONNECTION, {"alias": alias, "what": options["REDIS_CLIENT_CLASS"]}
    return None


def is_usable(alias: str) -> bool:
    """Return whether CACHES has the alias, and its entry has no fault."""
    config = caches.settings.get(alias)
    return config is not None and fault_of(alias, config) is None


def locations(config: Mapping[str, Any]) -> list[Any]:
    """Return the addresses of an entry of CACHES. With a project's own factory, of any type."""
    location = config.get("LOCATION") or []
    if isinstance(location, str):
        return location.split(",")
    return list(location) if isinstance(location, (list, tuple, set)) else [location]


def _malformed(options: Mapping[str, Any]) -> str | None:
    """Return which option has a value of the wrong type; None if there is none."""
    if not isinstance(options, Mapping):
        return f"OPTIONS is not a dict: {options!r}."
    pool = options.get("CONNECTION_POOL_KWARGS") or {}
    if not isinstance(pool, Mapping):
        return f"CONNECTION_POOL_KWARGS is not a dict: {pool!r}."
    return _no_number(options, _TIME_OUTS) or _no_number(pool, _POOL_TIME_OUTS)


def _no_number(options: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Return which option is not a number, and is not left out either; None if there is none."""
    for name in names:
        value = options.get(name)
        if value and not isinstance(value, (int, float)):
            return f"{name} is not a number: {value!r}."
    return None


def _location_problem(config: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
    if not locations(config):
        return "it has no LOCATION."
    # A project's own factory may have its own kind of address.
    if "CONNECTION_FACTORY" not in options:
        try:
            for location in locations(config):
                if not isinstance(location, str):
                    return f"LOCATION has {location!r}, which is not a text."
                parse_url(location)
        except ValueError as error:
            return f"{error}."
    return None


def new_cache(alias: str) -> Any:
    """Return a new cache for the alias.

    The caches in `django.core.cache.caches` are shared, and Django closes them after each request.
    """
    return caches.create_connection(alias)


def cache_client_of(alias: str) -> Any:
    """Return the client of a new cache for the alias, without connecting. It has the factory.

    Raise ImproperlyConfigured, with the problem and the fix, if the alias cannot be used.
    """
    return _usable(alias, lambda alias: new_cache(alias).client)


def client_of(alias: str) -> Any:
    """Return django-redis's client for an alias, without connecting. Each thread has its own.

    Raise ImproperlyConfigured, with the problem and the fix, if the alias cannot be used.
    """
    return _usable(alias, get_redis_connection)


def pool_of(alias: str) -> ConnectionPool:
    """Return the connection pool of an alias, without connecting."""
    client = _usable(alias, lambda alias: new_cache(alias).client.get_client(write=True))
    return with_connections(alias, client.connection_pool)


def _usable(alias: str, make: Callable[[str], Any]) -> Any:
    """Return the client that `make` makes for the alias; raise ImproperlyConfigured if it fails."""
    try:
        client = make(alias)
    except (RedisError, OSError):
        raise
    except Exception as error:
        raise _improper(alias, error) from error
    if _is_fake(type(client)):
        raise NO_CONNECTION.improper(alias=alias, what=_name(type(client)))
    return client


def with_connections(alias: str, pool: ConnectionPool) -> ConnectionPool:
    """Return the pool; raise ImproperlyConfigured if its connections cannot be used."""
    if not _connects(pool.connection_class):
        raise NO_CONNECTION.improper(alias=alias, what=_name(pool.connection_class))
    no_number = _no_number(pool.connection_kwargs, _POOL_TIME_OUTS)
    if no_number is not None:
        raise BROKEN.improper(alias=alias, error=no_number)
    return pool


def _improper(alias: str, error: Exception) -> ImproperlyConfigured:
    config = caches.settings.get(alias)
    if config is None:
        return NO_ALIAS.improper(
            alias=alias, near=f"the known names are {', '.join(caches.settings)}."
        )
    fault, facts = fault_of(alias, config) or (BROKEN, {"alias": alias, "error": f"{error}."})
    return fault.improper(**facts)


def _connects(connection_class: Any) -> bool:
    return _is_derived(connection_class, AbstractConnection) and not _is_fake(connection_class)


def _is_derived(found: Any, base: type) -> bool:
    return isinstance(found, type) and issubclass(found, base)


def _is_fake(found: Any) -> bool:
    """Whether a class comes from fakeredis, whose connections have no socket."""
    modules = [base.__module__ for base in getattr(found, "__mro__", ())]
    return any(module.partition(".")[0] == "fakeredis" for module in modules)


def _name(found: Any) -> str:
    if not hasattr(found, "__module__"):
        return repr(found)
    return f"{found.__module__}.{getattr(found, '__qualname__', found)}"
