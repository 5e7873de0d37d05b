"""Remembers refusals for a moment, so that a flood of them does not reach the store."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TypeAlias

from .decisions import Decision

Question: TypeAlias = "tuple[tuple[str, int, int], ...]"
"""The exact set of (key, limit, cost) that was refused."""


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
        self._refusals: OrderedDict[Question, tuple[Decision, float, float]] = OrderedDict()
        # By key, so that whoever is charged back need not look through all of them.
        self._questions: dict[str, set[Question]] = {}

    def __len__(self) -> int:
        return len(self._refusals)

    def find(self, question: Question) -> tuple[Decision, float] | None:
        """A refusal that still holds, and its age in seconds."""
        entry = self._refusals.get(question)
        if entry is None:
            return None
        decision, since, until = entry
        now = self._clock()
        if now < until:
            return decision, now - since
        with self._lock:
            if self._refusals.get(question) is entry:
                self._drop(question)
        return None

    def remember(self, question: Question, decision: Decision) -> None:
        """Keeps a refusal until the request may pass, but no longer than `seconds`."""
        now = self._clock()
        wait = decision.retry_after
        lasts = self.seconds if wait is None else min(wait, self.seconds)
        if lasts <= 0:
            return
        with self._lock:
            self._refusals[question] = (decision, now, now + lasts)
            self._refusals.move_to_end(question)
            for key, _, _ in question:
                self._questions.setdefault(key, set()).add(question)
            if len(self._refusals) > self._max_entries:
                self._drop(next(iter(self._refusals)))

    def forget(self, keys: Iterable[str]) -> None:
        """Drops every refusal that one of these windows has a part in."""
        for key in keys:
            if key in self._questions:
                with self._lock:
                    for question in tuple(self._questions.get(key, ())):
                        self._drop(question)

    def clear(self) -> None:
        with self._lock:
            self._refusals.clear()
            self._questions.clear()

    def _drop(self, question: Question) -> None:
        del self._refusals[question]
        for key, _, _ in question:
            sharing = self._questions.get(key)
            if sharing is not None:
                sharing.discard(question)
                if not sharing:
                    del self._questions[key]
