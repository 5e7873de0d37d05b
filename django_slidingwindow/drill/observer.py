"""Observe checks, signals and metrics of this process."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from .. import signals
from ..contrib.metrics import COUNTER, GAUGE, Metric, Receivers
from ..decisions import Decision
from ..exceptions import StoreError


class SeenCheck(NamedTuple):
    """A check that was observed. Times are those of the observer's clock."""

    ended: float
    seconds: float | None
    """How long the check waited for the store; None if the store was not asked."""
    error: StoreError | None
    decision: Decision

    @property
    def began(self) -> float:
        return self.ended - (self.seconds or 0.0)


class Observer:
    """Keeps the checks, signals and metrics that it has seen."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.checks: list[SeenCheck] = []
        self.degraded: list[float] = []
        """When `store_degraded` was sent."""
        self.recovered: list[float] = []
        """When `store_recovered` was sent."""
        self.refused = 0
        """How often `request_limited` was sent."""
        self.metrics: dict[tuple[Metric, tuple[str, ...]], float] = defaultdict(float)
        """The total of a counter, the last value of a gauge, and the number of values of a
        histogram."""
        self._metric_receivers = Receivers(self._record)
        self._receivers = (
            (signals.limit_checked, self._checked),
            (signals.request_limited, self._limited),
            (signals.store_degraded, self._degraded),
            (signals.store_recovered, self._recovered),
        )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Observe while the context is open."""
        for signal, receiver in self._receivers:
            signal.connect(receiver, weak=False, dispatch_uid=(__name__, id(self)))
        self._metric_receivers.connect()
        try:
            yield
        finally:
            self._metric_receivers.disconnect()
            for signal, _ in self._receivers:
                signal.disconnect(dispatch_uid=(__name__, id(self)))

    def _checked(
        self,
        *,
        decision: Decision,
        seconds: float | None,
        error: StoreError | None,
        **kwargs: Any,
    ) -> None:
        self.checks.append(SeenCheck(self._clock(), seconds, error, decision))

    def _limited(self, **kwargs: Any) -> None:
        self.refused += 1

    def _degraded(self, **kwargs: Any) -> None:
        self.degraded.append(self._clock())

    def _recovered(self, **kwargs: Any) -> None:
        self.recovered.append(self._clock())

    def _record(self, metric: Metric, value: float, labels: tuple[str, ...]) -> None:
        if metric.kind == GAUGE:
            self.metrics[metric, labels] = value
        else:
            self.metrics[metric, labels] += value if metric.kind == COUNTER else 1
