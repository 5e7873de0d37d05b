"""Windows in Redis, on the server that a django-redis alias names."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import NoScriptError, RedisError
from redis.sentinel import SentinelConnectionPool

from ..decisions import REDIS
from .aliases import client_of, pool_of
from .commands import Command, encode, known_script, pack, packed, text
from .errors import checked, store_error
from .flows import adrive, drive
from .net.sentinel import Sentinels
from .net.server import Server
from .net.settings import Link
from .protocol import Call, Evaluate, Lines

# Seconds for whoever looks at many keys, and is no request.
PATIENCE = 5.0


class RedisStore:
    """The windows of one alias. Connects on first use, so a process can start without Redis."""

    source = REDIS

    def __init__(
        self,
        alias: str,
        *,
        clock: Callable[[], int] | None = None,
        budget: float | None = None,
    ) -> None:
        """`clock` in microseconds, for tests; `budget` in seconds bounds every call."""
        self.alias = alias
        self._clock = clock
        self._budget = budget
        self._lock = threading.Lock()
        self._server: Server | None = None

    def hit(self, keys: tuple[str, ...], lines: Lines) -> Sequence[int]:
        server, known = self._server, lines.prepared
        if server is None or known is None or self._clock is not None:
            return self.run(Evaluate(keys, lines, writes=True))
        limit = server.link.limit
        deadline = None if limit is None else time.monotonic() + limit
        if len(keys) == 1:
            name = keys[0].encode()
            payload = b"%b$%d\r\n%b\r\n%b" % (known.head, len(name), name, known.writes)
        else:
            payload = known.head + packed(keys) + known.writes
        try:
            (reply,) = server.exchange(payload, 1, deadline)
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        if type(reply) is bytes:
            return known.unpack(reply)  # type: ignore[no-any-return]
        if isinstance(reply, NoScriptError):
            # It ran nothing, and `run` lets the server know the script.
            left = None if deadline is None else deadline - time.monotonic()
            return self.run(Evaluate(keys, lines, True, left))
        return checked(reply)

    def run(self, call: Call) -> list[int]:
        command = encode(call, None if self._clock is None else self._clock())
        server = self._server or self._find_server()
        deadline = server.link.deadline(call.within)
        try:
            (reply,) = server.exchange(command.payload, 1, deadline)
            if isinstance(reply, Exception):
                reply = drive(
                    known_script(command, reply),
                    lambda payload: server.exchange(payload, 1, deadline)[0],
                )
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        return checked(reply)

    async def arun(self, call: Call) -> list[int]:
        command = self._encode(call)
        server = self._server or self._find_server()
        deadline = server.link.deadline(call.within)

        async def exchange(payload: bytes) -> Any:
            return (await server.aexchange(payload, 1, deadline))[0]

        try:
            reply = await exchange(command.payload)
            if isinstance(reply, Exception):
                reply = await adrive(known_script(command, reply), exchange)
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        return checked(reply)

    def run_many(self, calls: Sequence[Call]) -> list[list[int]]:
        """All the calls in one round trip, for whoever looks at many keys."""
        if not calls:
            return []
        commands = [self._encode(call) for call in calls]
        server = self._server or self._find_server()
        deadline = time.monotonic() + PATIENCE
        try:
            replies = server.exchange(
                b"".join(command.payload for command in commands), len(commands), deadline
            )
            replies = [
                drive(
                    known_script(command, reply),
                    lambda payload: server.exchange(payload, 1, deadline)[0],
                )
                for command, reply in zip(commands, replies, strict=True)
            ]
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        return [checked(reply) for reply in replies]

    def scan(self, cursor: str, match: str, count: int) -> tuple[str, list[str]]:
        """The next cursor and some keys that match; "0" begins and ends."""
        server = self._server or self._find_server()
        try:
            return scan(server, cursor, match, count)
        except (RedisError, OSError) as error:
            raise store_error(error) from error

    def client(self) -> Any:
        """A redis-py client of the server that holds the windows."""
        return client_of(self.alias)

    def groups(self, keys: tuple[str, ...]) -> list[list[int]] | None:
        return None

    def lane(self, key: str) -> str:
        return ""

    def lanes(self) -> Sequence[str]:
        return [""]

    def close(self) -> None:
        """Closes idle connections; event loops close their own."""
        if self._server is not None:
            self._server.close()

    def _encode(self, call: Call) -> Command:
        return encode(call, None if self._clock is None else self._clock())

    def _find_server(self) -> Server:
        with self._lock:
            self._server = self._server or self._make_server()
            return self._server

    def _make_server(self) -> Server:
        try:
            pool = pool_of(self.alias)
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        link = Link.of(pool, self._budget)
        if not isinstance(pool, SentinelConnectionPool):
            return Server(link)
        sentinels = Sentinels(pool, self._budget)
        return Server(link, sentinels.find, sentinels.afind)


def scan(server: Server, cursor: str, match: str, count: int) -> tuple[str, list[str]]:
    """The next cursor of one server and some keys that match."""
    payload = pack(*(b"SCAN", cursor.encode(), b"MATCH", match.encode(), b"COUNT", b"%d" % count))
    reply = server.exchange(payload, 1, time.monotonic() + PATIENCE)[0]
    if isinstance(reply, Exception):
        raise reply
    after, found = reply
    return text(after), [text(key) for key in found]
