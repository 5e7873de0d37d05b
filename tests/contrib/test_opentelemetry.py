"""Spans of checks, made by the real SDK. The tests of metrics are in test_metrics."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from django_slidingwindow import limits
from django_slidingwindow.apps import _trace_checks
from django_slidingwindow.contrib import opentelemetry
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.registry import registry
from django_slidingwindow.signals import limit_checked

if TYPE_CHECKING:
    from tests.support.servers import RedisServer

PROFILES = {
    "api": {"axis": "tenant", "rate": "2/h"},
    "site": {"axis": "tenant", "rates": ["100/m", "1000/h"]},
}
SECRET = "acme-the-identifier"
TRACED = {
    "TRACES": True,
    "PROFILES": PROFILES,
    # A large budget: a busy machine must not look like an outage.
    "LATENCY_BUDGET": 5.0,
}

pytestmark = pytest.mark.usefixtures("redis")


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    made = TracerProvider()
    yield made
    made.shutdown()


@pytest.fixture
def spans(provider: TracerProvider, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that returns the finished spans of checks."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(opentelemetry, "_tracer", provider.get_tracer("tested"))
    return lambda: [
        span for span in exporter.get_finished_spans() if span.name == "slidingwindow.check"
    ]


@pytest.fixture
def traced(spans: Any) -> Iterator[Any]:
    with override_settings(SLIDING_WINDOW=TRACED):
        yield spans


def test_check_is_a_child_of_the_current_span_when_it_asks_redis(
    traced: Any, provider: TracerProvider
) -> None:
    with provider.get_tracer("site").start_as_current_span("request") as outer:
        limits.check("api", SECRET)
    (span,) = traced()
    assert span.parent.span_id == outer.get_span_context().span_id
    assert span.kind is SpanKind.CLIENT
    assert dict(span.attributes) == {
        "db.system.name": "redis",
        "db.operation.name": "EVALSHA",
        "slidingwindow.profiles": ("api",),
        "slidingwindow.allowed": True,
        "slidingwindow.reason": "allowed",
        "slidingwindow.source": "redis",
    }
    assert span.status.status_code is StatusCode.UNSET
    assert outer.start_time <= span.start_time < span.end_time <= outer.end_time


async def test_async_check_is_a_child_of_the_current_span(
    traced: Any, provider: TracerProvider
) -> None:
    with provider.get_tracer("site").start_as_current_span("request") as outer:
        await limits.acheck("api", SECRET)
    (span,) = traced()
    assert span.parent.span_id == outer.get_span_context().span_id
    assert span.attributes["slidingwindow.source"] == "redis"


def test_refusal_by_the_shield_makes_no_span(traced: Any) -> None:
    sources = [limits.check("api", SECRET).source for _ in range(4)]
    assert sources == ["redis"] * 3 + ["shield"]
    allowed = [span.attributes["slidingwindow.allowed"] for span in traced()]
    assert allowed == [True, True, False]


def test_span_names_every_profile_once_and_no_identifier(traced: Any) -> None:
    profiles = [registry.get(name) for name in PROFILES]
    limiter = limits.get_limiter()
    limiter.charge(limiter.windows([ProfileCheck(one, SECRET, one.policies) for one in profiles]))
    (span,) = traced()
    assert span.attributes["slidingwindow.profiles"] == ("api", "site")
    assert SECRET not in span.to_json()


@pytest.mark.parametrize("fallback", ["local", "allow"])
def test_span_is_an_error_when_redis_fails(
    fresh_server: RedisServer, traced: Any, fallback: str
) -> None:
    caches = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}}
    fresh_server.kill()
    with override_settings(CACHES=caches, SLIDING_WINDOW={**TRACED, "FALLBACK": fallback}):
        limits.check("api", SECRET)
    (span,) = traced()
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description
    assert span.attributes["error.type"] == "ConnectionError"
    assert span.attributes["slidingwindow.source"] == fallback
    assert span.attributes["slidingwindow.profiles"] == ("api",)


def test_receiver_is_connected_only_when_traces_is_set(spans: Any) -> None:
    before = len(limit_checked.receivers)
    with override_settings(SLIDING_WINDOW={"PROFILES": PROFILES}):
        limits.check("api", SECRET)
        assert len(limit_checked.receivers) == before
        with override_settings(SLIDING_WINDOW=TRACED):
            assert len(limit_checked.receivers) == before + 1
        limits.check("api", SECRET)
    assert len(limit_checked.receivers) == before
    assert spans() == []


def test_trace_checks_ignores_a_setting_that_is_not_a_dict() -> None:
    with override_settings(SLIDING_WINDOW=None):
        _trace_checks()


def test_traces_raise_when_opentelemetry_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with override_settings(SLIDING_WINDOW=TRACED), monkeypatch.context() as patch:
        patch.setitem(sys.modules, "django_slidingwindow.contrib.opentelemetry", None)
        with pytest.raises(ImproperlyConfigured, match="needs OpenTelemetry"):
            _trace_checks()
