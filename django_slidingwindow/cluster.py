"""A connection factory that lets django-redis use a Redis Cluster.

    CACHES = {"default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": ["redis://node-1:6379", "redis://node-2:6379"],
        "OPTIONS": {"CONNECTION_FACTORY": "django_slidingwindow.cluster.ClusterConnectionFactory"},
    }}

Each address leads to the whole cluster. With several addresses, a process can start while one of
the nodes is down.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from django_redis.pool import ConnectionFactory
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import ConnectionPool, SSLConnection
from redis.retry import Retry


class ClusterConnectionFactory(ConnectionFactory):  # type: ignore[misc]
    """Make `get_redis_connection` return redis-py's RedisCluster.

    The client sends no command twice, because a command that timed out may have run. It follows
    redirections, which mean that nothing ran.
    """

    _clusters: ClassVar[dict[object, Any]] = {}

    def connect(self, url: str) -> Any:
        """Return the client for the cluster. The whole process shares it."""
        return self.client([url])

    def client(self, urls: Sequence[str]) -> Any:
        """Return the client for the cluster of these nodes. It asks the first one that replies."""
        # The process id is part of the key: after a fork the sockets belong to the parent.
        key = (os.getpid(), tuple(urls), repr(self.options))
        found = self._clusters.get(key)
        if found is None:
            # No lock: while no node replies, threads would wait for each other's attempts.
            found = self._clusters.setdefault(key, self._make(urls))
        return found

    def disconnect(self, connection: Any) -> None:
        """Close idle connections; the client can be used again."""
        connection.disconnect_connection_pools()

    def pool(self, url: str) -> ConnectionPool:
        """Return a pool for the node at this address, without connecting."""
        params = self.make_connection_params(url)
        params.update(self.pool_cls_kwargs)
        pool = ConnectionPool.from_url(**params)
        # redis-py's connections have these defaults too, but its cluster client does not.
        pool.connection_kwargs = {"host": "localhost", "port": 6379, **pool.connection_kwargs}
        if pool.connection_kwargs.pop("db", 0) or "path" in pool.connection_kwargs:
            raise ImproperlyConfigured(
                f"{url}: a Redis Cluster has one database, 0, and no unix socket."
            )
        return pool

    def _make(self, urls: Sequence[str]) -> Any:
        pools = [self.pool(url) for url in urls]
        options = dict(pools[0].connection_kwargs)
        nodes = [
            ClusterNode(pool.connection_kwargs["host"], pool.connection_kwargs["port"])
            for pool in pools
        ]
        for name in ("host", "port", "parser_class", "retry"):
            options.pop(name, None)
        if issubclass(pools[0].connection_class, SSLConnection):
            options["ssl"] = True
        options |= self.redis_client_cls_kwargs
        path = self.options.get("REDIS_CLIENT_CLASS")
        client_class = import_string(path) if path else RedisCluster
        return client_class(
            startup_nodes=nodes,
            max_connections=pools[0].max_connections,
            retry=Retry(NoBackoff(), 0),
            **options,
        )
