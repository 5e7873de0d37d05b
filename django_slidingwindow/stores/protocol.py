"""What a store is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..decisions import Charge
from ..exceptions import StoreError
from ..policies import Policy

PATIENCE = 5.0
"""Seconds for a call that looks at many keys and belongs to no request."""


class WindowRule(NamedTuple):
    """What a request asks of one window, without the window's key."""

    policy: Policy
    cost: int
    observed: bool = False
    count_rejected: bool = False
    recent: bool = False
    """Count the hits of the last `lease_seconds` alone: those that may not be used yet."""
    watches: int = 0
    """For a penalty: how many of the rules just before it are those of its profile's windows."""
    unreported: tuple[int, ...] = ()
    """For a penalty: the age of each refusal that the shield has answered, in microseconds."""


class Ahead(NamedTuple):
    """What a call takes ahead from one window, and what it gives back to it before."""

    most: int = 0
    """Units to take at most, beside the cost."""
    share: int = 1
    """The divisor of its share: it takes at most what is left, divided by this."""
    returned: int = 0
    """Units to give back."""
    stamp: int = 0
    """The store's clock when those were taken."""


class WindowRules(tuple[WindowRule, ...]):
    """Rules that many calls use, with the bytes that a store has prepared from them."""

    prepared: Any = None


class WindowReply(NamedTuple):
    """What a store says about one window. Times are in microseconds."""

    admits: int
    """1 or 0."""
    remaining: int
    """Hits left after this call."""
    retry: int
    """Until a call of the same cost would pass; 0 if this one does, -1 for never."""
    reset: int
    """Until the oldest hit leaves; 0 if there is none."""


_WIDTH = len(WindowReply._fields)


Fields: TypeAlias = "tuple[int, ...]"
"""A `Reply`, perhaps as a plain tuple: to make it one takes time."""


class Reply(tuple[int, ...]):
    """The answer to a check: admitted (1 or 0), the store's clock, then each window's reply.

    It is one flat tuple of integers, as the script packs it, because most of them are read once
    and by position.
    """

    __slots__ = ()

    granted: tuple[int, ...] = ()
    """The units that each window gave ahead, if some were asked for."""
    admitted = property(itemgetter(0))
    clock = property(itemgetter(1))
    admits = property(itemgetter(slice(2, None, _WIDTH)))
    """Of all windows, in their order; the same for the next two."""
    remaining = property(itemgetter(slice(3, None, _WIDTH)))
    retries = property(itemgetter(slice(4, None, _WIDTH)))

    def window(self, position: int) -> WindowReply:
        """Return what the store says about the window at a position."""
        at = 2 + _WIDTH * position
        return WindowReply(*self[at : at + _WIDTH])

    def windows(self) -> Iterator[tuple[int, ...]]:
        """Return the fields of each window's `WindowReply`, as plain tuples."""
        fields = iter(self[2:])
        return zip(*[fields] * _WIDTH, strict=True)


class GrantingReply(Reply):
    """The answer to a check that takes units ahead; they count as units that are left."""


class Evaluate(NamedTuple):
    """Look at every window; if all admit and `writes`, charge all. The answer is a `Reply`."""

    keys: tuple[str, ...]
    rules: tuple[WindowRule, ...]
    writes: bool
    within: float | None = None
    """Seconds that the answer may take, if that is less than the store's own limit."""
    ahead: tuple[Ahead, ...] = ()
    """For each window, what to take ahead; only with `writes`, and if the store `lends`."""


class Refund(NamedTuple):
    """Take back hits that were charged when the store's clock said `stamp`.

    The answer: for each charge, the hits taken back.
    """

    charges: tuple[Charge, ...]
    stamp: int
    within: float | None = None


class Reset(NamedTuple):
    """Delete whole windows. The answer is the number of windows that existed."""

    keys: tuple[str, ...]
    within: float | None = None


Call: TypeAlias = "Evaluate | Refund | Reset"


class Batch(NamedTuple):
    """Calls to different nodes of a store, sent at the same time and with the same time limit."""

    calls: tuple[Call, ...]
    answers: list[Any]
    """Filled with each call's answer or StoreError. It is filled as well when the caller is
    cancelled meanwhile, so that the caller knows what was charged."""


class Store(Protocol):
    """Where windows live. Raises nothing but StoreError."""

    source: str
    """The `source` of this store's decisions."""
    lends: bool
    """Whether a check can take units ahead."""

    def charge(self, keys: tuple[str, ...], rules: WindowRules) -> Fields:
        """Charge all windows if all admit: nearly every call is this one."""
        ...

    async def acharge(self, keys: tuple[str, ...], rules: WindowRules) -> Fields:
        """Do what `charge` does, without blocking the event loop."""
        ...

    def run(self, call: Call) -> Any:
        """Return the answer to any call."""
        ...

    async def arun(self, call: Call) -> Any:
        """Do what `run` does, without blocking the event loop."""
        ...

    def run_many(self, calls: Sequence[Call], within: float = PATIENCE) -> list[Any]:
        """Return the answer to each call or its StoreError, if possible in one round trip.

        Only for work that no request waits for: it may take `within` seconds.
        """
        ...

    def groups(self, keys: tuple[str, ...]) -> list[list[int]] | None:
        """Return the positions of keys that one call can hold together; None for all of them."""
        ...

    def node(self, key: str) -> str:
        """Return the name of the part of the store that holds the key, and that fails as one."""
        ...

    def nodes(self) -> Sequence[str]:
        """Return the names of all parts that there are now."""
        ...

    def close(self, node: str = "") -> None:
        """Close idle connections, of one node or of all; event loops close their own."""
        ...


class SingleNode:
    """Part of a store whose windows all lie in one place."""

    def groups(self, keys: tuple[str, ...]) -> list[list[int]] | None:
        return None

    def node(self, key: str) -> str:
        return ""

    def nodes(self) -> Sequence[str]:
        return [""]


class DividedStore(Store, Protocol):
    """A store whose `groups` may say that no one call can hold all keys."""

    def run_together(self, calls: Sequence[Call]) -> Sequence[Any | StoreError]:
        """Return the answers to calls that all have the same time limit, or their errors."""
        ...

    async def arun_together(self, calls: Sequence[Call]) -> Sequence[Any | StoreError]:
        """Do what `run_together` does, without blocking the event loop."""
        ...
