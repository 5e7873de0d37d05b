"""The metrics, and the signal receivers that record them. Labels never hold an identifier.

This module does not depend on a metrics library: `contrib.prometheus` and `contrib.opentelemetry`
export the values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from .. import decisions, signals
from ..conf import conf
from ..decisions import Decision, Verdict

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

LATENCY_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, independent of the library that exports it."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    """"s" for seconds."""

    @property
    def prometheus_name(self) -> str:
        """Return the name for Prometheus. A histogram adds suffixes to it."""
        ending = {"s": "_seconds"}.get(self.unit, "")
        total = "_total" if self.kind == COUNTER else ""
        return f"slidingwindow_{self.name.replace('.', '_')}{ending}{total}"

    @property
    def otel_name(self) -> str:
        return f"slidingwindow.{self.name}"


CHECKS = Metric(
    "checks",
    COUNTER,
    "Checks. The outcome is the reason of the decision.",
    ("profile", "outcome"),
)
REFUSALS = Metric(
    "refusals",
    COUNTER,
    "Requests that were refused, or that a profile in observe mode would have refused.",
    ("profile", "reason", "source"),
)
NEAR_LIMIT = Metric(
    "near_limit", COUNTER, "Admitted checks at NEAR_SHARE of a limit or above.", ("profile",)
)
NEAR_CROSSINGS = Metric(
    "near_crossings", COUNTER, "Charges that crossed NEAR_SHARE of a limit.", ("profile",)
)
STORE_DURATION = Metric("store.duration", HISTOGRAM, "Time until Redis answered a check.", unit="s")
BREAKER_OPEN = Metric(
    "breaker.open", GAUGE, "1 while this process uses the fallback, otherwise 0.", ("alias",)
)
FALLBACKS = Metric("fallbacks", COUNTER, "How often the fallback took over.", ("alias",))
FALLBACK_DURATION = Metric(
    "fallback.duration", COUNTER, "Time in fallback, added when Redis is back.", ("alias",), "s"
)
SHIELD_HITS = Metric(
    "shield_hits", COUNTER, "Refusals that were repeated without asking Redis.", ("profile",)
)
LEASE_GRANTED = Metric(
    "lease.granted", COUNTER, "Units that processes took ahead, counted at the end.", ("profile",)
)
LEASE_USED = Metric("lease.used", COUNTER, "Units of leases that admitted a request.", ("profile",))
LEASE_RETURNED = Metric(
    "lease.returned", COUNTER, "Units of leases that went back unused.", ("profile",)
)
INFLIGHT_TAKEN = Metric(
    "inflight.taken", COUNTER, "Slots that requests in flight have taken.", ("profile",)
)
INFLIGHT_FREED = Metric(
    "inflight.freed", COUNTER, "Slots that were given back before their time was up.", ("profile",)
)
INFLIGHT_REFUSALS = Metric(
    "inflight.refusals", COUNTER, "Checks that were refused because no slot was free.", ("profile",)
)
DEFERRED_HITS = Metric(
    "deferred.hits",
    COUNTER,
    "Hits of deferred profiles: within a limit, above it, or lost.",
    ("outcome",),
)
DEFERRED_DURATION = Metric(
    "deferred.duration", HISTOGRAM, "Time to send a batch of deferred charges.", unit="s"
)
LOG_BATCHES = Metric(
    "log.batches", COUNTER, "Batches of the logs, written or failed.", ("outcome",)
)
LOG_WRITTEN = Metric("log.written", COUNTER, "Requests written to the logs.")
LOG_DROPPED = Metric("log.dropped", COUNTER, "Requests that will never be written to the logs.")
LOG_DURATION = Metric("log.duration", HISTOGRAM, "Time to write a batch of a log.", unit="s")

METRICS = (
    CHECKS,
    REFUSALS,
    NEAR_LIMIT,
    NEAR_CROSSINGS,
    STORE_DURATION,
    BREAKER_OPEN,
    FALLBACKS,
    FALLBACK_DURATION,
    SHIELD_HITS,
    LEASE_GRANTED,
    LEASE_USED,
    LEASE_RETURNED,
    INFLIGHT_TAKEN,
    INFLIGHT_FREED,
    INFLIGHT_REFUSALS,
    DEFERRED_HITS,
    DEFERRED_DURATION,
    LOG_BATCHES,
    LOG_WRITTEN,
    LOG_DROPPED,
    LOG_DURATION,
)

WRITTEN, FAILED = "written", "failed"
WITHIN, OVER, LOST = "within", "over", "lost"

Record: TypeAlias = "Callable[[Metric, float, tuple[str, ...]], None]"
"""A function of metric, value and label values in their order.

It adds the value to a counter, sets a gauge to the value, or observes the value in a histogram.
"""


class Receivers:
    """Receivers that record metrics from signals, from `connect` to `disconnect`."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._receivers = (
            (signals.limit_checked, self._checked),
            (signals.request_limited, self._limited),
            (signals.limit_near, self._near),
            (signals.lease_ended, self._leased),
            (signals.slots_freed, self._freed),
            (signals.store_degraded, self._degraded),
            (signals.store_recovered, self._recovered),
            (signals.deferred_sent, self._sent),
            (signals.log_written, self._logged),
        )

    def connect(self) -> None:
        # Record 0 where the label values are known: Prometheus needs two values for a rate.
        for metric in (BREAKER_OPEN, FALLBACKS, FALLBACK_DURATION):
            self._record(metric, 0, (conf.cache,))
        for outcome in (WRITTEN, FAILED):
            self._record(LOG_BATCHES, 0, (outcome,))
        for metric in (LOG_WRITTEN, LOG_DROPPED):
            self._record(metric, 0, ())
        for signal, receiver in self._receivers:
            signal.connect(receiver, weak=False, dispatch_uid=(__name__, id(self)))

    def disconnect(self) -> None:
        for signal, _ in self._receivers:
            signal.disconnect(dispatch_uid=(__name__, id(self)))

    def _checked(self, *, decision: Decision, seconds: float | None, **kwargs: Any) -> None:
        record = self._record
        record(CHECKS, 1, (decision.profile, decision.reason))
        if seconds is not None:
            record(STORE_DURATION, seconds, ())
        if decision.source == decisions.SHIELD:
            record(SHIELD_HITS, 1, (decision.profile,))
        # A decision of a lease does not know what remains in Redis.
        if decision.allowed and decision.source != decisions.LEASE:
            for profile in _nearly_used_up(decision, conf.near_share):
                record(NEAR_LIMIT, 1, (profile,))
            for profile, slots in _slots_taken(decision).items():
                record(INFLIGHT_TAKEN, slots, (profile,))
        elif _lacks_slots(decision):
            record(INFLIGHT_REFUSALS, 1, (decision.profile,))

    def _limited(self, *, decision: Decision, **kwargs: Any) -> None:
        for profile, reason in _refusing(decision):
            self._record(REFUSALS, 1, (profile, reason, decision.source))

    def _near(self, *, verdict: Verdict, **kwargs: Any) -> None:
        self._record(NEAR_CROSSINGS, 1, (verdict.profile,))

    def _leased(
        self, *, profile: str, granted: int, used: int, returned: int, **kwargs: Any
    ) -> None:
        self._record(LEASE_GRANTED, granted, (profile,))
        self._record(LEASE_USED, used, (profile,))
        self._record(LEASE_RETURNED, returned, (profile,))

    def _freed(self, *, profile: str, slots: int, **kwargs: Any) -> None:
        self._record(INFLIGHT_FREED, slots, (profile,))

    def _degraded(self, *, alias: str, **kwargs: Any) -> None:
        self._record(BREAKER_OPEN, 1, (alias,))
        self._record(FALLBACKS, 1, (alias,))

    def _recovered(self, *, alias: str, seconds: float, **kwargs: Any) -> None:
        self._record(BREAKER_OPEN, 0, (alias,))
        self._record(FALLBACK_DURATION, seconds, (alias,))

    def _sent(self, *, charged: int, over: int, lost: int, seconds: float, **kwargs: Any) -> None:
        for outcome, hits in ((WITHIN, charged - over), (OVER, over), (LOST, lost)):
            if hits:
                self._record(DEFERRED_HITS, hits, (outcome,))
        self._record(DEFERRED_DURATION, seconds, ())

    def _logged(
        self, *, hits: int, seconds: float, error: object, dropped: int, **kwargs: Any
    ) -> None:
        self._record(LOG_BATCHES, 1, (WRITTEN if error is None else FAILED,))
        self._record(LOG_DURATION, seconds, ())
        if error is None:
            self._record(LOG_WRITTEN, hits, ())
        self._record(LOG_DROPPED, dropped, ())


def _refusing(decision: Decision) -> set[tuple[str, str]]:
    """Return profile and reason of a refusal, or of refusals that observe mode did not enforce."""
    if not decision.allowed:
        return {(decision.profile, decision.reason)}
    return {
        (verdict.profile, decisions.OBSERVED_PENALTY if verdict.blocked else decision.reason)
        for verdict in decision.verdicts
        if verdict.observed and not verdict.allowed
    }


def _nearly_used_up(decision: Decision, share: float | None) -> set[str]:
    """Return the profiles with a window that is used up to at least this share of its limit."""
    return {
        verdict.profile
        for verdict in decision.verdicts
        if share and verdict.allowed and verdict.limit - verdict.remaining >= share * verdict.limit
    }


def _slots_taken(decision: Decision) -> dict[str, int]:
    """Return the slots that an admitted request has taken, by profile."""
    found: dict[str, int] = {}
    profiles = {
        verdict.key: verdict.profile for verdict in decision.verdicts if verdict.policy.inflight
    }
    if profiles and decision.receipt is not None:
        for charges, _ in decision.receipt.parts:
            for charge in charges:
                if charge.key in profiles:
                    profile = profiles[charge.key]
                    found[profile] = found.get(profile, 0) + charge.cost
    return found


def _lacks_slots(decision: Decision) -> bool:
    """Whether a request was refused because no slot was free."""
    if decision.allowed or decision.reason == decisions.PENALTY:
        return False
    return decision.policy is not None and decision.policy.inflight
