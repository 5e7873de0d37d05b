"""Windows in a Redis Cluster, whose address is in a django-redis alias."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from ..cluster import ClusterConnectionFactory
from .aliases import new_cache, with_connections
from .commands import Command, encode, prepare
from .errors import checked, checked_or_error, store_error
from .flows import adrive, drive
from .net.routing import (
    Pause,
    Route,
    Send,
    SendAll,
    Step,
    discover,
    groups_by_slot,
    route,
    route_all,
    slot_of,
)
from .net.sentinel import half_way
from .net.server import Server, exchange_all
from .net.settings import ConnectionSettings
from .net.topology import Address, Topology
from .protocol import PATIENCE, Call, Fields, WindowRules
from .redis import AliasStore, scan


class ClusterStore(AliasStore):
    """The windows of one alias, on the nodes of its cluster. It connects on first use."""

    def _set_up(self) -> None:
        client = new_cache(self.alias).client
        self._factory: ClusterConnectionFactory = client.connection_factory
        self._urls: Sequence[str] = client._server
        pools = [self._factory.pool(url) for url in self._urls]
        connections = with_connections(self.alias, pools[0])
        self._settings = ConnectionSettings.of(connections, self._budget)
        seeds = [pool.connection_kwargs for pool in pools]
        self.topology = Topology([Address(seed["host"], seed["port"]) for seed in seeds])
        self._servers: dict[Address, Server] = {}
        # The edition of the map in which a node was first asked.
        self._first_asked: dict[Address, int] = {}
        self._deadline = self._settings.deadline

    def charge(self, keys: tuple[str, ...], rules: WindowRules) -> Fields:
        prepared = prepare(rules)
        command = Command(prepared.charge(keys, self._clock), keys, prepared.script)
        reply: Fields = checked(self._drive(route(self.topology, command), self._deadline()))
        return reply

    async def acharge(self, keys: tuple[str, ...], rules: WindowRules) -> Fields:
        prepared = prepare(rules)
        command = Command(prepared.charge(keys, self._clock), keys, prepared.script)
        reply: Fields = checked(await self._adrive(route(self.topology, command), self._deadline()))
        return reply

    def run(self, call: Call) -> Any:
        flow = route(self.topology, encode(call, self._clock))
        return checked(self._drive(flow, self._deadline(call.within)))

    async def arun(self, call: Call) -> Any:
        flow = route(self.topology, encode(call, self._clock))
        return checked(await self._adrive(flow, self._deadline(call.within)))

    def run_many(self, calls: Sequence[Call], within: float = PATIENCE) -> list[Any]:
        flow = route_all(self.topology, [encode(call, self._clock) for call in calls])
        return list(map(checked_or_error, self._drive(flow, time.monotonic() + within)))

    def run_together(self, calls: Sequence[Call]) -> list[Any]:
        flow = route_all(self.topology, [encode(call, self._clock) for call in calls])
        return list(map(checked_or_error, self._drive(flow, self._deadline(calls[0].within))))

    async def arun_together(self, calls: Sequence[Call]) -> list[Any]:
        flow = route_all(self.topology, [encode(call, self._clock) for call in calls])
        replies = await self._adrive(flow, self._deadline(calls[0].within))
        return list(map(checked_or_error, replies))

    def scan(self, cursor: str, match: str, count: int) -> tuple[str, list[str]]:
        """Return the next cursor and some keys that match; "0" begins and ends a scan.

        Scans all primaries in turn. A cursor holds the address of a node and the node's cursor.
        """
        if not self.topology.primaries or cursor == "0":
            self._drive(discover(self.topology), time.monotonic() + PATIENCE)
        primaries = self.topology.primaries
        address, _, node_cursor = cursor.rpartition("/")
        rest = [node for node in primaries if str(node) >= address]
        if not rest:
            return "0", []
        if str(rest[0]) != address:
            # The node has left the cluster: continue with the next one.
            node_cursor = "0"
        try:
            next_cursor, keys = scan(self._server(rest[0]), node_cursor, match, count)
        except (RedisError, OSError) as error:
            raise store_error(error) from error
        if next_cursor != "0":
            return f"{rest[0]}/{next_cursor}", keys
        return (f"{rest[1]}/0" if len(rest) > 1 else "0"), keys

    def client(self) -> Any:
        """Return a redis-py client for the cluster that holds the windows."""
        return self._factory.client(self._urls)

    def groups(self, keys: tuple[str, ...]) -> list[list[int]] | None:
        return groups_by_slot(keys)

    def node(self, key: str) -> str:
        address = self.topology.owner(slot_of(key))
        return "" if address is None else str(address)

    def nodes(self) -> Sequence[str]:
        return [str(address) for address in self.topology.primaries] or [""]

    def close(self, node: str = "") -> None:
        """Close the idle connections to one node or to all; event loops close their own."""
        for address, server in list(self._servers.items()):
            if node in ("", str(address)):
                server.close()

    def _drive(self, flow: Route, deadline: float) -> Any:
        def answer(step: Step) -> Any:
            if isinstance(step, Pause):
                return time.sleep(step.seconds)
            if isinstance(step, SendAll):
                exchanges = [
                    (self._server(send.address), send.payload, send.replies) for send in step.sends
                ]
                return exchange_all(exchanges, deadline)
            until = half_way(deadline) if step.half else deadline
            return self._server(step.address).exchange(step.payload, step.replies, until)

        try:
            return drive(flow, answer)
        except (RedisError, OSError) as error:
            raise store_error(error) from error

    async def _adrive(self, flow: Route, deadline: float) -> Any:
        def exchange(send: Send) -> Awaitable[Any]:
            until = half_way(deadline) if send.half else deadline
            return self._server(send.address).aexchange(send.payload, send.replies, until)

        async def answer(step: Step) -> Any:
            if isinstance(step, Pause):
                return await asyncio.sleep(step.seconds)
            if isinstance(step, SendAll):
                return await asyncio.gather(*map(exchange, step.sends), return_exceptions=True)
            return await exchange(step)

        try:
            return await adrive(flow, answer)
        except (RedisError, OSError) as error:
            raise store_error(error) from error

    def _server(self, address: Address) -> Server:
        server = self._servers.get(address)
        if server is None:
            self._retire_nodes_that_left()
            self._first_asked[address] = self.topology.edition
            server = self._servers.setdefault(address, Server(self._settings.at(*address)))
        return server

    def _retire_nodes_that_left(self) -> None:
        """Close the connections to nodes that the map no longer has.

        A redirection may lead to a node that the map does not have yet, so the map must have been
        read since the node was first asked.
        """
        for address in {*self._servers} - {*self.topology.sources()}:
            if self._first_asked[address] < self.topology.edition:
                # KeyError: another thread has done it.
                with suppress(KeyError):
                    self._servers.pop(address).retire()
