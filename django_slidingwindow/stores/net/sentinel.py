"""Find the primary of an alias by asking its sentinels."""

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
        for settings in list(self._sentinels):
            try:
                reply = yield settings
            except (RedisError, OSError):
                reply = None
            if isinstance(reply, list):
                host, port = reply
                return self._settings.at(text(host), int(port))
            # The next call asks this sentinel last. The list is replaced, not changed, because
            # other threads may iterate over it.
            self._sentinels = [other for other in self._sentinels if other is not settings] + [
                settings
            ]
        raise RedisConnectionError(f"no sentinel knows a primary of {self._name!r}")


def half_way(deadline: float) -> float:
    """Return the time halfway to a deadline, so that time is left if the server does not reply."""
    now = time.monotonic()
    return now + (deadline - now) / 2
