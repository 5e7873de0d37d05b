"""Remembers refusals for a moment, so that a flood of them does not reach the store."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from .decisions import Decision


class _Refusal(NamedTuple):
    decision: Decision
    since: float
    until: float
    keys: tuple[str, ...]


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
        """By question; whoever has many questions asks first whether there are any."""
        # By key, so that whoever is charged back need not look through all of them.
        self._questions: dict[str, set[Hashable]] = {}

    def __len__(self) -> int:
        return len(self.refusals)

    def find(self, question: Hashable) -> tuple[Decision, float] | None:
        """A refusal of the very same question that still holds, and its age in seconds."""
        refusal = self.refusals.get(question)
        if refusal is None:
            return None
        decision, since, until, _ = refusal
        now = self._clock()
        if now < until:
            return decision, now - since
        with self._lock:
            if self.refusals.get(question) is refusal:
                self._drop(question)
        return None

    def remember(self, question: Hashable, keys: tuple[str, ...], decision: Decision) -> None:
        """Keeps a refusal until the request may pass, but no longer than `seconds`.

        The question holds windows, limits and cost; `keys` are those of the windows.
        """
        now = self._clock()
        wait = decision.retry_after
        lasts = self.seconds if wait is None else min(wait, self.seconds)
        if lasts <= 0:
            return
        with self._lock:
            if question in self.refusals:
                self._drop(question)
            self.refusals[question] = _Refusal(decision, now, now + lasts, keys)
            for key in keys:
                self._questions.setdefault(key, set()).add(question)
            if len(self.refusals) > self._max_entries:
                self._drop(next(iter(self.refusals)))

    def forget(self, keys: Iterable[str]) -> None:
        """Drops every refusal that one of these windows has a part in."""
        for key in keys:
            if key in self._questions:
                with self._lock:
                    for question in tuple(self._questions.get(key, ())):
                        self._drop(question)

    def clear(self) -> None:
        with self._lock:
            self.refusals.clear()
            self._questions.clear()

    def _drop(self, question: Hashable) -> None:
        for key in self.refusals.pop(question).keys:
            sharing = self._questions.get(key)
            if sharing is not None:
                sharing.discard(question)
                if not sharing:
                    del self._questions[key]
