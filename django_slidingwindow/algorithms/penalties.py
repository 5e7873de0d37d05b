"""Penalties, which block identifiers that were refused too often: policy and windows in memory.

`lua/penalty.lua` describes how a penalty counts. Times are in microseconds unless stated otherwise.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from ..durations import duration_exact, rate_exact
from ..policies import PENALTY, Policy
from ..rates import parse_limit, parse_window

_MAX_OFFENCES = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Penalty(Policy):
    """More than `limit` refusals in a `window` are an offence. An offence blocks for one step."""

    algorithm: str = PENALTY
    steps: tuple[float, ...] = ()
    """Seconds that each offence blocks, in order. The last step is used for all later offences."""

    def __post_init__(self) -> None:
        parse_limit(self.limit)
        object.__setattr__(self, "window", parse_window(self.window))
        object.__setattr__(self, "_hash", hash((self.limit, self.window, self.steps)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def steps_us(self) -> tuple[int, ...]:
        return tuple([round(step * 1_000_000) for step in self.steps])

    @property
    def text(self) -> str:
        """The penalty in words, such as "3 / 10 min, then 1 min, 10 min"."""
        steps = ", ".join(map(duration_exact, self.steps))
        return f"{rate_exact(self.limit, self.window)}, then {steps}"


class PenaltyWindow:
    """The refusals of one identifier, the number of its offences, and the end of its block."""

    __slots__ = ("ends", "expires", "key", "known", "offences", "stamps")

    def __init__(self, key: str, policy: Policy) -> None:
        self.key = key
        self.known = 0  # set by the store: the size that its total includes
        self.clear()

    def clear(self) -> None:
        self.offences = self.ends = self.expires = 0
        self.stamps: list[int] = []

    def __len__(self) -> int:
        # A window without stamps takes memory too, for its offences.
        return len(self.stamps) + 1

    def expired(self, now: int) -> bool:
        return self.expires <= now

    def look(self, now: int, policy: Policy, writes: bool) -> PenaltyView:
        return PenaltyView(self, now, policy)


class PenaltyView:
    """A penalty at one instant. `store` writes its changes to the window."""

    count = 0

    def __init__(self, window: PenaltyWindow, now: int, policy: Policy) -> None:
        assert isinstance(policy, Penalty)
        self.window = window
        self.now = now
        self.limit = policy.limit
        self.span = policy.window_us
        self.steps = policy.steps_us
        self.memory = self.steps[-1] + self.span
        latest = now + (self._step(window.offences) if window.offences else 0)
        # If the clock has stepped back, a block ends at most one step from now.
        self.changed = window.ends > latest or any(stamp > now for stamp in window.stamps)
        self.offences, self.ends = window.offences, min(window.ends, latest)
        if self.ends + self.memory <= now:
            self.offences = self.ends = 0
        self.stamps = [min(stamp, now) for stamp in window.stamps if stamp > now - self.span]

    @property
    def blocks(self) -> int:
        """The time until the block ends; 0 if there is no block."""
        return max(0, self.ends - self.now)

    def report(self, ages: tuple[int, ...]) -> None:
        """Count refusals that were decided without the store, given their ages."""
        if self.blocks:
            return
        for stamp in [self.now - age for age in ages]:
            if stamp > self.now - self.span and stamp >= self.ends:
                insort(self.stamps, stamp)
                self.changed = True
        if len(self.stamps) > self.limit:
            self._offend()

    def refuse(self) -> None:
        """Count a refusal that happens now."""
        if len(self.stamps) >= self.limit:
            self._offend()
        else:
            self.stamps.append(self.now)
            self.changed = True

    def row(self) -> tuple[int, int, int, int]:
        """Return the fields of a `WindowReply`. `remaining` is the number of refusals left."""
        blocks, remaining = self.blocks, max(0, self.limit - len(self.stamps))
        if blocks:
            return 0, remaining, blocks, blocks
        return 1, remaining, 0, self.stamps[0] + self.span - self.now if self.stamps else 0

    def store(self) -> PenaltyWindow:
        """Write the changes to the window, and return the window."""
        window = self.window
        window.offences, window.ends, window.stamps = self.offences, self.ends, self.stamps
        last = self.stamps[-1] + self.span if self.stamps else 0
        window.expires = max(last, self.ends + self.memory if self.offences else 0)
        return window

    def _offend(self) -> None:
        self.offences = min(self.offences + 1, _MAX_OFFENCES)
        self.ends = self.now + self._step(self.offences)
        self.stamps, self.changed = [], True

    def _step(self, offences: int) -> int:
        return self.steps[min(offences, len(self.steps)) - 1]
