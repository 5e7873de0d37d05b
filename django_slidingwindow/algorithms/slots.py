"""Requests in flight, in memory: the arithmetic of lua/slots.lua.

A slot belongs to the token of the call that took it. Only that token gives it back, so a
call that gives back twice, or after the slot's time was up, does not free another slot.
"""

from __future__ import annotations

import os

from ..policies import Policy


class Taken(int):
    """The store's clock when slots were taken, and the token that gives them back."""

    token: str

    def __new__(cls, clock: int, token: str = "") -> Taken:  # noqa: PYI034 -- not derived from
        """Without a token, it gets a new one."""
        self = super().__new__(cls, clock)
        self.token = token or new_token()
        return self


def new_token() -> str:
    """Return a text unlike any other, also of forked processes and of other hosts."""
    return os.urandom(8).hex()


class Slots:
    """The slots of one key: when each was taken, in microseconds."""

    __slots__ = ("key", "known", "span", "taken")

    def __init__(self, key: str, policy: Policy) -> None:
        self.key = key
        self.known = 0  # the store's note of how many slots it has counted
        self.span = policy.window_us
        self.clear()

    def clear(self) -> None:
        self.taken: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        return len(self.taken)

    def expired(self, now: int) -> bool:
        return all(stamp + self.span <= now for stamp in self.taken.values())

    def look(self, now: int, policy: Policy, writes: bool) -> SlotsView:
        """Return the slots that are taken now; if it `writes`, set those ahead of the clock to it.

        `now` is a `Taken` if the call may take slots.
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
        """Free up to `cost` slots of the call that has answered `charged`."""
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
        """Return how long until the oldest slot is free at the latest."""
        return self.oldest + self.window.span - self.now

    def stored(self, added: int, cap: int) -> tuple[int, int]:
        """Return that a refusal takes no slot."""
        return 0, 0

    def passes(self, limit: int, cost: int, added: int) -> int:
        """Return 0: nobody knows when a slot is given back."""
        return 0

    def charge(self, added: int, dropped: int) -> None:
        assert isinstance(self.now, Taken)
        for number in range(added):
            self.window.taken[self.now.token, number] = int(self.now)
