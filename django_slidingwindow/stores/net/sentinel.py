"""Asks the sentinels of an alias where its primary is."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.sentinel import SentinelConnectionPool

from ..commands import pack, text
from ..flows import adrive, drive
from .async_connection import aask_once
from .pool import ask_once
from .settings import ConnectionSettings


class Sentinels:
    """The sentinels that watch one primary; the one that answered last is asked first."""

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
        """Return the primary's settings, as the first sentinel that knows it says."""
        return drive(
            self._asked(), lambda settings: ask_once(settings, self._question, half_way(deadline))
        )

    async def afind(self, deadline: float) -> ConnectionSettings:
        return await adrive(
            self._asked(), lambda settings: aask_once(settings, self._question, half_way(deadline))
        )

    def _asked(self) -> Generator[ConnectionSettings, Any, ConnectionSettings]:
        for settings in list(self._sentinels):
            try:
                reply = yield settings
            except (RedisError, OSError):
                reply = None
            if isinstance(reply, list):
                host, port = reply
                return self._settings.at(text(host), int(port))
            # The list is replaced, never changed: others may go through it now.
            self._sentinels = [other for other in self._sentinels if other is not settings] + [
                settings
            ]
        raise RedisConnectionError(f"no sentinel knows a primary of {self._name!r}")


def half_way(deadline: float) -> float:
    """Return the time halfway to a deadline, so that some is left for the next one asked."""
    now = time.monotonic()
    return now + (deadline - now) / 2
