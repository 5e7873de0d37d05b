"""Lets django-redis speak to a Redis Cluster, which it cannot by itself.

    CACHES = {"default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": ["redis://node-1:6379", "redis://node-2:6379"],
        "OPTIONS": {"CONNECTION_FACTORY": "django_slidingwindow.cluster.ClusterConnectionFactory"},
    }}

Each address leads to the whole cluster; with several, one of them may be away when
a process starts.
"""

from __future__ import annotations

import os
import threading
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
    """Makes `get_redis_connection` return redis-py's RedisCluster.

    It sends no command twice: what has timed out may have run. Redirections, which ran
    nothing, are followed.
    """

    _clusters: ClassVar[dict[object, Any]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def connect(self, url: str) -> Any:
        """Return the cluster's client, one for the whole process."""
        return self.client([url])

    def client(self, urls: Sequence[str]) -> Any:
        """Return the client of the cluster that the first of these nodes to answer belongs to."""
        # After a fork the sockets are the parent's.
        key = (os.getpid(), tuple(urls), repr(self.options))
        with self._lock:
            if key not in self._clusters:
                self._clusters[key] = self._make(urls)
            return self._clusters[key]

    def disconnect(self, connection: Any) -> None:
        """Close idle connections; the client can be used again."""
        connection.disconnect_connection_pools()

    def pool(self, url: str) -> ConnectionPool:
        """Return what connections to the node at this address are made of. Nothing is connected."""
        params = self.make_connection_params(url)
        params.update(self.pool_cls_kwargs)
        pool = ConnectionPool.from_url(**params)
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
