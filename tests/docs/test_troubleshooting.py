"""docs/troubleshooting.md: the way from a response to the log row, with its own commands."""

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
    # The views of other tests name profiles that this project does not have.
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


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("slidingwindow", *arguments, stdout=out)
    return out.getvalue()


def shown(number: int) -> str:
    """The output of the page's command of that number, after `manage.py slidingwindow`."""
    lines = [
        line.removeprefix(COMMAND)
        for block in blocks(PAGE, "console")
        for line in block.code.splitlines()
        if line.startswith(COMMAND)
    ]
    return said(*shlex.split(lines[number]))


def test_response_names_the_policy_that_refused() -> None:
    response = refused()
    assert response.status_code == 429
    (block,) = blocks(PAGE, "http")
    for line in block.code.splitlines()[1:]:
        name, value = line.split(": ", 1)
        assert re.sub(r"t=\d+", "", response[name]) == re.sub(r"t=\d+", "", value) or (
            name == "Retry-After" and 0 < int(response[name]) <= 60
        )


def test_commands_find_the_window_and_let_the_client_in() -> None:
    refused()
    window = shown(1)
    for line in blocks(PAGE, "")[0].code.splitlines():
        name, value = re.split(r"\s{2,}", line)
        wanted = r".+" if name == "blocked for" else re.escape(value)
        assert re.search(rf"^{name}\s+{wanted}$", window, re.MULTILINE)
    assert "throttle:tenant:{acme}:tenant_paid:c60" in shown(2)
    shown(3)
    assert Client().get("/orders/", headers={"X-Tenant": "acme"}).status_code == 200


def test_log_has_the_columns_that_the_page_explains() -> None:
    refused()
    row = Rejection.objects.get(identifier="acme", profile="tenant_paid")
    assert (row.view, row.method, row.reason) == ("orders/", "GET", "limit")
    assert (row.source, row.hits) == ("redis", 1)


def test_doctor_is_the_first_command() -> None:
    assert "latency" in shown(0)


def test_commands_in_the_tables_exist() -> None:
    cells = re.findall(r"^\| .+? \| (.*?) \| ", pages()[PAGE], re.MULTILINE)
    named = [span for cell in cells for span in code_in(cell) if span.startswith("slidingwindow")]
    assert len(named) > 10
    for command in set(named):
        arguments = shlex.split(command.replace("NAME", "tenant_paid"))[1:]
        if arguments == ["show"]:
            arguments += ["--profile", "tenant_paid", "--id", "acme"]
            refused()
        said(*arguments)
