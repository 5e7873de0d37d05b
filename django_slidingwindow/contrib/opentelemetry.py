"""Metrics and traces for OpenTelemetry. One call enables metrics, in an AppConfig's `ready`:

    from django_slidingwindow.contrib import opentelemetry

    opentelemetry.install()

The setting TRACES enables traces: a span for each check that asked Redis. This module needs only
the API of OpenTelemetry. The project chooses the SDK and the exporter.
"""

from __future__ import annotations

import time
from typing import Any

from opentelemetry.metrics import Meter, MeterProvider, get_meter
from opentelemetry.trace import SpanKind, StatusCode, get_tracer

from .. import __version__
from ..decisions import Decision
from ..exceptions import StoreError
from ..signals import limit_checked
from .metrics import COUNTER, GAUGE, LATENCY_BUCKETS, METRICS, Metric, Receivers


class _Instruments:
    """The metrics of one meter."""

    def __init__(self, meter: Meter) -> None:
        self._writers = {metric: _writer(metric, meter) for metric in METRICS}
        self.receivers = Receivers(self.record)

    def record(self, metric: Metric, value: float, labels: tuple[str, ...]) -> None:
        self._writers[metric](value, dict(zip(metric.labels, labels, strict=True)))


def _writer(metric: Metric, meter: Meter) -> Any:
    """Create the instrument of a metric, and return its method that takes a value."""
    arguments = (metric.otel_name, metric.unit, metric.help)
    if metric.kind == COUNTER:
        return meter.create_counter(*arguments).add
    if metric.kind == GAUGE:
        return meter.create_gauge(*arguments).set
    histogram = meter.create_histogram(
        *arguments, explicit_bucket_boundaries_advisory=list(LATENCY_BUCKETS)
    )
    return histogram.record


_installed: _Instruments | None = None


def install(meter_provider: MeterProvider | None = None) -> None:
    """Record metrics from now on, with this provider or the global one.

    A second call changes nothing.
    """
    global _installed
    if _installed is None:
        meter = get_meter("django_slidingwindow", __version__, meter_provider)
        _installed = _Instruments(meter)
        _installed.receivers.connect()


def uninstall() -> None:
    """Stop recording metrics."""
    global _installed
    if _installed is not None:
        _installed.receivers.disconnect()
        _installed = None


# The tracer looks up the provider for each span, so the project may configure it later.
_tracer = get_tracer("django_slidingwindow", __version__)


def trace_checks(wanted: bool) -> None:
    """Start or stop making spans. The app calls this function with the setting TRACES."""
    if wanted:
        limit_checked.connect(_trace)
    else:
        limit_checked.disconnect(_trace)


def _trace(
    *, decision: Decision, seconds: float | None, error: StoreError | None, **kwargs: Any
) -> None:
    """Make a span for a check that has just ended, as a child of the current span."""
    if seconds is None:
        # Redis was not asked.
        return
    end = time.time_ns()
    profiles = dict.fromkeys(verdict.profile for verdict in decision.verdicts)
    span = _tracer.start_span(
        "slidingwindow.check",
        kind=SpanKind.CLIENT,
        start_time=end - round(seconds * 1_000_000_000),
        attributes={
            "db.system.name": "redis",
            "db.operation.name": "EVALSHA",
            "slidingwindow.profiles": [*profiles] or [decision.profile],
            "slidingwindow.allowed": decision.allowed,
            "slidingwindow.reason": decision.reason,
            "slidingwindow.source": decision.source,
        },
    )
    if error is not None:
        span.set_attribute("error.type", type(error.__cause__ or error).__qualname__)
        span.set_status(StatusCode.ERROR, str(error))
    span.end(end)
