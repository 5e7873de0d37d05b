"""The protocol that every store implements: the calls that it runs, and its replies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..decisions import Charge
from ..exceptions import StoreError
from ..policies import Policy

PATIENCE = 5.0
"""Seconds for a call that reads many keys and that no request waits for."""


class WindowRule(NamedTuple):
    """What a request asks of one window: everything except the window's key."""

    policy: Policy
    cost: int
    observed: bool = False
    count_rejected: bool = False
    recent: bool = False
    """Count only the hits of the last `lease_seconds`: some of them may be leased units that no
    request has used yet."""
    watches: int = 0
    """For a penalty: the number of rules just before it that belong to its profile's windows."""
    unreported: tuple[int, ...] = ()
    """For a penalty: the age in microseconds of each refusal that the shield has answered and
    the store does not know yet."""


class Ahead(NamedTuple):
    """The units that a call takes ahead from one window, and those that it gives back first."""

    most: int = 0
    """The largest number of units to take, in addition to the cost."""
    share: int = 1
    """Take at most the units that are left, divided by this number."""
    returned: int = 0
    """The number of units to give back."""
    stamp: int = 0
    """The store's clock when the units to give back were taken."""


class WindowRules(tuple[WindowRule, ...]):
    """Rules that many calls share, and the bytes that a store has prepared from them."""

    prepared: Any = None


class WindowReply(NamedTuple):
    """What a store says about one window. Times are in microseconds."""

    admits: int
    """1 or 0."""
    remaining: int
    """Hits left after this call."""
    retry: int
    """Until a call of the same cost is admitted; 0 if this call is, -1 for never."""
    reset: int
    """Until the oldest hit leaves the window; 0 if the window has no hits."""


_WIDTH = len(WindowReply._fields)


Fields: TypeAlias = "tuple[int, ...]"
"""The fields of a `Reply`. They may be a plain tuple, which saves the time to make a `Reply`."""


class Reply(tuple[int, ...]):
    """The reply to a check: admitted (1 or 0), the store's clock, then each window's fields.

    It is one flat tuple of integers in the order in which the script packs them, because most
    replies are read once and by position.
    """

    __slots__ = ()

    granted: tuple[int, ...] = ()
    """The units that the call took ahead from each window; empty if it asked for none."""
    admitted = property(itemgetter(0))
    clock = property(itemgetter(1))
    admits = property(itemgetter(slice(2, None, _WIDTH)))
    """The field `admits` of each window, in order. The next three properties are similar."""
    remaining = property(itemgetter(slice(3, None, _WIDTH)))
    retries = property(itemgetter(slice(4, None, _WIDTH)))
    resets = property(itemgetter(slice(5, None, _WIDTH)))

    def window(self, position: int) -> WindowReply:
        """Return the fields of the window at a position."""
        start = 2 + _WIDTH * position
        return WindowReply(*self[start : start + _WIDTH])

    def windows(self) -> Iterator[tuple[int, ...]]:
        """Return the fields of every window, as plain tuples in the order of `WindowReply`."""
        fields = iter(self[2:])
        return zip(*[fields] * _WIDTH, strict=True)


class GrantingReply(Reply):
    """The reply to a check that takes units ahead. `remaining` includes the units taken ahead."""


class Evaluate(NamedTuple):
    """Look at every window. If all admit and `writes` is true, charge all. Returns a `Reply`."""

    keys: tuple[str, ...]
    rules: tuple[WindowRule, ...]
    writes: bool
    within: float | None = None
    """Seconds that the call may take, if that is less than the store's own limit."""
    ahead: tuple[Ahead, ...] = ()
    """The units to take ahead from each window. Needs `writes`, and a `remote` store."""


class Refund(NamedTuple):
    """Give back hits that were charged when the store's clock was `stamp`.

    Returns, for each charge, the number of hits that were given back.
    """

    charges: tuple[Charge, ...]
    stamp: int
    within: float | None = None


class Reset(NamedTuple):
    """Delete whole windows. Returns a list with one item: the number of windows that existed."""

    keys: tuple[str, ...]
    within: float | None = None


Call: TypeAlias = "Evaluate | Refund | Reset"


class Batch(NamedTuple):
    """Calls to different nodes of a store, sent at the same time and with the same time limit."""

    calls: tuple[Call, ...]
    answers: list[Any]
    """Filled with each call's result or StoreError, even if the caller is cancelled while it
    waits. So the caller always knows what was charged."""


class Store(Protocol):
    """A place where windows are stored. It raises only StoreError."""

    source: str
    """The `source` of this store's decisions."""
    remote: bool
    """Whether a call is a round trip, which leases and deferred charges save."""

    def charge(self, keys: tuple[str, ...], rules: WindowRules) -> Fields:
        """Charge all windows if all admit, and return the reply. Most calls are of this kind."""
        ...

    async def acharge(self, keys: tuple[str, ...], rules: WindowRules) -> Fields:
        """Do what `charge` does, without blocking the event loop."""
        ...

    def run(self, call: Call) -> Any:
        """Run a call of any kind and return its result."""
        ...

    async def arun(self, call: Call) -> Any:
        """Do what `run` does, without blocking the event loop."""
        ...

    def run_many(self, calls: Sequence[Call], within: float = PATIENCE) -> list[Any]:
        """Return each call's result or its StoreError, if possible in one round trip.

        Use it only for work that no request waits for: it may take `within` seconds.
        """
        ...

    def groups(self, keys: tuple[str, ...]) -> list[list[int]] | None:
        """Group the positions of keys by the calls that they need; None if one call is enough."""
        ...

    def node(self, key: str) -> str:
        """Return the name of the node that holds a key. A node works or fails as a whole."""
        ...

    def nodes(self) -> Sequence[str]:
        """Return the names of all current nodes."""
        ...

    def close(self, node: str = "") -> None:
        """Close the idle connections to one node or to all; event loops close their own."""
        ...


class SingleNode:
    """A mixin for stores that keep all windows in one place."""

    def groups(self, keys: tuple[str, ...]) -> list[list[int]] | None:
        return None

    def node(self, key: str) -> str:
        return ""

    def nodes(self) -> Sequence[str]:
        return [""]


class DividedStore(Store, Protocol):
    """A store that may need several calls for the windows of one check: see `groups`."""

    def run_together(self, calls: Sequence[Call]) -> Sequence[Any | StoreError]:
        """Return the results of calls that have the same time limit, or their errors."""
        ...

    async def arun_together(self, calls: Sequence[Call]) -> Sequence[Any | StoreError]:
        """Do what `run_together` does, without blocking the event loop."""
        ...
