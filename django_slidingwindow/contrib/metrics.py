"""What is measured, and from which signals. Labels never hold an identifier.

Neutral of any library: `contrib.prometheus` and `contrib.opentelemetry` say where the
numbers go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from .. import decisions, signals
from ..conf import conf
from ..decisions import Decision

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

NEAR = 0.8
"""The use of a limit from which an admitted check counts as near it."""

LATENCY_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing that is measured."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    """"s" for seconds."""

    @property
    def prometheus_name(self) -> str:
        """As it is exposed; a histogram has more endings."""
        ending = {"s": "_seconds"}.get(self.unit, "")
        total = "_total" if self.kind == COUNTER else ""
        return f"slidingwindow_{self.name.replace('.', '_')}{ending}{total}"

    @property
    def otel_name(self) -> str:
        return f"slidingwindow.{self.name}"


CHECKS = Metric(
    "checks",
    COUNTER,
    "Checks answered; the outcome is the decision's reason.",
    ("profile", "outcome"),
)
REFUSALS = Metric(
    "refusals",
    COUNTER,
    "Requests refused, or that an observing profile would have refused.",
    ("profile", "reason", "source"),
)
NEAR_LIMIT = Metric(
    "near_limit", COUNTER, "Checks admitted at 80 % of a limit or above.", ("profile",)
)
STORE_DURATION = Metric("store.duration", HISTOGRAM, "How long Redis took to answer.", unit="s")
BREAKER_OPEN = Metric(
    "breaker.open", GAUGE, "1 while Redis is away for this process, else 0.", ("alias",)
)
FALLBACKS = Metric("fallbacks", COUNTER, "Times that the fallback took over.", ("alias",))
FALLBACK_DURATION = Metric(
    "fallback.duration", COUNTER, "Time in fallback, counted at its end.", ("alias",), "s"
)
SHIELD_HITS = Metric(
    "shield_hits", COUNTER, "Refusals answered without asking Redis.", ("profile",)
)
LOG_BATCHES = Metric("log.batches", COUNTER, "Batches of the rejection log.", ("outcome",))
LOG_WRITTEN = Metric("log.written", COUNTER, "Refusals that the rejection log counts.")
LOG_DROPPED = Metric("log.dropped", COUNTER, "Refusals that the rejection log never will count.")
LOG_DURATION = Metric("log.duration", HISTOGRAM, "How long a batch of the log took.", unit="s")

METRICS = (
    CHECKS,
    REFUSALS,
    NEAR_LIMIT,
    STORE_DURATION,
    BREAKER_OPEN,
    FALLBACKS,
    FALLBACK_DURATION,
    SHIELD_HITS,
    LOG_BATCHES,
    LOG_WRITTEN,
    LOG_DROPPED,
    LOG_DURATION,
)

WRITTEN, FAILED = "written", "failed"

Record: TypeAlias = "Callable[[Metric, float, tuple[str, ...]], None]"
"""Adds to a counter, sets a gauge, or observes; the values of its labels come in their order."""


class Receivers:
    """Turns signals into records, from `connect` to `disconnect`."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._links = (
            (signals.limit_checked, self._checked),
            (signals.request_limited, self._limited),
            (signals.store_degraded, self._degraded),
            (signals.store_recovered, self._recovered),
            (signals.log_written, self._logged),
        )

    def connect(self) -> None:
        # What has no label but the alias is there from the start: a rate needs two values.
        for metric in (BREAKER_OPEN, FALLBACKS, FALLBACK_DURATION):
            self._record(metric, 0, (conf.cache,))
        for outcome in (WRITTEN, FAILED):
            self._record(LOG_BATCHES, 0, (outcome,))
        for metric in (LOG_WRITTEN, LOG_DROPPED):
            self._record(metric, 0, ())
        for signal, receiver in self._links:
            signal.connect(receiver, weak=False, dispatch_uid=(__name__, id(self)))

    def disconnect(self) -> None:
        for signal, _ in self._links:
            signal.disconnect(dispatch_uid=(__name__, id(self)))

    def _checked(self, *, decision: Decision, seconds: float | None, **kwargs: Any) -> None:
        record = self._record
        record(CHECKS, 1, (decision.profile, decision.reason))
        if seconds is not None:
            record(STORE_DURATION, seconds, ())
        if decision.source == decisions.SHIELD:
            record(SHIELD_HITS, 1, (decision.profile,))
        if decision.allowed:
            for profile in _near(decision):
                record(NEAR_LIMIT, 1, (profile,))

    def _limited(self, *, decision: Decision, **kwargs: Any) -> None:
        for profile in _refusing(decision):
            self._record(REFUSALS, 1, (profile, decision.reason, decision.source))

    def _degraded(self, *, alias: str, **kwargs: Any) -> None:
        self._record(BREAKER_OPEN, 1, (alias,))
        self._record(FALLBACKS, 1, (alias,))

    def _recovered(self, *, alias: str, seconds: float, **kwargs: Any) -> None:
        self._record(BREAKER_OPEN, 0, (alias,))
        self._record(FALLBACK_DURATION, seconds, (alias,))

    def _logged(
        self, *, hits: int, seconds: float, error: object, dropped: int, **kwargs: Any
    ) -> None:
        self._record(LOG_BATCHES, 1, (WRITTEN if error is None else FAILED,))
        self._record(LOG_DURATION, seconds, ())
        if error is None:
            self._record(LOG_WRITTEN, hits, ())
        self._record(LOG_DROPPED, dropped, ())


def _refusing(decision: Decision) -> set[str]:
    """Return the profile that refused; of a request that was let in, those that only observe."""
    if not decision.allowed:
        return {decision.profile}
    return {
        verdict.profile for verdict in decision.verdicts if verdict.observed and not verdict.allowed
    }


def _near(decision: Decision) -> set[str]:
    """Return the profiles whose limit the check has nearly used up."""
    return {
        verdict.profile
        for verdict in decision.verdicts
        if verdict.allowed and verdict.limit - verdict.remaining >= NEAR * verdict.limit
    }
