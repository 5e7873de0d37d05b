"""The Redis servers behind an alias, for a few questions within a few seconds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from django_redis import get_redis_connection
from redis.exceptions import ResponseError

from ..stores.links import Link

PATIENCE = 2.0
"""Seconds for connecting, and for every answer."""


class Server:
    """One server, on a connection of its own that never repeats a question."""

    def __init__(self, connection: Any, name: str) -> None:
        self._connection = connection
        self.name = name

    def ask(self, *command: str) -> Any:
        """The reply; a server's error is returned, one of the connection raised."""
        self._connection.deadline = time.monotonic() + PATIENCE
        self._connection.send_command(*command)
        try:
            return self._connection.read_response()
        except ResponseError as error:
            return error

    def info(self) -> Mapping[str, str] | None:
        """The facts of INFO; None if this user may not ask."""
        reply = self.ask("INFO")
        if isinstance(reply, ResponseError):
            return None
        lines = (line.partition(":") for line in reply.decode().splitlines())
        return {name: value for name, colon, value in lines if colon}


@contextlib.contextmanager
def connected(pool: Any) -> Iterator[Server]:
    """The server of a pool of connections; raises what redis-py does."""
    connection = Link.of(pool, PATIENCE).sync()
    connection.deadline = time.monotonic() + PATIENCE
    try:
        connection.connect()
        yield Server(connection, place(pool))
    finally:
        connection.disconnect()


def pools(alias: str) -> list[Any]:
    """A pool for each server that takes the alias's writes."""
    return [get_redis_connection(alias, write=True).connection_pool]


def place(pool: Any) -> str:
    """Where a pool's server is, for people."""
    kwargs = pool.connection_kwargs
    return str(kwargs.get("path") or f"{kwargs.get('host')}:{kwargs.get('port')}")
