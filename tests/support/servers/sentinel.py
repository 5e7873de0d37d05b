"""A primary with two replicas, watched by three sentinels."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from redis.sentinel import Sentinel

from .redis import HOST, RedisServer, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

    Address = tuple[str, int]


class SentinelGroup:
    """Fails over within a few seconds after `primary` is killed or frozen."""

    name = "main"

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.servers: list[RedisServer] = []
        self.sentinels: list[RedisServer] = []

    @property
    def addresses(self) -> list[Address]:
        """The addresses of the sentinels."""
        return [(HOST, sentinel.port) for sentinel in self.sentinels]

    @property
    def url(self) -> str:
        """The LOCATION for django-redis, to use with `addresses` as OPTIONS["SENTINELS"]."""
        return f"redis://{self.name}/0"

    def alias(self, addresses: list[Address] | None = None) -> dict[str, Any]:
        """Return an entry of CACHES, with these sentinels or all of the group."""
        return {
            "BACKEND": "django_redis.cache.RedisCache",
            # A unique URL for each list, because django-redis keeps one pool per URL.
            "LOCATION": f"{self.url}?client_name={id(addresses or self)}",
            "OPTIONS": {
                "CLIENT_CLASS": "django_redis.client.SentinelClient",
                "CONNECTION_POOL_CLASS": "redis.sentinel.SentinelConnectionPool",
                "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
                "SENTINELS": addresses or self.addresses,
            },
        }

    @property
    def primary(self) -> RedisServer:
        """The server that is the primary now, according to the first sentinel."""
        port = self._primary_port(0)
        return next(server for server in self.servers if server.port == port)

    def wait_for_failover(self, old: RedisServer) -> RedisServer:
        """Wait until all sentinels agree on another primary than `old`, and return it."""

        def agreed() -> bool:
            ports = {self._primary_port(number) for number in range(3)}
            return len(ports) == 1 and ports != {old.port}

        # Sentinels pause for 30 s (TILT mode) if the machine's clock has stepped or stood still.
        wait_until(agreed, "the sentinels agree on a new primary", 75)
        primary = self.primary
        with primary.client() as client:
            wait_until(lambda: client.role()[0] == "master", "it takes writes")
        return primary

    def start(self) -> Self:
        try:
            primary = self._run(RedisServer())
            replicas = [self._run(RedisServer(replica_of=primary)) for _ in range(2)]
            self.servers = [primary, *replicas]
            with primary.client() as client:
                wait_until(
                    lambda: client.info("replication")["connected_slaves"] == 2,
                    "both replicas follow",
                )
            self.sentinels = [self._run(self._sentinel(primary)) for _ in range(3)]
            wait_until(self._complete, "the sentinels know one another")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, server: RedisServer) -> RedisServer:
        return self._stack.enter_context(server)

    def _sentinel(self, primary: RedisServer) -> RedisServer:
        return RedisServer(
            f"sentinel monitor {self.name} {HOST} {primary.port} 2",
            f"sentinel down-after-milliseconds {self.name} 700",
            f"sentinel failover-timeout {self.name} 3000",
            sentinel=True,
        )

    def _complete(self) -> bool:
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                state = client.sentinel_master(self.name)
            if (state["num-other-sentinels"], state["num-slaves"]) != (2, 2):
                return False
        return True

    def _primary_port(self, number: int) -> int:
        sentinel = Sentinel([self.addresses[number]], socket_timeout=2)
        try:
            return int(sentinel.discover_master(self.name)[1])
        finally:
            sentinel.sentinels[0].close()
