"""Remembers refusals for a moment, so that a flood of them does not reach the store."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import NamedTuple

from ..decisions import Decision, Verdict


class Watched(NamedTuple):
    """What a penalty says after a check of the windows that it watches."""

    key: str
    profile: str
    refused: bool
    """Whether one of the windows has refused."""
    remaining: int
    """Refusals that are left before it blocks."""
    blocks: float
    """Seconds; 0.0 if it does not block."""


class Watching(tuple[Watched, ...]):
    """The penalties of a check, at the end of a decision's `answer`."""

    __slots__ = ()

    @property
    def blocked(self) -> set[str]:
        """The names of the profiles that are blocked."""
        return {one.profile for one in self if one.blocks}

    @classmethod
    def of(cls, decision: Decision) -> Watching:
        """Return the penalties of the check that a decision is about."""
        last = decision.answer[-1]
        return last if isinstance(last, cls) else cls()


class _Refusal(NamedTuple):
    decision: Decision
    verdicts: tuple[Verdict, ...]
    """What a replay shows of the windows."""
    since: float
    until: float
    watching: Watching

    @property
    def keys(self) -> set[str]:
        """The keys of what it shows: it is forgotten with each of them."""
        return {one.key for one in (*self.verdicts, *self.watching)}


class Shield:
    """A bounded memory of refusals; the least recently refused goes first."""

    def __init__(
        self,
        seconds: float,
        *,
        max_entries: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = seconds
        self._max_entries = max_entries
        self._clock = clock
        self._lock = threading.Lock()
        self.refusals: OrderedDict[Hashable, _Refusal] = OrderedDict()
        """By question. A limiter looks first whether there are any at all."""
        # When the oldest of them has ended, or sooner.
        self._oldest_ends = math.inf
        # By key, so that a refund need not look through all of them.
        self._questions: dict[str, set[Hashable]] = {}
        # By a penalty's key, when refusals were replayed that the store does not know about.
        self._unreported: OrderedDict[str, list[float]] = OrderedDict()
        self.forgotten = 0
        """How often windows were forgotten; see `remember`."""

    def __len__(self) -> int:
        return len(self.refusals)

    def find(self, question: Hashable) -> tuple[Decision, tuple[Verdict, ...], float] | None:
        """Return a remembered refusal of the same windows, limits and costs that still holds.

        With it, the verdicts that a replay shows, and its age in seconds.
        """
        refusal = self.refusals.get(question)
        if refusal is None:
            if self._clock() >= self._oldest_ends:
                self._drop_ended()
            return None
        decision, verdicts, since, until, watching = refusal
        now = self._clock()
        if now < until and (not watching or self._may_replay(watching, now)):
            return decision, verdicts, now - since
        with self._lock:
            if self.refusals.get(question) is refusal:
                self._drop(question)
        return None

    def remember(self, question: Hashable, refusal: Decision, forgotten: int) -> None:
        """Keep a refusal while all that a replay shows is true, at most `seconds`.

        The question holds windows, limits and cost. `forgotten` is the counter's value from
        before the store was asked: if windows were forgotten since, the refusal may be older
        than what freed them, and is not kept.
        """
        if not self.seconds:
            return
        now = self._clock()
        if now >= self._oldest_ends:
            self._drop_ended()
        verdicts = _lasting(refusal.verdicts)
        # Whatever changes by itself does so when a hit leaves a window.
        changes = [verdict.reset_after for verdict in verdicts if verdict.reset_after]
        watching = Watching.of(refusal)
        lasts = min([self.seconds, *changes, *[one.blocks for one in watching if one.blocks]])
        with self._lock:
            if forgotten != self.forgotten:
                return
            if question in self.refusals:
                self._drop(question)
            for one in watching:
                # Other questions know of more refusals that are left than there are now.
                for other in tuple(self._questions.get(one.key, ())):
                    if not self.refusals[other].watching.blocked:
                        self._drop(other)
            kept = _Refusal(refusal, verdicts, now, now + lasts, watching)
            self.refusals[question] = kept
            self._oldest_ends = min(self._oldest_ends, now + self.seconds)
            for key in kept.keys:
                self._questions.setdefault(key, set()).add(question)
            if len(self.refusals) > self._max_entries:
                self._drop(next(iter(self.refusals)))

    def charged(self, keys: tuple[str, ...]) -> None:
        """Drop refusals that show one of these windows, which were charged."""
        for key in keys:
            if key in self._questions:
                self.forget(keys)
                return

    def forget(self, keys: Iterable[str]) -> None:
        """Drop refusals that show one of these windows, and those that are on their way here."""
        with self._lock:
            self.forgotten += 1
            for key in keys:
                self._unreported.pop(key, None)
                for question in tuple(self._questions.get(key, ())):
                    self._drop(question)

    def clear(self) -> None:
        with self._lock:
            self.forgotten += 1
            self.refusals.clear()
            self._questions.clear()
            self._unreported.clear()

    def has_unreported(self, keys: Iterable[str]) -> bool:
        """Return whether refusals were replayed that one of these penalties has not counted."""
        return bool(self._unreported) and not self._unreported.keys().isdisjoint(keys)

    def take_unreported(self, key: str) -> tuple[int, ...]:
        """Return the ages of such refusals in microseconds, and forget them.

        With them goes what is known about the refusals that the penalty has left.
        """
        with self._lock:
            now = self._clock()
            for question in tuple(self._questions.get(key, ())):
                self._drop(question)
            return tuple([round((now - at) * 1e6) for at in self._unreported.pop(key, ())])

    def _may_replay(self, watching: Watching, now: float) -> bool:
        """Count a refusal for each penalty. Return False if it might be the one that blocks."""
        # Once for each key: profiles may share one.
        left = {one.key: one.remaining for one in watching if one.refused and not one.blocks}
        with self._lock:
            for key, remaining in left.items():
                if len(self._unreported.get(key, ())) >= remaining:
                    return False
            for key in left:
                self._unreported.setdefault(key, []).append(now)
            while len(self._unreported) > self._max_entries:
                self._unreported.popitem(last=False)
        return True

    def _drop_ended(self) -> None:
        """Drop the two oldest refusals if they have ended. No request waits for more of them.

        Few clients come back for theirs, and a check can do without the shield while it is empty.
        """
        with self._lock:
            now = self._clock()
            for question in [*islice(self.refusals, 2)]:
                if self.refusals[question].since + self.seconds <= now:
                    self._drop(question)
            oldest = next(iter(self.refusals.values()), None)
            self._oldest_ends = math.inf if oldest is None else oldest.since + self.seconds

    def _drop(self, question: Hashable) -> None:
        for key in self.refusals.pop(question).keys:
            sharing = self._questions[key]
            sharing.discard(question)
            if not sharing:
                del self._questions[key]


def _lasting(verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Return the verdicts that stay true until a hit leaves one of their windows.

    Those of a profile and identifier that were refused: no such request is admitted meanwhile.
    What else the request met, such as a window that all clients share, is charged by others all
    the time, in other processes as well.
    """
    refused = {_owner(verdict) for verdict in verdicts if not verdict.allowed}
    return tuple([verdict for verdict in verdicts if _owner(verdict) in refused])


def _owner(verdict: Verdict) -> str:
    """Return the part of a key that all windows of an identifier in a profile share."""
    return verdict.key.rpartition(":")[0]
