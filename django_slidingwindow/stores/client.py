"""Windows in Redis through django-redis's own client, for TRANSPORT "client"."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from redis.client import NEVER_DECODE
from redis.exceptions import ClusterError, RedisClusterException, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ..exceptions import StoreError
from .aliases import client_of
from .commands import Command, encode, known_script, prepare, text
from .errors import checked, store_error
from .flows import drive
from .net.routing import groups_by_slot
from .net.settings import seconds_left
from .net.threads import in_thread
from .protocol import PATIENCE, Call, Fields, SingleNode, WindowRules
from .redis import AliasStore


class ClientStore(AliasStore, SingleNode):
    """The windows of one alias. Every command goes through `execute_command` of the alias's client.

    The client and its connections belong to django-redis and use the alias's time-outs and
    retries. After `budget` seconds no further command is sent, but a command that was sent
    continues. django-redis has no async client, so async calls run in a thread.
    """

    def charge(self, keys: tuple[str, ...], rules: WindowRules) -> Fields:
        reply: Fields = self._ask(self._charge_command(keys, rules), self._deadline())
        return reply

    async def acharge(self, keys: tuple[str, ...], rules: WindowRules) -> Fields:
        reply: Fields = await self._aask(self._charge_command(keys, rules), self._deadline())
        return reply

    def run(self, call: Call) -> Any:
        return self._ask(encode(call, self._clock), self._deadline(call.within))

    async def arun(self, call: Call) -> Any:
        return await self._aask(encode(call, self._clock), self._deadline(call.within))

    def run_many(self, calls: Sequence[Call], within: float = PATIENCE) -> list[Any]:
        # `within` is ignored: each call is a round trip of its own, with the alias's time-outs, so
        # the batch takes longer than on other stores.
        return self._ask_each(calls, time.monotonic() + PATIENCE)

    def scan(self, cursor: str, match: str, count: int) -> tuple[str, list[str]]:
        """Return the next cursor and some keys that match; "0" begins and ends a scan."""
        with _only_store_errors():
            next_cursor, found = self.client().scan(cursor, match=match, count=count)
        return str(next_cursor), [text(key) for key in found]

    def client(self) -> Any:
        """Return django-redis's client. Each thread has its own."""
        return client_of(self.alias)

    def close(self, node: str = "") -> None:
        """Do nothing: the connections belong to django-redis."""

    def _charge_command(self, keys: tuple[str, ...], rules: WindowRules) -> Command:
        prepared = prepare(rules)
        return Command(prepared.charge(keys, self._clock), keys, prepared.script)

    def _deadline(self, within: float | None = None) -> float:
        limits = [limit for limit in (self._budget, within) if limit is not None]
        return time.monotonic() + min(limits, default=math.inf)

    def _ask(self, command: Command, deadline: float, context: Any = None) -> Any:
        """Send a command, load its script if the server lacks it, and return the result."""
        # Only `_execute` runs in the context. `self.client()` runs outside of it, so that it
        # returns the client of this thread.
        execute = self._execute if context is None else partial(context.run, self._execute)

        def send(payload: bytes) -> Any:
            if time.monotonic() > deadline:
                raise RedisTimeoutError("the time limit has passed")
            try:
                return execute(client, command.keys, *arguments(payload))
            except ResponseError as error:
                return error

        with _only_store_errors():
            client = self.client()
            reply = drive(known_script(command, send(command.payload)), send)
        return checked(reply)

    def _ask_each(self, calls: Sequence[Call], deadline: float) -> list[Any]:
        """Run calls one after the other, and return their results or errors."""
        answers: list[Any] = []
        for call in calls:
            try:
                answers.append(self._ask(encode(call, self._clock), deadline))
            except StoreError as error:
                answers.append(error)
        return answers

    async def _aask(self, command: Command, deadline: float) -> Any:
        """Run `_ask` in a thread, with the context of this task for the hooks of the client."""
        limit = seconds_left(deadline)
        ask = partial(self._ask, context=copy_context())
        try:
            return await asyncio.wait_for(in_thread(ask, command, deadline=deadline), limit)
        except (asyncio.TimeoutError, RedisTimeoutError) as error:
            # A command that the thread has sent continues.
            raise store_error(RedisTimeoutError("no reply within the time limit")) from error

    def _execute(self, client: Any, keys: tuple[str, ...], name: str, *rest: bytes) -> Any:
        return client.execute_command(name, *rest, **{NEVER_DECODE: True})


class ClusterClientStore(ClientStore):
    """The windows of one alias whose client is redis-py's RedisCluster."""

    _cluster: Any = None

    def run_together(self, calls: Sequence[Call]) -> list[Any]:
        """Return the results of calls that have the same time limit, or their errors."""
        return self._ask_each(calls, self._deadline(calls[0].within))

    async def arun_together(self, calls: Sequence[Call]) -> list[Any]:
        deadline = self._deadline(calls[0].within)

        async def answer(call: Call) -> Any:
            try:
                return await self._aask(encode(call, self._clock), deadline)
            except StoreError as error:
                return error

        return await asyncio.gather(*map(answer, calls))

    def scan(self, cursor: str, match: str, count: int) -> tuple[str, list[str]]:
        """Scan all primaries in turn. A cursor holds the name of a node and the node's cursor."""
        name, _, node_cursor = cursor.rpartition("/")
        with _only_store_errors():
            cluster = self.client()
            primaries = sorted(cluster.get_primaries(), key=lambda node: str(node.name))
            rest = [node for node in primaries if node.name >= name]
            if not rest:
                return "0", []
            # If the node has left the cluster, continue with the next one.
            node_cursor = node_cursor if rest[0].name == name else "0"
            cursors, found = cluster.scan(node_cursor, match, count, target_nodes=rest[0])
        keys = [text(key) for key in found]
        (next_cursor,) = cursors.values()
        if next_cursor:
            return f"{rest[0].name}/{next_cursor}", keys
        return (f"{rest[1].name}/0" if len(rest) > 1 else "0"), keys

    def client(self) -> Any:
        """Return the client, which all threads of this process share. The first call connects."""
        try:
            self._cluster = super().client()
        except ImproperlyConfigured as error:
            if isinstance(error.__cause__, RedisClusterException):
                raise ClusterError(str(error.__cause__)) from error
            raise
        return self._cluster

    def groups(self, keys: tuple[str, ...]) -> list[list[int]] | None:
        return groups_by_slot(keys)

    def node(self, key: str) -> str:
        # AttributeError: not connected yet. RedisClusterException: no node serves the slot.
        with suppress(AttributeError, RedisClusterException):
            return str(self._cluster.get_node_from_key(key).name)
        return ""

    def nodes(self) -> Sequence[str]:
        primaries = [] if self._cluster is None else self._cluster.get_primaries()
        return [node.name for node in primaries] or [""]

    def _execute(self, client: Any, keys: tuple[str, ...], name: str, *rest: bytes) -> Any:
        if name == _LOAD:
            # Only on the node that lacks the script. redis-py would load it on all nodes, which
            # fails if one of them is down.
            node = client.get_node_from_key(keys[0])
            return client.execute_command(name, *rest, target_nodes=node)
        return super()._execute(client, keys, name, *rest)


def arguments(payload: bytes) -> tuple[Any, ...]:
    """Return the name of a packed command, as redis-py and hooks expect it, and its arguments."""
    found, at = [], payload.index(b"\r\n") + 2
    while at < len(payload):
        start = payload.index(b"\r\n", at) + 2
        end = start + int(payload[at + 1 : start - 2])
        found.append(payload[start:end])
        at = end + 2
    if found[0] == b"SCRIPT":
        return _LOAD, *found[2:]
    return found[0].decode(), *found[1:]


_LOAD = "SCRIPT LOAD"


@contextmanager
def _only_store_errors() -> Iterator[None]:
    """Turn errors into StoreErrors. A project's own client class may raise any exception."""
    try:
        yield
    except ImproperlyConfigured:
        raise
    except RedisClusterException as error:
        # No node of the cluster replies, or no node serves the slot. ClusterError marks an outage.
        raise store_error(ClusterError(str(error))) from error
    except Exception as error:
        raise store_error(error) from error
