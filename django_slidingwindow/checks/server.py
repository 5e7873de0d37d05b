"""The Redis servers behind an alias, for a few questions within a few seconds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.core.cache import caches
from redis.exceptions import RedisError, ResponseError
from redis.sentinel import SentinelConnectionPool

from ..cluster import ClusterConnectionFactory
from ..stores.aliases import pool_of
from ..stores.commands import pack
from ..stores.flows import drive
from ..stores.net import server as servers
from ..stores.net.pool import ask_once
from ..stores.net.routing import discover
from ..stores.net.sentinel import Sentinels, half_way
from ..stores.net.settings import ConnectionSettings
from ..stores.net.topology import Address, Topology

PATIENCE = 2.0
"""Seconds for finding a server, and for all its answers to some questions."""


def is_cluster(alias: str) -> bool:
    """Whether the alias leads to a Redis Cluster."""
    return isinstance(_client(alias).connection_factory, ClusterConnectionFactory)


def links(alias: str) -> list[ConnectionSettings]:
    """A settings to each server that takes the alias's writes; raises what redis-py does."""
    if is_cluster(alias):
        return _primaries(_client(alias))
    pool = pool_of(alias)
    if isinstance(pool, SentinelConnectionPool):
        return [Sentinels(pool, None).find(time.monotonic() + PATIENCE)]
    return [ConnectionSettings.of(pool, None)]


def _primaries(client: Any) -> list[ConnectionSettings]:
    """Of a cluster; the nodes that the settings name if none of those tells the others."""
    seeds = [
        ConnectionSettings.of(client.connection_factory.pool(url), None) for url in client._server
    ]
    topology = Topology(
        [Address(settings.options["host"], settings.options["port"]) for settings in seeds]
    )
    deadline = time.monotonic() + PATIENCE

    def answer(step: Any) -> list[Any]:
        return [ask_once(seeds[0].at(*step.address), step.payload, half_way(deadline))]

    try:
        drive(discover(topology), answer)
    except RedisError:
        return seeds
    return [seeds[0].at(*address) for address in topology.primaries]


def _client(alias: str) -> Any:
    cache: Any = caches[alias]
    return cache.client


def place(settings: ConnectionSettings) -> str:
    """Where a server is, for people."""
    options = settings.options
    return str(options.get("path") or f"{options.get('host')}:{options.get('port')}")


class Server:
    """One server, on one connection, that is never asked the same twice."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.name = place(settings)
        self._server = servers.Server(settings)

    def ask(self, *commands: Iterable[str]) -> list[Any]:
        """The reply to each; a server's error is returned, one of the connection raised."""
        payload = b"".join(pack(*(word.encode() for word in command)) for command in commands)
        return self._server.exchange(payload, len(commands), time.monotonic() + PATIENCE)

    def info(self) -> Mapping[str, str] | None:
        """The facts of INFO; None if this user may not ask."""
        (reply,) = self.ask(["INFO"])
        if isinstance(reply, ResponseError):
            return None
        lines = (line.partition(":") for line in reply.decode().splitlines())
        return {name: value for name, colon, value in lines if colon}

    def close(self) -> None:
        self._server.close()


@contextmanager
def connected(settings: ConnectionSettings) -> Iterator[Server]:
    """The server of a settings, until the end of the block."""
    server = Server(settings)
    try:
        yield server
    finally:
        server.close()
