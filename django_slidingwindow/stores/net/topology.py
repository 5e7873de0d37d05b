"""The slot map of a Redis Cluster: the node that serves each slot, as far as it is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..commands import text

SLOTS = 16_384
# Seconds before the map is read again while slots move from one node to another.
_REFRESH = 1.0


class Address(NamedTuple):
    """The host and port of a node."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Topology:
    """The slot map, and the nodes that have failed since the map was read."""

    def __init__(
        self, seeds: Sequence[Address], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._seeds = tuple(seeds)
        self._owners: list[Address | None] = [None] * SLOTS
        self._nodes: tuple[Address, ...] = ()
        self._failures: dict[Address, float] = {}
        self._learned_at = float("-inf")
        self._outdated = False
        self.primaries: tuple[Address, ...] = ()
        """The nodes that serve slots, sorted by their addresses as text."""
        self.edition = 0
        """How often the map was read."""

    def owner(self, slot: int) -> Address | None:
        """Return the primary of a slot, or None if it is not known."""
        return self._owners[slot]

    def sure_owner(self, slot: int) -> Address | None:
        """Return the primary of a slot, or None if the map must be read first."""
        address = self._owners[slot]
        return None if address is None or self.doubts(address) else address

    def doubts(self, address: Address) -> bool:
        """Whether the map must be read again before a call is sent to this node."""
        if self._outdated and self._clock() - self._learned_at > _REFRESH:
            return True
        failed_at = self._failures.get(address)
        return failed_at is not None and failed_at >= self._learned_at

    def sources(self) -> list[Address]:
        """Return the nodes to ask for the map. Those that failed most recently come last."""
        known = dict.fromkeys([*self.primaries, *self._nodes, *self._seeds])
        return sorted(known, key=lambda address: self._failures.get(address, 0.0))

    def failed(self, address: Address) -> None:
        """Note that a node did not reply, or cannot serve."""
        self._failures[address] = self._clock()

    def answered(self, address: Address) -> None:
        """Note that a node has replied and can serve."""
        if self._failures:
            self._failures.pop(address, None)

    def moved(self, slot: int, address: Address) -> None:
        """Note that a slot has moved to another node. The rest of the map may be outdated too."""
        self._owners[slot] = address
        self._outdated = True

    def learn(self, asked: Address, ranges: Sequence[Any]) -> None:
        """Replace the map by the reply to CLUSTER SLOTS from the node that was asked."""
        owners: list[Address | None] = [None] * SLOTS
        nodes: dict[Address, None] = {}
        primaries: set[Address] = set()
        for first, last, *serving in ranges:
            addresses = [_address(node, asked) for node in serving]
            nodes.update(dict.fromkeys(addresses))
            primaries.add(addresses[0])
            owners[first : last + 1] = [addresses[0]] * (last + 1 - first)
        self._owners, self._nodes = owners, tuple(nodes)
        self.primaries = tuple(sorted(primaries, key=str))
        self._learned_at = self._clock()
        self._outdated = False
        self.edition += 1


def _address(node: Sequence[Any], asked: Address) -> Address:
    host = node[0]
    # A node that does not know its own host leaves it out.
    return Address(text(host) if host else asked.host, int(node[1]))
