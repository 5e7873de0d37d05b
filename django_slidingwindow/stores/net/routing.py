"""Finds the node that serves a call, and follows where the cluster points.

A charge is sent again only after a reply that says it did not run: MOVED, ASK,
TRYAGAIN and NOSCRIPT.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    RedisError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from ..commands import LOADS, Command, pack
from ..errors import is_outage
from .topology import Address, Topology

_ASKING = pack(b"ASKING")
_SLOTS = pack(b"CLUSTER", b"SLOTS")
# Replies that one call follows at most.
_STEPS = 16
# Seconds until keys that were split by a move may be together again.
_TRY_AGAIN = 0.005


@dataclass(frozen=True, slots=True)
class Send:
    """Asked by a route: the replies of a node."""

    address: Address
    payload: bytes
    replies: int = 1
    half: bool = False
    """In half of the time that is left, for more is to come."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Asked by a route: come back after so many seconds."""

    seconds: float


Route: TypeAlias = "Generator[Send | Pause, Any, Any]"

FOLLOWED = (NoScriptError, AskError, TryAgainError)
"""Replies that a route follows: nothing ran. (MovedError is an AskError.)"""


def slot_of(key: str) -> int:
    """The slot of a key, by its hash tag."""
    return key_slot(key.encode())


def route(topology: Topology, command: Command) -> Route:
    """The reply to a command, wherever in the cluster its keys are."""
    slot = slot_of(command.keys[0])
    address = yield from owner(topology, slot)
    payload, asking, loads = command.payload, False, 0
    reply: Any = None
    for _ in range(_STEPS):
        if asking:
            # In one go, so that no other call comes in between.
            reply = yield from _ask(topology, Send(address, _ASKING + payload, 2))
        else:
            reply = yield from _ask(topology, Send(address, payload))
        if isinstance(reply, NoScriptError):
            if loads == LOADS:
                payload = command.by_source
                continue
            loads += 1
            loaded = yield from _ask(topology, Send(address, command.load))
            if isinstance(loaded, Exception):
                return loaded
        elif isinstance(reply, MovedError):
            address, asking = _target(reply, address), False
            topology.moved(slot, address)
        elif isinstance(reply, AskError):
            address, asking = _target(reply, address), True
        elif isinstance(reply, TryAgainError):
            yield Pause(_TRY_AGAIN)
            address, asking = (yield from owner(topology, slot)), False
        else:
            return reply
    return reply


def discover(topology: Topology) -> Route:
    """Learns the map from the first node that tells it."""
    error: Exception | None = None
    for address in topology.sources():
        try:
            reply = yield from _ask(topology, Send(address, _SLOTS, half=True))
        except (RedisError, OSError) as failure:
            error = failure
            continue
        if isinstance(reply, Exception):
            error = reply
        elif reply:
            topology.learn(address, reply)
            return
    raise RedisConnectionError("no node of the cluster tells its slots") from error


def owner(topology: Topology, slot: int) -> Generator[Send | Pause, Any, Address]:
    """The node to ask for a slot, after another look at the map where that is in doubt."""
    address = topology.owner(slot)
    if address is not None and not topology.doubts(address):
        return address
    try:
        yield from discover(topology)
    except RedisError:
        if address is None:
            raise
        return address
    address = topology.owner(slot)
    if address is None:
        raise ClusterDownError(f"CLUSTERDOWN nobody serves slot {slot}")
    return address


def _ask(topology: Topology, send: Send) -> Route:
    """The last reply of a node; the topology is told how that went."""
    try:
        replies = yield send
    except (RedisError, OSError) as error:
        heard(topology, send.address, error)
        raise
    heard(topology, send.address, replies)
    return replies[-1]


def heard(topology: Topology, address: Address, replies: list[Any] | Exception) -> None:
    """Tells the topology what came of an exchange with a node."""
    reply = replies if isinstance(replies, Exception) else replies[-1]
    if reply is replies or (isinstance(reply, Exception) and is_outage(reply)):
        topology.failed(address)
    else:
        topology.answered(address)


def _target(redirection: AskError, asked: Address) -> Address:
    return Address(redirection.host or asked.host, redirection.port)
