"""Metrics for prometheus_client. One call enables them, in an AppConfig's `ready`:

    from django_slidingwindow.contrib import prometheus

    prometheus.install()

By default they are in the global registry, so the project exposes them together with its other
metrics. They also work in prometheus_client's multiprocess mode.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from .metrics import COUNTER, GAUGE, LATENCY_BUCKETS, METRICS, Metric, Receivers


class _Collectors:
    """The metrics in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._families = {metric: _family(metric, registry) for metric in METRICS}
        # `labels` takes a lock and checks its arguments. Call it once for each set of values.
        self._children: dict[tuple[Metric, tuple[str, ...]], Any] = {}
        self.receivers = Receivers(self.record)

    def record(self, metric: Metric, value: float, labels: tuple[str, ...]) -> None:
        child = self._children.get((metric, labels))
        if child is None:
            family = self._families[metric]
            child = self._children[metric, labels] = family.labels(*labels) if labels else family
        if metric.kind == COUNTER:
            child.inc(value)
        elif metric.kind == GAUGE:
            child.set(value)
        else:
            child.observe(value)

    def unregister(self, registry: CollectorRegistry) -> None:
        for family in self._families.values():
            registry.unregister(family)


def _family(metric: Metric, registry: CollectorRegistry) -> Any:
    arguments = (metric.prometheus_name, metric.help, metric.labels)
    if metric.kind == COUNTER:
        return Counter(*arguments, registry=registry)
    if metric.kind == GAUGE:
        # In multiprocess mode, add up the values of all live processes.
        return Gauge(*arguments, registry=registry, multiprocess_mode="livesum")
    return Histogram(*arguments, registry=registry, buckets=LATENCY_BUCKETS)


_installed: WeakKeyDictionary[CollectorRegistry, _Collectors] = WeakKeyDictionary()


def install(registry: CollectorRegistry = REGISTRY) -> None:
    """Record metrics from now on, in this registry. A second call changes nothing."""
    if registry not in _installed:
        collectors = _installed[registry] = _Collectors(registry)
        collectors.receivers.connect()


def uninstall(registry: CollectorRegistry = REGISTRY) -> None:
    """Stop recording metrics, and remove them from the registry."""
    collectors = _installed.pop(registry, None)
    if collectors is not None:
        collectors.receivers.disconnect()
        collectors.unregister(registry)
