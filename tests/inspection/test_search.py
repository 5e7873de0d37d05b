"""`Filters` for live windows, shared by the commands and the admin page."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest
from django.core.management import load_command_class
from django.test import Client
from django.urls import reverse

from django_slidingwindow.inspection.search import ALL, Filters

NAMES = [field.name for field in fields(Filters)]
EVERY = Filters(profile="login", axis="ip", identifier="203.0.113.*", blocked=True)


def options(*arguments: str) -> dict[str, Any]:
    """Return the parsed options of the command."""
    command = load_command_class("django_slidingwindow", "slidingwindow")
    return vars(command.create_parser("manage.py", "slidingwindow").parse_args(arguments))


@pytest.mark.parametrize("action", ["keys", "watch"])
def test_filters_are_options_of_the_commands(action: str) -> None:
    assert Filters.from_options(options(action)) == ALL
    given = ["--profile", "login", "--axis", "ip", "--id", "203.0.113.*", "--blocked"]
    assert Filters.from_options(options(action, *given)) == EVERY


@pytest.mark.parametrize("filters", [ALL, EVERY, Filters(identifier="0")])
def test_filters_round_trip_through_a_query(filters: Filters) -> None:
    assert Filters.from_query(filters.query()) == filters


def test_filters_ignore_empty_and_unknown_parameters() -> None:
    query = {"profile": "", "axis": " ", "identifier": " acme ", "blocked": "", "cursor": "7"}
    assert Filters.from_query(query) == Filters(identifier="acme")


@pytest.mark.django_db
@pytest.mark.usefixtures("redis")
def test_filters_are_fields_of_the_live_page(admin_client: Client) -> None:
    page = admin_client.get(reverse("admin:django_slidingwindow_rejection_live"))
    form = page.content.decode().partition('class="sw-search"')[2].partition("</form>")[0]
    assert re.findall(r'name="(\w+)"', form) == NAMES
    assert 'name="identifier" value=""' in form


@pytest.mark.django_db
@pytest.mark.usefixtures("redis")
def test_live_page_shows_the_active_filters(admin_client: Client) -> None:
    query = {**EVERY.query(), "profile": "ip_public"}
    page = admin_client.get(reverse("admin:django_slidingwindow_rejection_live"), query)
    text = page.content.decode()
    for shown in ("<option selected>ip_public<", "<option selected>ip<", " checked>"):
        assert shown in text
    assert 'value="203.0.113.*"' in text
