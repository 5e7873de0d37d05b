"""What a store is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..decisions import Charge
from ..exceptions import StoreError
from ..policies import Policy


class Line(NamedTuple):
    """What a request asks of one window, without the window's key."""

    policy: Policy
    cost: int
    observed: bool = False
    count_rejected: bool = False


class Lines(tuple[Line, ...]):
    """Lines that many calls ask, with what a store has prepared of them."""

    prepared: Any = None


class Evaluate(NamedTuple):
    """Look at every window; if all admit and `writes`, charge all.

    The answer, all integers, times in microseconds: admitted (1 or 0), the store's
    clock, then for each window: admits (1 or 0), remaining, retry (0 if it admits,
    -1 for never), reset.
    """

    keys: tuple[str, ...]
    lines: tuple[Line, ...]
    writes: bool
    within: float | None = None
    """Seconds that the answer may take, if that is less than the store's own limit."""


class Refund(NamedTuple):
    """Take back hits that were charged when the store's clock said `stamp`.

    The answer: for each charge, the hits taken back.
    """

    charges: tuple[Charge, ...]
    stamp: int
    within: float | None = None


class Reset(NamedTuple):
    """Forget whole windows. The answer: how many there were."""

    keys: tuple[str, ...]
    within: float | None = None


Call: TypeAlias = "Evaluate | Refund | Reset"


class Together(NamedTuple):
    """Calls of the same time limit, of parts of a store that are asked side by side."""

    calls: tuple[Call, ...]
    answers: list[list[int] | StoreError]
    """Receives the answer of each call, or its StoreError. It is filled as well where the caller
    is cancelled meanwhile, so that what was charged is known."""


class Store(Protocol):
    """Where windows live. Raises nothing but StoreError."""

    source: str
    """What a decision of this store names as its source."""

    def run(self, call: Call) -> list[int]: ...

    def hit(self, keys: tuple[str, ...], lines: Lines) -> Sequence[int]:
        """What `run` answers where windows are charged: by far the most of the calls."""
        ...

    async def arun(self, call: Call) -> list[int]: ...

    def groups(self, keys: tuple[str, ...]) -> list[list[int]] | None:
        """The positions of keys that one call can hold together; None for all of them."""
        ...

    def lane(self, key: str) -> str:
        """Names the part of the store that holds the key, and that fails as one."""
        ...

    def lanes(self) -> Sequence[str]:
        """The parts that there are now."""
        ...

    def close(self) -> None:
        """Closes idle connections; event loops close their own."""
        ...


class DividedStore(Store, Protocol):
    """One whose `groups` may say that no one call can hold all keys."""

    def run_together(self, calls: Sequence[Call]) -> Sequence[list[int] | StoreError]: ...

    async def arun_together(self, calls: Sequence[Call]) -> Sequence[list[int] | StoreError]: ...
