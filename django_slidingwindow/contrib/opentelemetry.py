"""Metrics for OpenTelemetry. One call enables them, in an AppConfig's `ready`:

    from django_slidingwindow.contrib import opentelemetry

    opentelemetry.install()

Only the API is needed: which SDK and exporter take the numbers is the project's choice.
"""

from __future__ import annotations

from typing import Any

from opentelemetry.metrics import Meter, MeterProvider, get_meter

from .. import __version__
from .metrics import COUNTER, GAUGE, LATENCY_BUCKETS, METRICS, Metric, Receivers


class _Instruments:
    """The metrics of one meter."""

    def __init__(self, meter: Meter) -> None:
        self._writers = {metric: _writer(metric, meter) for metric in METRICS}
        self.receivers = Receivers(self.record)

    def record(self, metric: Metric, value: float, labels: tuple[str, ...]) -> None:
        self._writers[metric](value, dict(zip(metric.labels, labels, strict=True)))


def _writer(metric: Metric, meter: Meter) -> Any:
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
    """Measure from now on, by this provider or the global one; a second call changes nothing."""
    global _installed
    if _installed is None:
        meter = get_meter("django_slidingwindow", __version__, meter_provider)
        _installed = _Instruments(meter)
        _installed.receivers.connect()


def uninstall() -> None:
    """Stop measuring."""
    global _installed
    if _installed is not None:
        _installed.receivers.disconnect()
        _installed = None
