"""Slots of requests in flight in memory, with the arithmetic of lua/slots.lua.

A slot belongs to the token of the call that took it, and only that token frees it. So a call that
frees its slot twice, or after the slot has expired, does not free the slot of another call.
"""

from __future__ import annotations

import os

from ..policies import Policy


class Taken(int):
    """The store's clock when a call took slots, and the token that frees them."""

    token: str

    def __new__(cls, clock: int, token: str = "") -> Taken:  # noqa: PYI034 -- not derived from
        """Create a new token if none is given."""
        self = super().__new__(cls, clock)
        self.token = token or new_token()
        return self


def new_token() -> str:
    """Return a random text, which is unique among all processes and hosts."""
    return os.urandom(8).hex()


class Slots:
    """The slots of one key, with the microsecond when each was taken."""

    __slots__ = ("key", "known", "span", "taken")

    def __init__(self, key: str, policy: Policy) -> None:
        self.key = key
        self.known = 0  # set by the store: the size that its total includes
        self.span = policy.window_us
        self.clear()

    def clear(self) -> None:
        self.taken: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        return len(self.taken)

    def expired(self, now: int) -> bool:
        return all(stamp + self.span <= now for stamp in self.taken.values())

    def look(self, now: int, policy: Policy, writes: bool) -> SlotsView:
        """Return a view of the slots that are taken now.

        If `writes`, expired slots are dropped, and stamps ahead of the clock, which has stepped
        back, are set to the clock. `now` is a `Taken` if the call may take slots.
        """
        alive = {
            slot: min(stamp, int(now))
            for slot, stamp in self.taken.items()
            if stamp + self.span > now
        }
        if writes:
            self.taken = alive
        return SlotsView(self, now, alive)

    def refund(self, now: int, policy: Policy, charged: int, cost: int) -> int:
        """Free up to `cost` slots of the call whose reply had the clock `charged`."""
        self.look(now, policy, True)
        token = getattr(charged, "token", None)
        freed = [self.taken.pop((token, n), None) for n in range(cost)] if token else []
        return sum(stamp is not None for stamp in freed)


class SlotsView:
    """Slots at one instant."""

    __slots__ = ("count", "now", "oldest", "window")

    def __init__(self, slots: Slots, now: int, alive: dict[tuple[str, int], int]) -> None:
        self.window = slots
        self.now = now
        self.count = len(alive)
        self.oldest = min(alive.values(), default=int(now))

    def leaves(self, n: int) -> int:
        """Return the time until the oldest slot expires."""
        return self.oldest + self.window.span - self.now

    def stored(self, added: int, cap: int) -> tuple[int, int]:
        """Return zeros: a refused request takes no slot."""
        return 0, 0

    def passes(self, limit: int, cost: int, added: int) -> int:
        """Return 0: it is not known when a slot becomes free."""
        return 0

    def charge(self, added: int, dropped: int) -> None:
        assert isinstance(self.now, Taken)
        for number in range(added):
            self.window.taken[self.now.token, number] = int(self.now)
