"""The commands of docs/troubleshooting.md lead from a response to the row of the log."""

from __future__ import annotations

import re
import shlex
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.http import HttpResponse
from django.test import Client
from django.urls import path

from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.guard import usages
from django_slidingwindow.models import Rejection
from django_slidingwindow.rejections import recorder
from tests.support.docs_pages import PATIENT, blocks, code_in, pages

PAGE = "docs/troubleshooting.md"
COMMAND = "$ python manage.py slidingwindow "

urlpatterns = [
    path("orders/", rate_limit(profile="tenant_paid")(lambda request: HttpResponse())),
]
pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


@pytest.fixture(autouse=True)
def _paid(settings: Any, redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Views of other tests use profiles that these settings do not have.
    monkeypatch.setattr(usages, "_usages", {})
    settings.SLIDING_WINDOW = {
        **PATIENT,
        "PROFILES": {"tenant_paid": {"axis": "tenant", "rates": ["5/m", "10000/d"]}},
        "IDENTITIES": {"tenant": lambda request: request.headers.get("X-Tenant")},
    }


def refused() -> HttpResponse:
    for _ in range(6):
        response = Client().get("/orders/", headers={"X-Tenant": "acme"})
    recorder.flush()
    return response


def output_of(*arguments: str) -> str:
    out = StringIO()
    call_command("slidingwindow", *arguments, stdout=out)
    return out.getvalue()


def run_shown(number: int) -> str:
    """Run the n-th command that the page shows, and return its output."""
    lines = [
        line.removeprefix(COMMAND)
        for block in blocks(PAGE, "console")
        for line in block.code.splitlines()
        if line.startswith(COMMAND)
    ]
    return output_of(*shlex.split(lines[number]))


def test_response_names_the_policy_that_refused() -> None:
    response = refused()
    assert response.status_code == 429
    (block,) = blocks(PAGE, "http")
    for line in block.code.splitlines()[1:]:
        name, value = line.split(": ", 1)
        assert re.sub(r"t=\d+", "", response[name]) == re.sub(r"t=\d+", "", value) or (
            name == "Retry-After" and 0 < int(response[name]) <= 60
        )


def test_commands_show_and_reset_the_window() -> None:
    refused()
    window = run_shown(1)
    for line in blocks(PAGE, "")[0].code.splitlines():
        name, value = re.split(r"\s{2,}", line)
        wanted = r".+" if name == "blocked for" else re.escape(value)
        assert re.search(rf"^{name}\s+{wanted}$", window, re.MULTILINE)
    assert "throttle:tenant:{acme}:tenant_paid:c60" in run_shown(2)
    run_shown(3)
    assert Client().get("/orders/", headers={"X-Tenant": "acme"}).status_code == 200


def test_log_has_the_columns_that_the_page_explains() -> None:
    refused()
    row = Rejection.objects.get(identifier="acme", profile="tenant_paid")
    assert (row.view, row.method, row.reason) == ("orders/", "GET", "limit")
    assert (row.source, row.hits) == ("redis", 1)


def test_doctor_is_the_first_command() -> None:
    assert "latency" in run_shown(0)


def test_commands_in_the_tables_exist() -> None:
    cells = re.findall(r"^\| .+? \| (.*?) \| ", pages()[PAGE], re.MULTILINE)
    named = [span for cell in cells for span in code_in(cell) if span.startswith("slidingwindow")]
    assert len(named) > 10
    for command in set(named):
        arguments = shlex.split(command.replace("NAME", "tenant_paid"))[1:]
        if arguments == ["show"]:
            arguments += ["--profile", "tenant_paid", "--id", "acme"]
            refused()
        output_of(*arguments)
