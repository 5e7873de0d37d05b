"""What follows from a store's answer, or from none: breaker, shield, fallback and callbacks."""

from __future__ import annotations

from collections.abc import Callable

from ..decisions import PENALTY, Decision
from ..exceptions import StoreError
from ..stores.protocol import Store
from .fallback import Fallback
from .health import Callbacks, Health
from .shield import Shield
from .windows import WindowSet


class Outcomes:
    """The last step of a check."""

    def __init__(
        self,
        store: Store,
        *,
        health: Health,
        shield: Shield,
        fallback: Fallback,
        callbacks: Callbacks,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._health = health
        self._breaker = health.breakers
        self._shield = shield
        self._fallback = fallback
        self._callbacks = callbacks
        self._listeners = callbacks.listeners
        self._clock = clock

    def begin(self) -> float | None:
        """Return the time if somebody wants to know how long the store takes."""
        return self._clock() if self._listeners.receivers else None

    def answered(
        self,
        windows: WindowSet,
        decision: Decision,
        start: float | None,
        forgotten: int,
        key: str,
    ) -> Decision:
        """Keep breaker and shield up to date with what the store has decided.

        `key` is one that the store was asked for.
        """
        if not self._breaker.is_healthy:
            self._health.answered(self._store.node(key))
        if decision.allowed:
            if self._shield.refusals:
                self._shield.charged(windows.keys)
        elif windows.template.exact or _is_only_block(windows, decision):
            self._shield.remember(windows, decision, forgotten)
        return self.report(decision, start) if self._listeners.receivers else decision

    def unanswered(
        self, windows: WindowSet, error: BaseException, start: float | None, key: str
    ) -> Decision:
        """Return the fallback's decision; raise what is not an error of the store."""
        self._health.unanswered(self._store.node(key), error, charges=True)
        if not isinstance(error, StoreError):
            raise error
        return self.without_store(windows, start, error)

    def without_store(
        self, windows: WindowSet, start: float | None, error: StoreError | None = None
    ) -> Decision:
        """Return the fallback's decision."""
        if error is not None:
            self._health.failed(error)
        return self.report(self._fallback.decide(windows, True, self._breaker), start, error)

    def report(
        self, decision: Decision, start: float | None, error: StoreError | None = None
    ) -> Decision:
        """Return the decision, after the callback was called with it."""
        if self._listeners.receivers and self._callbacks.checked is not None:
            seconds = None if start is None else self._clock() - start
            self._callbacks.checked(decision, seconds, error)
        return decision


def _is_only_block(windows: WindowSet, decision: Decision) -> bool:
    """Whether a penalty has refused, and nothing else could: that lasts, whatever the algorithm."""
    return decision.reason == PENALTY and not windows.template.joined
