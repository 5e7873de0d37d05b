"""What if: the form on the page of profiles, and its answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from django_slidingwindow.admin_views.what_if import between
from django_slidingwindow.inspection.what_if import Bounds
from tests.support.rejection_factories import row
from tests.support.usage_factories import usage_row

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>\"'&%1B[31m"
PROFILES = {
    "api": {"axis": "tenant", "rate": "100/m", "log": "all", "algorithm": "buckets"},
    "twin": {"axis": "tenant", "rate": "100/m", "scope": "api"},
    "plain": {"axis": "tenant", "rate": "120/m"},
    "planned": {"axis": "tenant", "rate": "tests.admin.test_usage.planned", "log": "all"},
}


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    with override_settings(SLIDING_WINDOW={"PROFILES": PROFILES}):
        yield


def get(client: Client, **query: str) -> Any:
    return client.get(reverse("admin:django_slidingwindow_rejection_profiles"), query)


def minute(back: int) -> Any:
    return timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=back)


def test_page_shows_an_empty_form_at_first(admin_client: Client) -> None:
    response = get(admin_client, profile="plain")
    assert response.context["answer"] is None
    assert not response.context["what_if"].is_bound
    assert '<option value="plain" selected>' in response.content.decode()
    assert "profile=api#what-if" in response.content.decode()


def test_answer_has_bounds_facts_and_identifiers(admin_client: Client) -> None:
    usage_row(minute=minute(30), hits=40).save()
    usage_row(minute=minute(29), hits=30).save()
    usage_row(minute=minute(29), identifier="globex").save()
    row(profile="api", identifier="acme", minute=minute(30), hits=5).save()
    response = get(admin_client, profile="api", limit="40/m", when="24h")
    answer = response.context["answer"]
    assert answer.policies[0].algorithm == "buckets"
    assert (answer.limit, answer.refused, answer.touched) == ("40 / 1 min", "5 to 35", "1")
    assert [value for _, value in answer.facts] == ["76", "2", "5", "1"]
    assert answer.rows == [("acme", "75", "5", "5 to 35")]
    content = response.content.decode()
    assert "5 to 35" in content
    assert "The logs count by the minute." in content
    assert "Requests counted by twin share these windows" in content
    assert "beyond LOG_ROWS_PER_MINUTE" not in content


def test_answer_covers_several_rates(admin_client: Client) -> None:
    usage_row(minute=minute(30), hits=40).save()
    answer = get(admin_client, profile="planned", limit="40/m, 1000/h").context["answer"]
    assert answer.limit == "40 / 1 min, 1,000 / 1 h"
    assert answer.refused == "0"


def test_answer_has_lower_bounds_when_only_refusals_are_logged(admin_client: Client) -> None:
    row(profile="plain", identifier="acme", hits=5).save()
    response = get(admin_client, profile="plain", limit="60/m")
    answer = response.context["answer"]
    assert (answer.refused, answer.touched) == ("at least 5", "at least 1")
    assert [value for _, value in answer.facts] == ["5", "1"]
    assert answer.rows == [("acme", "-", "5", "at least 5")]
    assert "logs refused requests only" in response.content.decode()
    assert "other reasons than the limit" not in response.content.decode()


def test_answer_separates_requests_that_were_only_observed(admin_client: Client) -> None:
    row(profile="plain", identifier="acme", hits=5, reason="observe").save()
    answer = get(admin_client, profile="plain", limit="120/m").context["answer"]
    assert answer.facts == [
        ("Refused in fact", "0"),
        ("Identifiers refused in fact", "0"),
        ("Over the limit, but only observed", "5"),
    ]
    assert answer.refused == "5"
    assert answer.rows == [("acme", "-", "0", "5")]


def test_answer_mentions_refusals_for_other_reasons(admin_client: Client) -> None:
    row(profile="plain", identifier="acme", hits=5).save()
    row(profile="plain", identifier="acme", hits=1_234, reason="penalty").save()
    content = get(admin_client, profile="plain", limit="60/m").content.decode()
    assert "1,234 requests were refused for other reasons than the limit" in content


def test_page_mentions_costs_and_lost_identifiers(admin_client: Client) -> None:
    usage_row(hits=2, cost=9).save()
    usage_row(identifier="", others=True, hits=1_234).save()
    content = get(admin_client, profile="api", limit="60/m").content.decode()
    assert "cannot tell what another limit would have refused" in content
    assert 'id="answer"' not in content
    assert "1,234 requests are beyond LOG_ROWS_PER_MINUTE" in content


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"limit": ""}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"limit": "60/m,"}, "limit"),
        ({"limit": "1/s,2/m,3/h,4/d,5/w"}, "limit"),
        ({"limit": "6" * 200}, "limit"),
        ({"limit": HOSTILE}, "limit"),
        ({"profile": "unknown"}, "profile"),
        ({"when": "1y"}, "when"),
    ],
)
def test_form_shows_an_error_at_the_invalid_field(
    admin_client: Client, change: Any, field: str
) -> None:
    query = {"profile": "api", "limit": "60/m", "when": "1h", **change}
    response = get(admin_client, **query)
    assert response.status_code == 200
    assert response.context["answer"] is None
    assert list(response.context["what_if"].errors) == [field]
    content = response.content.decode()
    assert 'role="alert"' in content
    assert "<script>alert" not in content


def test_answer_escapes_a_hostile_identifier(admin_client: Client) -> None:
    usage_row(identifier=HOSTILE, hits=99).save()
    content = get(admin_client, profile="api", limit="60/m").content.decode()
    assert "<script>alert" not in content
    assert "&lt;script&gt;alert(1)" in content
    assert " style=" not in content.partition('id="content-main"')[2]


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        (Bounds(least=3, most=3), "3"),
        (Bounds(least=3, most=5_000), "3 to 5,000"),
        (Bounds(least=3, most=None), "at least 3"),
    ],
)
def test_between_returns_bounds_as_text(bounds: Bounds, text: str) -> None:
    assert between(bounds) == text
