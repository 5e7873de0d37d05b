"""Which node of a Redis Cluster serves which slot, as far as is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..commands import text

SLOTS = 16_384
# Seconds between two looks at the whole map while slots are on the move.
_REFRESH = 1.0


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Topology:
    """A map of the slots, and which nodes have failed since it was learned."""

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
        """All that serve slots, sorted by their names."""

    def owner(self, slot: int) -> Address | None:
        """Return the primary of a slot, or None if nobody is known to serve it."""
        return self._owners[slot]

    def sure_owner(self, slot: int) -> Address | None:
        """Return the primary of a slot, or None if the map must be looked at again."""
        address = self._owners[slot]
        return None if address is None or self.doubts(address) else address

    def doubts(self, address: Address) -> bool:
        """Whether to look at the map again before this node is asked."""
        if self._outdated and self._clock() - self._learned_at > _REFRESH:
            return True
        failed_at = self._failures.get(address)
        return failed_at is not None and failed_at >= self._learned_at

    def sources(self) -> list[Address]:
        """Return the nodes to ask for the map: first those that have not failed recently."""
        known = dict.fromkeys([*self.primaries, *self._nodes, *self._seeds])
        return sorted(known, key=lambda address: self._failures.get(address, 0.0))

    def failed(self, address: Address) -> None:
        """Note that a node did not answer, or cannot serve."""
        self._failures[address] = self._clock()

    def answered(self, address: Address) -> None:
        if self._failures:
            self._failures.pop(address, None)

    def moved(self, slot: int, address: Address) -> None:
        """Note that a node has named another one for a slot. The map may be outdated."""
        self._owners[slot] = address
        self._outdated = True

    def learn(self, asked: Address, ranges: Sequence[Any]) -> None:
        """Take over the reply to CLUSTER SLOTS of the node that was asked."""
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


def _address(node: Sequence[Any], asked: Address) -> Address:
    host = node[0]
    # Without a host: the one that was asked.
    return Address(text(host) if host else asked.host, int(node[1]))
