"""Find the primary of an alias by asking its sentinels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.sentinel import SentinelConnectionPool

from ..commands import pack, text
from ..errors import connecting
from ..flows import adrive, drive
from .async_connection import disconnect
from .async_settings import asynchronous, only_sync
from .pool import ask_once
from .settings import ConnectionSettings, seconds_left
from .threads import in_thread


class Sentinels:
    """The sentinels that watch one primary. The one that answered last is asked first."""

    def __init__(self, pool: SentinelConnectionPool, budget: float | None) -> None:
        self._settings = ConnectionSettings.of(pool, budget)
        self._sentinels = [
            ConnectionSettings.of(sentinel.connection_pool, budget)
            for sentinel in pool.sentinel_manager.sentinels
        ]
        self._question = pack(
            b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", str(pool.service_name).encode()
        )
        self._name = pool.service_name

    def find(self, deadline: float) -> ConnectionSettings:
        """Return the connection settings for the current primary."""
        return drive(
            self._flow(), lambda settings: ask_once(settings, self._question, half_way(deadline))
        )

    async def afind(self, deadline: float) -> ConnectionSettings:
        """Do what `find` does, without blocking the event loop."""
        return await adrive(
            self._flow(), lambda settings: aask_once(settings, self._question, half_way(deadline))
        )

    def _flow(self) -> Generator[ConnectionSettings, Any, ConnectionSettings]:
        """Yield the settings of each sentinel, until the reply to `_question` is an address."""
        reason: object = "the name is unknown"
        for settings in list(self._sentinels):
            try:
                reply = yield settings
            except (RedisError, OSError) as error:
                reply = error
            if isinstance(reply, list):
                host, port = reply
                return self._settings.at(text(host), int(port))
            if isinstance(reply, Exception):
                reason = reply
            # The next call asks this sentinel last. The list is replaced, not changed, because
            # other threads may iterate over it.
            self._sentinels = [other for other in self._sentinels if other is not settings] + [
                settings
            ]
        raise RedisConnectionError(f"no sentinel knows a primary of {self._name!r}: {reason}")


def half_way(deadline: float) -> float:
    """Return the time halfway to a deadline, so that time is left if the server does not reply."""
    now = time.monotonic()
    return now + (deadline - now) / 2


async def aask_once(settings: ConnectionSettings, payload: bytes, deadline: float) -> Any:
    """Return the reply to one command, which is sent on a new connection."""
    if only_sync(settings) is not None:
        return await in_thread(ask_once, settings, payload, deadline=deadline)
    try:
        return await asyncio.wait_for(_ask_once(settings, payload), seconds_left(deadline))
    except asyncio.TimeoutError:
        raise RedisTimeoutError("no reply within the time limit") from None


async def _ask_once(settings: ConnectionSettings, payload: bytes) -> Any:
    connection = asynchronous(settings)
    try:
        with connecting():
            await connection.connect()
        await connection.send_packed_command(payload, check_health=False)
        return await connection.read_response()
    except ResponseError as error:
        return error
    finally:
        await disconnect(connection)
