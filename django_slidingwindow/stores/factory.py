"""Choose the store for a cache alias and the setting TRANSPORT."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from ..cluster import ClusterConnectionFactory
from .aliases import new_cache
from .cluster import ClusterStore
from .protocol import Store
from .redis import RedisStore


def store_of(
    alias: str,
    *,
    transport: str = "direct",
    budget: float | None = None,
    clock: Callable[[], int] | None = None,
) -> Store:
    """Return the store for an alias. The alias's connection factory decides if it is a cluster.

    `transport` is "direct" if the store makes its own connections, or "client" if it uses
    django-redis's client. If the alias cannot be used, this function or the store's first call
    raises ImproperlyConfigured.
    """
    factory = None
    with suppress(Exception):
        factory = new_cache(alias).client.connection_factory
    clustered = isinstance(factory, ClusterConnectionFactory)
    if transport == "client":
        # Imported late, because few projects need it: it keeps the start of a process short.
        from .client import ClientStore, ClusterClientStore

        client_store = ClusterClientStore if clustered else ClientStore
        return client_store(alias, budget=budget, clock=clock)
    direct_store = ClusterStore if clustered else RedisStore
    return direct_store(alias, budget=budget, clock=clock)
