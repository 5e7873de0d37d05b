"""Remembers refusals for a moment, so that a flood of requests does not reach the store."""

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
    """The state of a penalty after a check of the windows that it watches."""

    key: str
    profile: str
    refused: bool
    """Whether one of the windows refused."""
    remaining: int
    """Refusals left before it blocks."""
    blocks: float
    """Seconds that it blocks from now on; 0.0 if it does not."""


class Watching(tuple[Watched, ...]):
    """The penalties of a check; `watching` of a decision's `answer`, if the check has any."""

    __slots__ = ()

    @property
    def blocked(self) -> set[str]:
        """The names of the profiles that a penalty blocks."""
        return {one.profile for one in self if one.blocks}

    @classmethod
    def of(cls, decision: Decision) -> Watching:
        """Return the penalties in the check of a decision."""
        found: Watching | None = getattr(decision.answer, "watching", None)
        return cls() if found is None else found


class _Refusal(NamedTuple):
    decision: Decision
    verdicts: tuple[Verdict, ...]
    """The verdicts that a replay shows."""
    since: float
    until: float
    watching: Watching

    @property
    def keys(self) -> set[str]:
        """The keys of all windows that it shows: a change of one of them drops the refusal."""
        return {one.key for one in (*self.verdicts, *self.watching)}

    def blocks(self, penalty: str) -> bool:
        """Whether this penalty blocks."""
        return any(one.blocks for one in self.watching if one.key == penalty)


class Shield:
    """A bounded memory of refusals; the oldest is dropped first."""

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
        """By question. While it is empty, a limiter does not ask the shield."""
        # When the oldest refusal ends, or earlier.
        self._oldest_ends = math.inf
        # The questions that show a key, so that a refund finds them.
        self._questions: dict[str, set[Hashable]] = {}
        # By the key of a penalty: the times of replayed refusals that the store does not know yet.
        self._unreported: OrderedDict[str, list[float]] = OrderedDict()
        self.forgotten = 0
        """How often `forget`, `reset` or `clear` was called; see `remember`."""

    def __len__(self) -> int:
        return len(self.refusals)

    def find(self, question: Hashable) -> tuple[Decision, tuple[Verdict, ...], float] | None:
        """Return a refusal of the same windows, limits and costs that still holds.

        Return also the verdicts that a replay shows, and the age of the refusal in seconds.
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
        """Keep a refusal as long as everything that a replay shows is true, at most `seconds`.

        The question consists of windows, limits and costs. `forgotten` is the value of that counter
        before the store was asked. If it has changed, a refund or reset may have come after the
        refusal, so the refusal is not kept.
        """
        if not self.seconds:
            return
        now = self._clock()
        if now >= self._oldest_ends:
            self._drop_ended()
        verdicts = _lasting(refusal.verdicts)
        # Without other requests, a window changes only when a hit leaves it.
        changes = [verdict.reset_after for verdict in verdicts if verdict.reset_after]
        watching = Watching.of(refusal)
        lasts = min([self.seconds, *changes, *[one.blocks for one in watching if one.blocks]])
        with self._lock:
            if forgotten != self.forgotten:
                return
            if question in self.refusals:
                self._drop(question)
            kept = _Refusal(refusal, verdicts, now, now + lasts, watching)
            self.refusals[question] = kept
            self._oldest_ends = min(self._oldest_ends, now + self.seconds)
            for key in kept.keys:
                self._questions.setdefault(key, set()).add(question)
            if len(self.refusals) > self._max_entries:
                self._drop(next(iter(self.refusals)))

    def counted(self, refusal: Decision) -> None:
        """Drop refusals that show a penalty of this one: how many it has left is not true any more.

        The end of a block stays true.
        """
        watching = Watching.of(refusal)
        if not watching:
            return
        with self._lock:
            for one in watching:
                for question in tuple(self._questions.get(one.key, ())):
                    if not self.refusals[question].blocks(one.key):
                        self._drop(question)

    def charged(self, keys: tuple[str, ...]) -> None:
        """Drop refusals that show one of these windows, because the windows were charged."""
        for key in keys:
            if key in self._questions:
                self.forget(keys)
                return

    def forget(self, keys: Iterable[str]) -> None:
        """Drop refusals that show one of these windows, also those of checks under way."""
        with self._lock:
            self.forgotten += 1
            for key in keys:
                for question in tuple(self._questions.get(key, ())):
                    self._drop(question)

    def reset(self, keys: Iterable[str]) -> None:
        """Do what `forget` does, and drop refusals that were not reported to these penalties."""
        self.forget(keys)
        with self._lock:
            for key in keys:
                self._unreported.pop(key, None)

    def clear(self) -> None:
        """Drop all refusals. Penalties will still count those that were not reported yet."""
        with self._lock:
            self.forgotten += 1
            self.refusals.clear()
            self._questions.clear()

    def has_unreported(self, keys: Iterable[str]) -> bool:
        """Whether refusals were replayed that one of these penalties has not counted yet."""
        return bool(self._unreported) and not self._unreported.keys().isdisjoint(keys)

    def take_unreported(self, key: str) -> tuple[int, ...]:
        """Return the ages of the unreported refusals in microseconds, and forget them.

        Drop also the refusals that show the penalty: how many it has left is not known any more.
        """
        with self._lock:
            now = self._clock()
            for question in tuple(self._questions.get(key, ())):
                self._drop(question)
            return tuple([round((now - at) * 1e6) for at in self._unreported.pop(key, ())])

    def _may_replay(self, watching: Watching, now: float) -> bool:
        """Count a refusal for each penalty; return False if it may be the one that blocks."""
        # Once for each key: profiles may share a penalty.
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
        """Drop the two oldest refusals if they have ended. Only two, to keep a check short.

        Most clients do not come back, and an empty shield costs a check nothing.
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

    These are the verdicts of profiles and identifiers that were refused: no such request is
    admitted meanwhile. Other windows, for example one that all clients share, are charged all the
    time by other requests and processes.
    """
    refused = {_owner(verdict) for verdict in verdicts if not verdict.allowed}
    return tuple([verdict for verdict in verdicts if _owner(verdict) in refused])


def _owner(verdict: Verdict) -> str:
    """Return the part of the key that all windows of the profile and identifier share."""
    return verdict.key.rpartition(":")[0]
