"""The last step of a check: update breaker and shield, use the fallback, call the callbacks."""

from __future__ import annotations

from collections.abc import Callable

from ..decisions import PENALTY, Decision
from ..exceptions import StoreError
from ..stores.protocol import Store
from .callbacks import Callbacks
from .fallback import Fallback
from .health import Health
from .shield import Shield
from .windows import WindowSet


class Outcomes:
    """Turns the answer of the store, or its failure, into the final decision."""

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
        """Return the time if the duration of the call has to be reported, else None."""
        return self._clock() if self._listeners.receivers else None

    def answered(
        self,
        windows: WindowSet,
        decision: Decision,
        start: float | None,
        forgotten: int,
        key: str,
    ) -> Decision:
        """Update breaker and shield after the store has decided; return the decision.

        `key` is one of the keys in the call; empty if the breaker was updated before.
        """
        if key and not self._breaker.is_healthy:
            self._health.answered(self._store.node(key), charged=decision.allowed)
        if decision.allowed:
            if self._shield.refusals:
                self._shield.charged(windows.keys)
        else:
            if self._shield.refusals:
                self._shield.counted(decision)
            if windows.template.exact or _is_only_block(windows, decision):
                self._shield.remember(windows, decision, forgotten)
        return self.report(decision, start) if self._listeners.receivers else decision

    def unanswered(
        self, windows: WindowSet, error: BaseException, start: float | None, key: str
    ) -> Decision:
        """Return the fallback's decision; raise the error if it is not a StoreError."""
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
        """Call the callback with the decision, and return the decision."""
        if self._listeners.receivers and self._callbacks.checked is not None:
            seconds = None if start is None else self._clock() - start
            self._callbacks.checked(decision, seconds, error)
        return decision


def _is_only_block(windows: WindowSet, decision: Decision) -> bool:
    """Whether only a penalty refuses: its end is exact, whatever the algorithm of the windows."""
    return decision.reason == PENALTY and not windows.template.joined
