"""Choose the store for a cache alias and the setting TRANSPORT."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..cluster import ClusterConnectionFactory
from .aliases import is_usable, new_cache
from .cluster import ClusterStore
from .protocol import Store
from .redis import RedisStore

logger = logging.getLogger("django_slidingwindow")


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
    clustered = _is_cluster(alias)
    if transport == "client":
        # Imported late, because few projects need it: it keeps the start of a process short.
        from .client import ClientStore, ClusterClientStore

        client_store = ClusterClientStore if clustered else ClientStore
        return client_store(alias, budget=budget, clock=clock)
    direct_store = ClusterStore if clustered else RedisStore
    return direct_store(alias, budget=budget, clock=clock)


def _is_cluster(alias: str) -> bool:
    """Return whether the alias is a Redis Cluster; False if its connection factory fails."""
    try:
        factory = new_cache(alias).client.connection_factory
    except Exception as error:
        # The first call reports an alias that cannot be used. But the project's own factory may
        # fail only now, for example because of the network, and not at the first call.
        if is_usable(alias):
            logger.error(
                "could not create the connection factory of the cache %r (%s: %s): it is used as a "
                "single server. If it is a Redis Cluster, restart this process",
                alias,
                type(error).__name__,
                error,
                exc_info=error,
                extra={"alias": alias},
            )
        return False
    return isinstance(factory, ClusterConnectionFactory)
