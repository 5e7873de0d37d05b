"""Windows in a Redis Cluster, that of a django-redis alias."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from django.core.cache import caches
from redis.exceptions import RedisError

from ..cluster import ClusterConnectionFactory
from ..decisions import REDIS
from ..exceptions import StoreError
from .aliases import with_connections
from .commands import Command, encode, packed
from .errors import checked, store_error
from .flows import adrive, drive
from .net.routing import FOLLOWED, Pause, Route, Send, discover, heard, owner, route, slot_of
from .net.sentinel import half_way
from .net.server import Server, exchange_all
from .net.settings import Link
from .net.topology import Address, Topology
from .protocol import Call, Evaluate, Lines
from .redis import PATIENCE, RedisStore, scan


def store_of(
    alias: str, *, budget: float | None = None, clock: Callable[[], int] | None = None
) -> RedisStore | ClusterStore:
    """Return the store for an alias: of a cluster if its connection factory makes clusters.

    An alias that cannot be used raises ImproperlyConfigured at the first call of the store.
    """
    factory = None
    with suppress(Exception):
        cache: Any = caches[alias]
        factory = cache.client.connection_factory
    if isinstance(factory, ClusterConnectionFactory):
        return ClusterStore(alias, budget=budget, clock=clock)
    return RedisStore(alias, budget=budget, clock=clock)


class ClusterStore:
    """The windows of one alias, on the nodes of its cluster. Connects on first use."""

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
        cache: Any = caches[alias]
        client = cache.client
        self._factory: ClusterConnectionFactory = client.connection_factory
        self._urls: Sequence[str] = client._server
        pools = [self._factory.pool(url) for url in self._urls]
        self._link = Link.of(with_connections(alias, pools[0]), budget)
        seeds = [pool.connection_kwargs for pool in pools]
        self.topology = Topology([Address(seed["host"], seed["port"]) for seed in seeds])
        self._servers: dict[Address, Server] = {}

    def run(self, call: Call) -> list[int]:
        deadline = self._link.deadline(call.within)
        return checked(self._drive(route(self.topology, self._encode(call)), deadline))

    def hit(self, keys: tuple[str, ...], lines: Lines) -> Sequence[int]:
        known, topology = lines.prepared, self.topology
        address = topology.owner(slot_of(keys[0]))
        if known is None or address is None or topology.doubts(address) or self._clock is not None:
            return self.run(Evaluate(keys, lines, writes=True))
        limit = self._link.limit
        deadline = None if limit is None else time.monotonic() + limit
        payload = known.head + packed(keys) + known.writes
        try:
            (reply,) = self._server(address).exchange(payload, 1, deadline)
        except (RedisError, OSError) as error:
            topology.failed(address)
            raise store_error(error) from error
        if isinstance(reply, FOLLOWED):
            # It ran nothing, and `run` finds out where it can.
            left = None if deadline is None else deadline - time.monotonic()
            return self.run(Evaluate(keys, lines, True, left))
        heard(topology, address, [reply])
        return known.unpack(reply) if type(reply) is bytes else checked(reply)

    async def arun(self, call: Call) -> list[int]:
        flow = route(self.topology, self._encode(call))
        deadline = self._link.deadline(call.within)

        async def answer(step: Send | Pause) -> Any:
            if isinstance(step, Pause):
                return await asyncio.sleep(step.seconds)
            until = half_way(deadline) if step.half else deadline
            server = self._server(step.address)
            return await server.aexchange(step.payload, step.replies, until)

        try:
            reply = await adrive(flow, answer)
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        return checked(reply)

    def run_many(self, calls: Sequence[Call]) -> list[list[int]]:
        """All the calls in one round trip to all nodes, for whoever looks at many keys."""
        answers: list[list[int]] = []
        for answer in self._together(calls, time.monotonic() + PATIENCE):
            if isinstance(answer, StoreError):
                raise answer
            answers.append(answer)
        return answers

    def run_together(self, calls: Sequence[Call]) -> list[list[int] | StoreError]:
        return self._together(calls, self._link.deadline(calls[0].within))

    async def arun_together(self, calls: Sequence[Call]) -> list[list[int] | StoreError]:
        async def answer(call: Call) -> list[int] | StoreError:
            try:
                return await self.arun(call)
            except StoreError as error:
                return error

        return await asyncio.gather(*map(answer, calls))

    def scan(self, cursor: str, match: str, count: int) -> tuple[str, list[str]]:
        """The next cursor and some keys that match; "0" begins and ends.

        The cursor names a node and that node's own cursor: all primaries in turn.
        """
        if not self.topology.primaries or cursor == "0":
            self._drive(discover(self.topology), time.monotonic() + PATIENCE)
        primaries = self.topology.primaries
        address, _, inner = cursor.rpartition("/")
        rest = [node for node in primaries if str(node) >= address]
        if not rest:
            return "0", []
        if str(rest[0]) != address:
            # That node has left, with what it had still to tell.
            inner = "0"
        try:
            after, keys = scan(self._server(rest[0]), inner, match, count)
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        if after != "0":
            return f"{rest[0]}/{after}", keys
        return (f"{rest[1]}/0" if len(rest) > 1 else "0"), keys

    def client(self) -> Any:
        """A redis-py client of the cluster that holds the windows."""
        return self._factory.client(self._urls)

    def groups(self, keys: tuple[str, ...]) -> list[list[int]] | None:
        slots: dict[int, list[int]] = {}
        for position, key in enumerate(keys):
            slots.setdefault(slot_of(key), []).append(position)
        return list(slots.values()) if len(slots) > 1 else None

    def lane(self, key: str) -> str:
        address = self.topology.owner(slot_of(key))
        return "" if address is None else str(address)

    def lanes(self) -> Sequence[str]:
        return [str(address) for address in self.topology.primaries] or [""]

    def close(self) -> None:
        """Closes idle connections; event loops close their own."""
        for server in list(self._servers.values()):
            server.close()

    def _encode(self, call: Call) -> Command:
        return encode(call, None if self._clock is None else self._clock())

    def _together(
        self, calls: Sequence[Call], deadline: float | None
    ) -> list[list[int] | StoreError]:
        """What each of the calls answers, or its error."""
        commands = [self._encode(call) for call in calls]
        replies: list[Any] = [None] * len(commands)
        places: dict[Address, list[int]] = {}
        for position, command in enumerate(commands):
            try:
                address = self._drive(owner(self.topology, slot_of(command.keys[0])), deadline)
            except StoreError as error:
                replies[position] = error
            else:
                places.setdefault(address, []).append(position)
        asked = []
        for address, positions in places.items():
            payload = b"".join([commands[position].payload for position in positions])
            asked.append((self._server(address), payload, len(positions)))
        answers = exchange_all(asked, deadline)
        for (address, positions), found in zip(places.items(), answers, strict=True):
            heard(self.topology, address, found)
            each = [found] * len(positions) if isinstance(found, Exception) else found
            for position, reply in zip(positions, each, strict=True):
                replies[position] = reply
        return [
            self._answer(command, reply, deadline)
            for command, reply in zip(commands, replies, strict=True)
        ]

    def _answer(
        self, command: Command, reply: Any, deadline: float | None
    ) -> list[int] | StoreError:
        """What a first reply to a command comes to."""
        try:
            if isinstance(reply, FOLLOWED):
                reply = self._drive(route(self.topology, command), deadline)
            return reply if isinstance(reply, StoreError) else checked(reply)
        except StoreError as error:
            return error

    def _drive(self, flow: Route, deadline: float | None) -> Any:
        def answer(step: Send | Pause) -> Any:
            if isinstance(step, Pause):
                return time.sleep(step.seconds)
            until = half_way(deadline) if step.half else deadline
            return self._server(step.address).exchange(step.payload, step.replies, until)

        try:
            return drive(flow, answer)
        except (RedisError, OSError) as error:
            raise store_error(error) from error

    def _server(self, address: Address) -> Server:
        server = self._servers.get(address)
        if server is None:
            server = self._servers.setdefault(address, Server(self._link.at(*address)))
        return server
