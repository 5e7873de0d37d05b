"""The recipes for Sentry and structlog in docs/metrics.md work."""

from __future__ import annotations

import gc
import json
import logging
import logging.config
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from django.conf import settings
from django.http import HttpResponse
from django.test import RequestFactory

from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.guard.limiter_factory import CALLBACKS
from django_slidingwindow.testing import limits_in_memory
from tests.support.docs_pages import ROOT, blocks, project

if TYPE_CHECKING:
    from tests.support.servers import RedisServer

PAGE = "docs/metrics.md"

# A site that prints the events for Sentry instead of sending them. It runs in its own process,
# because Sentry's SDK patches Django and logging permanently.
SITE = """
import json, sys
import django, sentry_sdk
from django.conf import settings
from sentry_sdk.transport import Transport

class Printed(Transport):
    def capture_envelope(self, envelope):
        for item in envelope.items:
            print(json.dumps(item.payload.json))

sentry_sdk.init(transport=Printed, traces_sample_rate=1.0, dsn="https://key@sentry.invalid/1")
settings.configure(
    SECRET_KEY="x", ROOT_URLCONF="__main__", ALLOWED_HOSTS=["*"],
    INSTALLED_APPS=["django_slidingwindow"],
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": sys.argv[1]}},
    SLIDING_WINDOW={
        "LATENCY_BUDGET": 30.0, "LOG": False, "PROFILES": {"login": {"axis": "ip", "rate": "1/m"}}
    },
)
django.setup()
import sentry_limits
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import path
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.guard.limiter_factory import CALLBACKS

urlpatterns = [path("", rate_limit("login")(lambda request: HttpResponse()))]
for _ in range(2):
    # A whole request as in a web server: it begins and ends a transaction of Sentry.
    response = WSGIHandler()(RequestFactory().get("/").environ, lambda *args: None)
    for _ in response:
        pass
    response.close()
CALLBACKS.degraded(StoreError("connection refused"))
"""


@pytest.mark.usefixtures("redis")
def test_sentry_gets_spans_a_tag_and_errors(tmp_path: Path, redis_server: RedisServer) -> None:
    (recipe,) = [block for block in blocks(PAGE, "python") if block.file == "sentry_limits.py"]
    (tmp_path / "sentry_limits.py").write_text(recipe.code)
    done = subprocess.run(
        [sys.executable, "-c", SITE, redis_server.url],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sent = [json.loads(line) for line in done.stdout.splitlines()]
    admitted, refused = [item for item in sent if item.get("type") == "transaction"]
    for transaction, allowed in ((admitted, True), (refused, False)):
        (span,) = [span for span in transaction["spans"] if span["description"] == "rate limit"]
        assert span["op"] == "db.redis"
        assert span["start_timestamp"] < span["timestamp"]
        data = {name: span["data"][name] for name in ("profile", "allowed", "source")}
        assert data == {"profile": "login", "allowed": allowed, "source": "redis"}
    assert "rate_limit" not in admitted.get("tags", {})
    assert refused["tags"]["rate_limit"] == "login"
    (error,) = [item for item in sent if item.get("level") == "error"]
    assert error["extra"]["fallback"] == "local"


@pytest.mark.usefixtures("redis")
def test_structlog_writes_the_fields_of_the_app(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with project(PAGE, tmp_path):
        config: Any = logging.config.DictConfigurator(settings.LOGGING)  # type: ignore[attr-defined]
        formatter = config.configure_formatter(settings.LOGGING["formatters"]["json"])
        CALLBACKS.degraded(StoreError("connection refused"))
    (record,) = [record for record in caplog.records if record.name == "django_slidingwindow"]
    line = json.loads(formatter.format(record))
    assert line["event"].startswith("Redis is away (connection refused)")
    assert (line["level"], line["logger"]) == ("error", "django_slidingwindow")
    assert (line["alias"], line["fallback"]) == ("default", "local")
    assert "timestamp" in line


def test_structlog_writes_a_line_for_each_refusal(tmp_path: Path) -> None:
    view = rate_limit("ip_public", cost=120)(lambda request: HttpResponse())
    # Delete the receivers of the page's modules that earlier tests have imported.
    gc.collect()
    with (
        project(PAGE, tmp_path),
        limits_in_memory(),
        structlog.testing.capture_logs() as lines,
    ):
        for _ in range(2):
            view(RequestFactory().get("/orders/"))
    (line,) = lines
    assert 0 < line.pop("retry_after") <= 60
    assert line == {
        "event": "refused",
        "log_level": "warning",
        "path": "/orders/",
        "profile": "ip_public",
        "source": "redis",
    }
