"""Send each call to the cluster node that serves it, and follow redirections.

A call is sent again only after a reply which means that it did not run: MOVED, ASK, TRYAGAIN or
NOSCRIPT.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

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

from ..commands import Command, known_script, pack
from ..errors import is_outage
from .topology import Address, Topology

_ASKING = pack(b"ASKING")
_SLOTS = pack(b"CLUSTER", b"SLOTS")
# A route makes at most this many steps for one call: the first send, and each reply it follows.
_MAX_STEPS = 16
# Seconds to wait after TRYAGAIN: a move between nodes has separated the keys of the call.
_TRY_AGAIN = 0.005


@dataclass(frozen=True, slots=True)
class Send:
    """A step of a route: send a payload to a node, and return its replies."""

    address: Address
    payload: bytes
    replies: int = 1
    half: bool = False
    """Use at most half of the time that is left, because more steps follow."""


class SendAll(NamedTuple):
    """A step of a route: send all payloads, then read the replies.

    Return a list with the replies or the exception of each.
    """

    sends: tuple[Send, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """A step of a route: wait for a number of seconds."""

    seconds: float


Step: TypeAlias = "Send | SendAll | Pause"
Route: TypeAlias = "Generator[Step, Any, Any]"

_FOLLOWED = (NoScriptError, AskError, TryAgainError)
"""Replies that a route follows, because nothing ran. MovedError is a subclass of AskError."""


def slot_of(key: str) -> int:
    """Return the slot of a key. The key's hash tag decides it."""
    return key_slot(key.encode())


def groups_by_slot(keys: tuple[str, ...]) -> list[list[int]] | None:
    """Group the positions of keys by slot; None if all keys are in one slot."""
    slots: dict[int, list[int]] = {}
    for position, key in enumerate(keys):
        slots.setdefault(slot_of(key), []).append(position)
    return list(slots.values()) if len(slots) > 1 else None


def route(topology: Topology, command: Command) -> Route:
    """Return the reply to a command, from the node that serves the slot of its keys."""
    slot = slot_of(command.keys[0])
    address = topology.sure_owner(slot) or (yield from owner(topology, slot))
    replies = yield from _ask(topology, Send(address, command.payload))
    return (yield from _follow(topology, command, address, replies[-1]))


def route_all(topology: Topology, commands: Sequence[Command]) -> Route:
    """Return the replies to commands, or exceptions, with one round trip to all nodes at once."""
    replies: list[Any] = [None] * len(commands)
    positions: dict[Address, list[int]] = {}
    found = yield from _owners(topology, [slot_of(command.keys[0]) for command in commands])
    for position, address in enumerate(found):
        if isinstance(address, Exception):
            replies[position] = address
        else:
            positions.setdefault(address, []).append(position)
    sends = [
        Send(address, b"".join([commands[position].payload for position in here]), len(here))
        for address, here in positions.items()
    ]
    answers = yield SendAll(tuple(sends))
    for (address, here), answer in zip(positions.items(), answers, strict=True):
        _note_outcome(topology, address, answer)
        each = [answer] * len(here) if isinstance(answer, Exception) else answer
        for position, reply in zip(here, each, strict=True):
            try:
                replies[position] = yield from _follow(topology, commands[position], address, reply)
            except (RedisError, OSError) as error:
                replies[position] = error
    return replies


def _follow(topology: Topology, command: Command, address: Address, reply: Any) -> Route:
    """Return the final reply to a command, whose first reply `reply` came from `address`."""
    asking = b""
    for _ in range(_MAX_STEPS - 1):
        if not isinstance(reply, _FOLLOWED):
            break
        if isinstance(reply, NoScriptError):
            reply = yield from _load(topology, command, address, reply, asking)
            continue
        if isinstance(reply, TryAgainError):
            yield Pause(_TRY_AGAIN)
            address = yield from owner(topology, slot_of(command.keys[0]))
        else:
            address = _target(reply, address)
        if isinstance(reply, MovedError):
            topology.moved(slot_of(command.keys[0]), address)
        is_asked = isinstance(reply, AskError) and not isinstance(reply, MovedError)
        asking = _ASKING if is_asked else b""
        reply = yield from _last_reply(topology, address, asking + command.payload)
    return reply


def _load(
    topology: Topology, command: Command, address: Address, reply: Any, asking: bytes
) -> Route:
    """Load the script into a node, and return the node's reply to the command."""
    flow = known_script(command, reply, asking)
    try:
        payload = next(flow)
        while True:
            payload = flow.send((yield from _last_reply(topology, address, payload)))
    except StopIteration as stop:
        return stop.value


def _last_reply(topology: Topology, address: Address, payload: bytes) -> Route:
    # ASKING and its command are one payload, so that no other command comes between them.
    replies = 2 if payload.startswith(_ASKING) else 1
    return (yield from _ask(topology, Send(address, payload, replies)))[-1]


def discover(topology: Topology) -> Route:
    """Read the slot map from the first node that replies with one."""
    reason: object = "no slots are assigned"
    for address in topology.sources():
        try:
            (reply,) = yield from _ask(topology, Send(address, _SLOTS, half=True))
        except (RedisError, OSError) as error:
            reason = error
            continue
        if isinstance(reply, Exception):
            reason = reply
        elif reply:
            topology.learn(address, reply)
            return
    raise RedisConnectionError(f"no node of the cluster returned its slots: {reason}")


def owner(topology: Topology, slot: int) -> Generator[Step, Any, Address]:
    """Return the node that serves a slot, after reading the map again if that is necessary."""
    (address,) = yield from _owners(topology, [slot])
    if isinstance(address, Exception):
        raise address
    return address


def _owners(
    topology: Topology, slots: Sequence[int]
) -> Generator[Step, Any, list[Address | RedisError]]:
    """Return the node that serves each slot, or an error. The map is read at most once."""
    failure = None
    if None in map(topology.sure_owner, slots):
        try:
            yield from discover(topology)
        except RedisError as error:
            # The map in memory may still be right.
            failure = error
    return [
        topology.owner(slot)
        or failure
        or ClusterDownError(f"CLUSTERDOWN no node serves slot {slot}")
        for slot in slots
    ]


def _ask(topology: Topology, send: Send) -> Generator[Step, Any, list[Any]]:
    """Return the replies of a node, and note in the topology whether it replied."""
    try:
        replies: list[Any] = yield send
    except (RedisError, OSError) as error:
        _note_outcome(topology, send.address, error)
        raise
    _note_outcome(topology, send.address, replies)
    return replies


def _note_outcome(topology: Topology, address: Address, replies: list[Any] | Exception) -> None:
    """Note in the topology whether an exchange with a node has failed."""
    reply = replies if isinstance(replies, Exception) else replies[-1]
    if reply is replies or (isinstance(reply, Exception) and is_outage(reply)):
        topology.failed(address)
    else:
        topology.answered(address)


def _target(redirection: AskError, asked: Address) -> Address:
    return Address(redirection.host or asked.host, redirection.port)
