"""Which store an alias and the setting TRANSPORT mean."""

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
    """Return the store for an alias: of a cluster if its connection factory makes clusters.

    `transport` is "direct" for connections of its own, or "client" for django-redis's client.
    An alias that cannot be used raises ImproperlyConfigured at the first call of the store.
    """
    factory = None
    with suppress(Exception):
        factory = new_cache(alias).client.connection_factory
    clustered = isinstance(factory, ClusterConnectionFactory)
    if transport == "client":
        # Few projects need it, and a process that starts imports only what it needs.
        from .client import ClientStore, ClusterClientStore

        through = ClusterClientStore if clustered else ClientStore
        return through(alias, budget=budget, clock=clock)
    own = ClusterStore if clustered else RedisStore
    return own(alias, budget=budget, clock=clock)
