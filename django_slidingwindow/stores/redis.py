"""Windows in Redis, on the server of a django-redis alias."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import RedisError
from redis.sentinel import SentinelConnectionPool

from ..decisions import REDIS
from .aliases import client_of, pool_of
from .commands import Command, Prepared, encode, known_script, pack, prepare, text
from .errors import checked, checked_or_error, store_error
from .flows import adrive, drive
from .net.sentinel import Sentinels
from .net.server import Server
from .net.settings import ConnectionSettings
from .protocol import PATIENCE, Call, Fields, SingleNode, WindowRules


class AliasStore:
    """The base class of stores that keep their windows where a django-redis alias points."""

    source = REDIS
    remote = True

    def __init__(
        self,
        alias: str,
        *,
        clock: Callable[[], int] | None = None,
        budget: float | None = None,
    ) -> None:
        """`budget` is the time limit of every call, in seconds.

        `clock` returns microseconds and replaces the server's clock, for tests.
        """
        self.alias = alias
        self._clock = clock
        self._budget = budget
        self._set_up()

    def _set_up(self) -> None:
        """Initialize the attributes of a subclass."""


class RedisStore(AliasStore, SingleNode):
    """The windows of one alias. It connects on first use, so a process can start without Redis."""

    def _set_up(self) -> None:
        self._lock = threading.Lock()
        self._server: Server | None = None

    def charge(self, keys: tuple[str, ...], rules: WindowRules) -> Fields:
        server = self._server or self._find_server()
        prepared: Prepared = rules.prepared or prepare(rules)
        payload = prepared.charge(keys, self._clock)
        deadline = time.monotonic() + server.settings.limit
        try:
            (reply,) = server.exchange(payload, 1, deadline)
            if type(reply) is bytes:
                return prepared.unpack(reply)
            reply = self._final_reply(
                server, Command(payload, keys, prepared.script), reply, deadline
            )
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        charged: Fields = checked(reply)
        return charged

    async def acharge(self, keys: tuple[str, ...], rules: WindowRules) -> Fields:
        server = self._server or self._find_server()
        prepared: Prepared = rules.prepared or prepare(rules)
        payload = prepared.charge(keys, self._clock)
        deadline = time.monotonic() + server.settings.limit
        try:
            (reply,) = await server.aexchange(payload, 1, deadline)
            if type(reply) is bytes:
                return prepared.unpack(reply)
            command = Command(payload, keys, prepared.script)
            reply = await self._afinal_reply(server, command, reply, deadline)
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        charged: Fields = checked(reply)
        return charged

    def run(self, call: Call) -> Any:
        command = self._encode(call)
        server = self._server or self._find_server()
        deadline = server.settings.deadline(call.within)
        try:
            (reply,) = server.exchange(command.payload, 1, deadline)
            reply = self._final_reply(server, command, reply, deadline)
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        return checked(reply)

    async def arun(self, call: Call) -> Any:
        command = self._encode(call)
        server = self._server or self._find_server()
        deadline = server.settings.deadline(call.within)
        try:
            (reply,) = await server.aexchange(command.payload, 1, deadline)
            reply = await self._afinal_reply(server, command, reply, deadline)
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        return checked(reply)

    def run_many(self, calls: Sequence[Call], within: float = PATIENCE) -> list[Any]:
        if not calls:
            return []
        commands = [self._encode(call) for call in calls]
        server = self._server or self._find_server()
        deadline = time.monotonic() + within
        payload = b"".join([command.payload for command in commands])
        try:
            replies = server.exchange(payload, len(commands), deadline)
            replies = [
                self._final_reply(server, command, reply, deadline)
                for command, reply in zip(commands, replies, strict=True)
            ]
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        return [checked_or_error(reply) for reply in replies]

    def _final_reply(self, server: Server, command: Command, reply: Any, deadline: float) -> Any:
        """Return the first reply to a command, or the reply after loading a missing script."""
        return drive(
            known_script(command, reply),
            lambda payload: server.exchange(payload, 1, deadline)[0],
        )

    async def _afinal_reply(
        self, server: Server, command: Command, reply: Any, deadline: float
    ) -> Any:
        async def send(payload: bytes) -> Any:
            return (await server.aexchange(payload, 1, deadline))[0]

        return await adrive(known_script(command, reply), send)

    def scan(self, cursor: str, match: str, count: int) -> tuple[str, list[str]]:
        """Return the next cursor and some keys that match; "0" begins and ends a scan."""
        server = self._server or self._find_server()
        try:
            return scan(server, cursor, match, count)
        except (RedisError, OSError) as error:
            raise store_error(error) from error

    def client(self) -> Any:
        """Return a redis-py client for the server that holds the windows."""
        return client_of(self.alias)

    def close(self, node: str = "") -> None:
        """Close idle connections; event loops close their own."""
        if self._server is not None:
            self._server.close()

    def _encode(self, call: Call) -> Command:
        return encode(call, self._clock)

    def _find_server(self) -> Server:
        with self._lock:
            self._server = self._server or self._make_server()
            return self._server

    def _make_server(self) -> Server:
        try:
            pool = pool_of(self.alias)
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        settings = ConnectionSettings.of(pool, self._budget)
        if not isinstance(pool, SentinelConnectionPool):
            return Server(settings)
        sentinels = Sentinels(pool, self._budget)
        return Server(settings, sentinels.find, sentinels.afind)


def scan(server: Server, cursor: str, match: str, count: int) -> tuple[str, list[str]]:
    """Return the next cursor of one server and some keys that match."""
    payload = pack(*(b"SCAN", cursor.encode(), b"MATCH", match.encode(), b"COUNT", b"%d" % count))
    reply = server.exchange(payload, 1, time.monotonic() + PATIENCE)[0]
    if isinstance(reply, Exception):
        raise reply
    next_cursor, keys = reply
    return text(next_cursor), [text(key) for key in keys]
