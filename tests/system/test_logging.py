"""Log lines: one at each transition, with structured fields, and without secrets."""

from __future__ import annotations

import logging
import re

import pytest
from django.test import override_settings

from django_slidingwindow import limits
from tests.support.docs_pages import ROOT, code_in, table

# A busy machine is not an outage.
PATIENT = {"LATENCY_BUDGET": 5.0}
PASSWORD = "s3cr3t-of-redis"

pytestmark = pytest.mark.usefixtures("redis")


def caches(url: str) -> dict[str, dict[str, str]]:
    url = url.replace("redis://", f"redis://:{PASSWORD}@")
    return {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}}


def test_outage_logs_one_line_at_its_begin_and_one_at_its_end(fresh_server, caplog):
    profiles = {"api": {"axis": "tenant", "rate": "3/h"}}
    with (
        override_settings(
            SLIDING_WINDOW={**PATIENT, "PROFILES": profiles}, CACHES=caches(fresh_server.url)
        ),
        caplog.at_level(logging.DEBUG, "django_slidingwindow"),
    ):
        fresh_server.kill()
        for _ in range(50):
            limits.check("api", "acme-identifier")
        (away,) = caplog.records
        assert (away.name, away.levelname) == ("django_slidingwindow", "ERROR")
        assert away.getMessage().startswith("Redis is away (")
        assert (vars(away)["alias"], vars(away)["fallback"]) == ("default", "local")
        caplog.clear()

        fresh_server.password = PASSWORD
        fresh_server.start()
        breaker = limits.get_limiter().breaker
        while breaker.state != "closed":
            limits.check("api", "acme-identifier")
        (back,) = caplog.records
        assert (back.levelname, vars(back)["alias"]) == ("WARNING", "default")
        assert vars(back)["seconds"] > 0
    said = away.getMessage() + back.getMessage() + caplog.text
    assert PASSWORD not in said
    assert "acme-identifier" not in said


def test_refusals_are_not_logged_one_by_one(caplog):
    profiles = {"api": {"axis": "tenant", "rate": "1/h"}}
    with (
        override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": profiles}),
        caplog.at_level(logging.DEBUG, "django_slidingwindow"),
    ):
        assert [limits.check("api", "acme").allowed for _ in range(20)].count(False) == 19
    assert caplog.records == []


def test_docs_name_the_loggers_and_the_fields_of_the_code():
    package = ROOT / "django_slidingwindow"
    source = "\n".join(path.read_text() for path in package.rglob("*.py"))
    extras = re.findall(r"extra=\{(.+?)\}", source)
    rows = table("docs/metrics.md", "Logging")
    named = {name for row in rows for name in code_in(row[0])}
    assert named == set(re.findall(r'getLogger\("(.+?)"\)', source))
    fields = {name for row in rows for name in code_in(row[3])}
    assert fields == {name for extra in extras for name in re.findall(r'"(\w+)":', extra)}
