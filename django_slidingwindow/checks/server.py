"""Connect to the Redis servers of an alias, for a few commands with a short time-out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from redis.exceptions import RedisError, ResponseError
from redis.sentinel import SentinelConnectionPool

from ..cluster import ClusterConnectionFactory
from ..stores.aliases import cache_client_of, pool_of
from ..stores.commands import pack
from ..stores.flows import drive
from ..stores.net import server as servers
from ..stores.net.pool import ask_once
from ..stores.net.routing import discover
from ..stores.net.sentinel import Sentinels, half_way
from ..stores.net.settings import ConnectionSettings
from ..stores.net.topology import Address, Topology

TIMEOUT = 2.0
"""Seconds to find a server, and seconds for all replies to one `send`."""


def is_cluster(alias: str) -> bool:
    """Return whether the alias is a Redis Cluster."""
    return isinstance(cache_client_of(alias).connection_factory, ClusterConnectionFactory)


def primaries(alias: str) -> list[ConnectionSettings]:
    """Return the settings of each server that accepts writes. Raise errors of redis-py."""
    if is_cluster(alias):
        return _cluster_primaries(cache_client_of(alias))
    pool = pool_of(alias)
    if isinstance(pool, SentinelConnectionPool):
        return [Sentinels(pool, None).find(time.monotonic() + TIMEOUT)]
    return [ConnectionSettings.of(pool, None)]


def _cluster_primaries(client: Any) -> list[ConnectionSettings]:
    """Return the primaries of a cluster; the configured nodes if no node knows the topology."""
    seeds = [
        ConnectionSettings.of(client.connection_factory.pool(url), None) for url in client._server
    ]
    topology = Topology(
        [Address(settings.options["host"], settings.options["port"]) for settings in seeds]
    )
    deadline = time.monotonic() + TIMEOUT

    def send(step: Any) -> list[Any]:
        return [ask_once(seeds[0].at(*step.address), step.payload, half_way(deadline))]

    try:
        drive(discover(topology), send)
    except RedisError:
        return seeds
    return [seeds[0].at(*address) for address in topology.primaries]


def address_of(settings: ConnectionSettings) -> str:
    """Return the address of a server as text."""
    options = settings.options
    return str(options.get("path") or f"{options.get('host')}:{options.get('port')}")


class Server:
    """One server on one connection. Commands are never sent twice."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.name = address_of(settings)
        self._server = servers.Server(settings)

    def send(self, *commands: Iterable[str]) -> list[Any]:
        """Return the reply to each command. Error replies are returned, other errors raised."""
        payload = b"".join(pack(*(word.encode() for word in command)) for command in commands)
        return self._server.exchange(payload, len(commands), time.monotonic() + TIMEOUT)

    def info(self) -> Mapping[str, str] | None:
        """Return the fields of INFO; None if this user may not run it."""
        (reply,) = self.send(["INFO"])
        if isinstance(reply, ResponseError):
            return None
        lines = (line.partition(":") for line in reply.decode().splitlines())
        return {name: value for name, colon, value in lines if colon}

    def close(self) -> None:
        self._server.close()


@contextmanager
def connected(settings: ConnectionSettings) -> Iterator[Server]:
    """Connect to a server, and close the connection at the end of the block."""
    server = Server(settings)
    try:
        yield server
    finally:
        server.close()
