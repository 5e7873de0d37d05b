"""An outage for this process only: its checks go to a local port instead of to Redis."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from redis import Redis
from redis.connection import Connection, ConnectionPool

from ..conf import conf
from ..core.limiter import Limiter
from ..guard import current_limiter
from ..guard.limiter_factory import make_limiter, make_store
from ..stores.aliases import client_of
from ..stores.client import ClientStore
from ..stores.net.server import Server
from ..stores.net.settings import ConnectionSettings
from ..stores.protocol import PATIENCE, Call, DividedStore, Fields, Store, WindowRules
from ..stores.redis import RedisStore

BREAKER, BLACKHOLE = WAYS = ("breaker", "blackhole")
"""`breaker`: the port refuses connections, so that the breaker opens at once. `blackhole`: the port
accepts connections and never answers."""

_HOST = "127.0.0.1"
_BACKLOG = 1_024
_CONNECTIONS = 100


class Outage:
    """The time when the store is away, on a monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.is_on = False
        self.began = self.ended = math.inf

    def begin(self) -> None:
        self.began = self._clock()
        self.is_on = True

    def end(self) -> None:
        self.is_on = False
        self.ended = self._clock()


@contextmanager
def interrupted(outage: Outage, way: str) -> Iterator[Limiter]:
    """Give this process a limiter whose store is away during the outage."""
    with _port(way) as port:

        def make() -> Limiter:
            if current_limiter.on_first_use is not None:
                current_limiter.on_first_use()
            return make_limiter(InterruptedStore(make_store(), _store_at(port), outage))

        with current_limiter.limiters_from(make):
            limiter = current_limiter.get_limiter()
            try:
                yield limiter
            finally:
                limiter.close()


class InterruptedStore:
    """A store that sends its calls to an unreachable store during an outage."""

    def __init__(self, real: Store, unreachable: Store, outage: Outage) -> None:
        self._real = real
        self._unreachable = unreachable
        self._outage = outage
        self.source = real.source
        self.remote = real.remote
        self.groups = real.groups
        self.node = real.node
        self.nodes = real.nodes

    def charge(self, keys: tuple[str, ...], rules: WindowRules) -> Fields:
        return self._store().charge(keys, rules)

    async def acharge(self, keys: tuple[str, ...], rules: WindowRules) -> Fields:
        return await self._store().acharge(keys, rules)

    def run(self, call: Call) -> Any:
        return self._store().run(call)

    async def arun(self, call: Call) -> Any:
        return await self._store().arun(call)

    def run_many(self, calls: Sequence[Call], within: float = PATIENCE) -> list[Any]:
        return self._store().run_many(calls, within)

    def run_together(self, calls: Sequence[Call]) -> Sequence[Any]:
        if self._outage.is_on:
            # The first call raises StoreError.
            return [self._unreachable.run(call) for call in calls]
        return cast(DividedStore, self._real).run_together(calls)

    async def arun_together(self, calls: Sequence[Call]) -> Sequence[Any]:
        if self._outage.is_on:
            return [await self._unreachable.arun(call) for call in calls]
        return await cast(DividedStore, self._real).arun_together(calls)

    def close(self, node: str = "") -> None:
        self._unreachable.close(node)
        self._real.close(node)

    def __getattr__(self, name: str) -> Any:
        """Use the real store for what only pages and commands need, such as `scan`."""
        return getattr(self._real, name)

    def _store(self) -> Store:
        return self._unreachable if self._outage.is_on else self._real


@contextmanager
def _port(way: str) -> Iterator[int]:
    """Yield a local port that refuses connections, or accepts them and never answers."""
    with socket.socket() as bound:
        bound.bind((_HOST, 0))
        if way == BLACKHOLE:
            # The system completes connections although nobody calls accept().
            bound.listen(_BACKLOG)
        yield bound.getsockname()[1]


def _store_at(port: int) -> Store:
    """Return a store that connects to a local port, with the time limits of the real store."""
    if conf.transport == "client":
        return _ClientAtPort(conf.cache, port, budget=conf.latency_budget)
    return _RedisAtPort(conf.cache, port, budget=conf.latency_budget)


class _RedisAtPort(RedisStore):
    def __init__(self, alias: str, port: int, *, budget: float) -> None:
        super().__init__(alias, budget=budget)
        address = {"host": _HOST, "port": port}
        self._settings = ConnectionSettings(Connection, address, budget, _CONNECTIONS)

    def _make_server(self) -> Server:
        return Server(self._settings)


class _ClientAtPort(ClientStore):
    def __init__(self, alias: str, port: int, *, budget: float) -> None:
        super().__init__(alias, budget=budget)
        pool = getattr(client_of(alias), "connection_pool", None)
        if pool is None:
            raise NotImplementedError(
                "A drill cannot interrupt the client of a Redis Cluster: it needs "
                "SLIDING_WINDOW['TRANSPORT'] = 'direct'."
            )
        # Time-outs and retries stay those of the alias: the drill has to show what they do.
        kept = ("socket_timeout", "socket_connect_timeout", "retry", "retry_on_timeout")
        options = {name: value for name, value in pool.connection_kwargs.items() if name in kept}
        self._client = Redis(connection_pool=ConnectionPool(host=_HOST, port=port, **options))

    def client(self) -> Any:
        return self._client

    def close(self, node: str = "") -> None:
        self._client.connection_pool.disconnect(inuse_connections=False)
