"""The metrics in Prometheus and in OpenTelemetry, and their documentation."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from django.test import RequestFactory, override_settings
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from django_slidingwindow import decisions, limits, signals
from django_slidingwindow.contrib import metrics, opentelemetry, prometheus
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.decisions import Decision
from django_slidingwindow.registry import registry

# A large budget: a busy machine must not look like an outage.
PATIENT = {"LATENCY_BUDGET": 5.0}
DOCS = Path(__file__).parent.parent.parent / "docs"
PROFILES = {
    "api": {"axis": "tenant", "rate": "5/h"},
    "seen": {"axis": "tenant", "rate": "1/h", "mode": "observe"},
    "vip": {"axis": "tenant", "rate": lambda identifier, request: None},
}
SECRET = "acme-the-identifier"

pytestmark = pytest.mark.usefixtures("redis", "profiles")


@pytest.fixture
def profiles():
    with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": PROFILES}):
        yield


class Prometheus:
    """Reads the metrics as {Prometheus name with labels: value}."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        prometheus.install(self.registry)

    def close(self) -> None:
        prometheus.uninstall(self.registry)

    def values(self) -> dict[str, float]:
        return {
            sample.name + _labels(sample.labels): sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if not sample.name.endswith(("_created", "_bucket", "_sum"))
        }


class OpenTelemetry:
    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        opentelemetry.install(MeterProvider([self.reader]))

    def close(self) -> None:
        opentelemetry.uninstall()

    def values(self) -> dict[str, float]:
        names = {metric.otel_name: metric for metric in metrics.METRICS}
        values = {}
        for resource in self.reader.get_metrics_data().resource_metrics:
            for scope in resource.scope_metrics:
                for found in scope.metrics:
                    metric = names[found.name]
                    ending = "_count" if metric.kind == metrics.HISTOGRAM else ""
                    for point in found.data.data_points:
                        value = point.count if ending else point.value
                        name = metric.prometheus_name + ending + _labels(point.attributes)
                        values[name] = value
        return values


def _labels(labels: dict[str, str]) -> str:
    inner = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return f"{{{inner}}}" if inner else ""


@pytest.fixture(params=[Prometheus, OpenTelemetry])
def measured(request):
    exporter = request.param()
    yield exporter.values
    exporter.close()


def test_checks_are_counted_by_profile_and_outcome(measured):
    for _ in range(7):
        limits.check("api", SECRET)
    limits.check("seen", SECRET)
    limits.check("seen", SECRET)
    limits.check("vip", SECRET)
    values = measured()
    assert values["slidingwindow_checks_total{outcome=allowed,profile=api}"] == 5
    assert values["slidingwindow_checks_total{outcome=limit,profile=api}"] == 2
    assert values["slidingwindow_checks_total{outcome=observe,profile=seen}"] == 1
    assert values["slidingwindow_checks_total{outcome=unlimited,profile=vip}"] == 1


def test_shield_hits_and_calls_of_redis_are_counted_separately(measured):
    for _ in range(8):
        limits.check("api", SECRET)
    values = measured()
    assert values["slidingwindow_shield_hits_total{profile=api}"] == 2
    assert values["slidingwindow_store_duration_seconds_count"] == 6


def test_near_limit_counts_admissions_from_80_percent_on(measured):
    for _ in range(8):
        limits.check("api", SECRET)
    assert measured()["slidingwindow_near_limit_total{profile=api}"] == 2
    assert measured()["slidingwindow_near_crossings_total{profile=api}"] == 1


@pytest.mark.parametrize(("share", "expected"), [(1, 1), (0.2, 5), (0, None), (None, None)])
def test_near_limit_follows_the_setting(measured, share, expected):
    settings = {**PATIENT, "PROFILES": PROFILES, "NEAR_SHARE": share}
    with override_settings(SLIDING_WINDOW=settings):
        for _ in range(8):
            limits.check("api", SECRET)
    values = measured()
    assert values.get("slidingwindow_near_limit_total{profile=api}") == expected
    crossings = values.get("slidingwindow_near_crossings_total{profile=api}")
    assert crossings == (None if expected is None else 1)


def test_refusals_name_the_observing_profile_when_another_decided(measured):
    profiles = [registry.get(name) for name in ("api", "seen")]
    limiter = limits.get_limiter()
    windows = limiter.windows([ProfileCheck(one, SECRET, one.policies) for one in profiles])
    for _ in range(2):
        decision = limiter.charge(windows)
    assert (decision.profile, decision.reason) == ("api", "observe")
    signals.send(signals.request_limited, None, request=None, decision=decision)
    refusals = {name for name in measured() if name.startswith("slidingwindow_refusals_total")}
    assert refusals == {
        "slidingwindow_refusals_total{profile=seen,reason=observe,source=redis}",
    }


def test_refused_requests_are_counted_by_reason_and_source(measured):
    decision = Decision(
        allowed=False,
        profile="api",
        policy=None,
        limit=5,
        remaining=0,
        retry_after=3.0,
        reset_after=3.0,
        reason="limit",
        source="shield",
    )
    request = RequestFactory().get("/")
    signals.send(signals.request_limited, None, request=request, decision=decision)
    values = measured()
    assert values["slidingwindow_refusals_total{profile=api,reason=limit,source=shield}"] == 1


def test_outage_opens_and_closes_the_breaker(measured):
    assert measured()["slidingwindow_breaker_open{alias=default}"] == 0
    signals.send(signals.store_degraded, None, alias="default", error=OSError("gone"))
    values = measured()
    assert values["slidingwindow_breaker_open{alias=default}"] == 1
    assert values["slidingwindow_fallbacks_total{alias=default}"] == 1
    signals.send(signals.store_recovered, None, alias="default", seconds=2.5)
    values = measured()
    assert values["slidingwindow_breaker_open{alias=default}"] == 0
    assert values["slidingwindow_fallback_duration_seconds_total{alias=default}"] == 2.5


def test_batches_of_the_log_are_counted_written_failed_and_dropped(measured):
    batch = {"rows": 2, "hits": 5, "seconds": 0.01, "dropped": 0}
    signals.send(signals.log_written, None, **batch, error=None)
    signals.send(signals.log_written, None, **batch | {"dropped": 7}, error=OSError("down"))
    values = measured()
    assert values["slidingwindow_log_batches_total{outcome=written}"] == 1
    assert values["slidingwindow_log_batches_total{outcome=failed}"] == 1
    assert values["slidingwindow_log_written_total"] == 5
    assert values["slidingwindow_log_dropped_total"] == 7
    assert values["slidingwindow_log_duration_seconds_count"] == 2


def test_no_label_holds_an_identifier(measured):
    for _ in range(8):
        limits.check("api", SECRET)
    assert not [name for name in measured() if SECRET in name]


def test_real_outage_is_measured(fresh_server, measured):
    caches = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}}
    with override_settings(CACHES=caches):
        fresh_server.kill()
        for _ in range(4):
            limits.check("api", SECRET)
        values = measured()
    assert values["slidingwindow_breaker_open{alias=default}"] == 1
    assert values["slidingwindow_fallbacks_total{alias=default}"] == 1
    assert values["slidingwindow_checks_total{outcome=allowed,profile=api}"] == 4


def test_installing_twice_counts_once():
    exporters = [Prometheus(), OpenTelemetry()]
    prometheus.install(exporters[0].registry)
    opentelemetry.install()
    limits.check("api", SECRET)
    for exporter in exporters:
        name = "slidingwindow_checks_total{outcome=allowed,profile=api}"
        assert exporter.values()[name] == 1
        exporter.close()
        exporter.close()


def test_metrics_are_removed_by_uninstall_and_can_be_installed_again():
    exporter = Prometheus()
    exporter.close()
    limits.check("api", SECRET)
    assert exporter.values() == {}
    prometheus.install(exporter.registry)
    assert "slidingwindow_log_written_total" in exporter.values()
    exporter.close()


MULTIPROCESS = """
import os
import django
from django.conf import settings
settings.configure(SECRET_KEY="x", SLIDING_WINDOW={})
django.setup()
from django_slidingwindow import signals
from django_slidingwindow.contrib import prometheus
prometheus.install()
for _ in range(2):
    if os.fork() == 0:
        signals.store_degraded.send(None, alias="default", error=None)
        os._exit(0)
    os.wait()
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""


def test_multiprocess_mode_adds_up_all_processes(tmp_path):
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    environment["PYTHONPATH"] = str(DOCS.parent)
    done = subprocess.run(
        [sys.executable, "-c", MULTIPROCESS],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 'slidingwindow_fallbacks_total{alias="default"} 2.0' in done.stdout
    assert 'slidingwindow_breaker_open{alias="default"} 2.0' in done.stdout


def exposed() -> set[str]:
    """Return the names of all series that Prometheus has."""
    exporter = Prometheus()
    signals.send(signals.store_degraded, None, alias="default", error=OSError("gone"))
    limits.check("api", SECRET)
    text = generate_latest(exporter.registry).decode()
    exporter.close()
    declared = {metric.prometheus_name for metric in metrics.METRICS}
    return declared | set(re.findall(r"^(slidingwindow_\w+)", text, re.MULTILINE))


def named(text: str) -> set[str]:
    return set(re.findall(r"\bslidingwindow_\w+", text))


def test_dashboard_names_exactly_the_existing_metrics():
    text = (DOCS / "grafana-dashboard.json").read_text()
    panels = json.loads(text)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert named(text) <= exposed()
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in named(text)}
    assert families == {metric.prometheus_name for metric in metrics.METRICS}


def test_alert_rules_name_only_existing_metrics_and_labels():
    rules = yaml.safe_load((DOCS / "alert-rules.yml").read_text())["groups"][0]["rules"]
    labels = {label for metric in metrics.METRICS for label in metric.labels} | {"le"}
    for rule in rules:
        assert named(rule["expr"])
        assert named(rule["expr"]) <= exposed()
        asked = set(re.findall(r"(\w+)=~?\"", rule["expr"]))
        asked |= set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        assert asked <= labels
        assert {"summary", "description"} == set(rule["annotations"])


def outcomes(file: str) -> set[str]:
    """Return the outcomes that the only filter by outcome in a file has."""
    (found,) = re.findall(r'checks_total{outcome=~\\?"([a-z_|]+)', (DOCS / file).read_text())
    return set(found.split("|"))


def test_dashboard_and_alert_rule_count_every_outcome_that_is_a_refusal():
    refusals = {decisions.LIMIT, decisions.PENALTY, decisions.FALLBACK, decisions.DENY}
    # A client that an operator has blocked is no reason for an alert.
    assert outcomes("alert-rules.yml") == refusals
    assert outcomes("grafana-dashboard.json") == {*refusals, decisions.BLOCK}


def test_docs_list_every_metric_with_its_kind_and_labels():
    rows = {}
    for line in (DOCS / "metrics.md").read_text().splitlines():
        if line.startswith("| `slidingwindow_"):
            name, otel, kind, labels, meaning = (part.strip() for part in line.split("|")[1:6])
            assert meaning
            rows[name.strip("`")] = (otel.strip("`"), kind, tuple(re.findall(r"\w+", labels)))
    assert rows == {
        metric.prometheus_name: (metric.otel_name, metric.kind, metric.labels)
        for metric in metrics.METRICS
    }


def test_units_of_leases_are_counted_when_they_end(measured):
    profiles = {"leased": {"axis": "tenant", "rate": "10000/d", "lease": 100}}
    with override_settings(SLIDING_WINDOW={"PROFILES": profiles, "LATENCY_BUDGET": 60}):
        for _ in range(6):
            limits.check("leased", SECRET)
        limits.get_limiter().close()
        values = measured()
    # The process took two units and used both. Then it took six and used one.
    assert values["slidingwindow_lease_granted_total{profile=leased}"] == 8
    assert values["slidingwindow_lease_used_total{profile=leased}"] == 3
    assert values["slidingwindow_lease_returned_total{profile=leased}"] == 5
    assert values["slidingwindow_checks_total{outcome=allowed,profile=leased}"] == 6
    # Decisions of a lease do not know what remains in Redis.
    assert "slidingwindow_near_limit_total{profile=leased}" not in values


def test_hits_of_deferred_profiles_are_counted_when_they_are_sent(measured):
    profiles = {"later": {"axis": "tenant", "rate": "3/d", "mode": "deferred"}}
    # The interval is long, so that only this test sends them.
    with override_settings(SLIDING_WINDOW={"PROFILES": profiles, "DEFERRED_SECONDS": 3600}):
        for identifier, number in (("calm", 2), ("hasty", 5)):
            for _ in range(number):
                limits.check("later", identifier)
            limits.get_limiter().deferred.flush()
        values = measured()
    assert values["slidingwindow_deferred_hits_total{outcome=within}"] == 2
    assert values["slidingwindow_deferred_hits_total{outcome=over}"] == 5
    assert "slidingwindow_deferred_hits_total{outcome=lost}" not in values
    assert values["slidingwindow_deferred_duration_seconds_count"] == 2


def test_slots_of_requests_in_flight_are_counted_when_they_are_taken_and_freed(measured):
    profiles = {
        "export": {"axis": "tenant", "rate": "100/h", "inflight": 3, "hold": "1h"},
        "penalized": {
            "axis": "tenant",
            "inflight": 1,
            "penalty": {"after": "0/1h", "steps": ["1h"]},
        },
    }
    with override_settings(SLIDING_WINDOW={"PROFILES": profiles, "LATENCY_BUDGET": 60}):
        with limits.hold("export", SECRET, cost=2), limits.hold("export", SECRET):
            assert not limits.check("export", SECRET).allowed
            assert limits.check("export", SECRET, cost=0).allowed
            during = measured()
        stays = limits.check("export", SECRET)
        limits.reset("export", SECRET)
        # The reset has already deleted the slot.
        assert limits.refund(stays) == 0
        assert limits.check("penalized", SECRET).allowed
        for _ in range(3):
            # The penalty refuses, even if a slot is free.
            assert limits.check("penalized", SECRET).reason == "penalty"
        values = measured()
    assert during["slidingwindow_inflight_taken_total{profile=export}"] == 3
    assert "slidingwindow_inflight_freed_total{profile=export}" not in during
    assert values["slidingwindow_inflight_taken_total{profile=export}"] == 4
    assert values["slidingwindow_inflight_freed_total{profile=export}"] == 3
    assert values["slidingwindow_inflight_refusals_total{profile=export}"] == 1
    assert values["slidingwindow_inflight_taken_total{profile=penalized}"] == 1
    assert "slidingwindow_inflight_refusals_total{profile=penalized}" not in values


def test_slots_of_the_fallback_are_counted(fresh_server, measured):
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}
    profiles = {"export": {"axis": "tenant", "inflight": 1}}
    fresh_server.kill()
    with (
        override_settings(CACHES={"default": cache}, SLIDING_WINDOW={"PROFILES": profiles}),
        limits.hold("export", SECRET) as first,
        limits.hold("export", SECRET) as second,
    ):
        assert (first.source, first.allowed, second.allowed) == ("local", True, False)
    values = measured()
    for name in ("taken", "freed", "refusals"):
        assert values[f"slidingwindow_inflight_{name}_total{{profile=export}}"] == 1
