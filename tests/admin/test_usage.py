"""The page of usage: percentiles of a profile, and an identifier over time with its limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from django_slidingwindow import limits
from django_slidingwindow.guard.identity import keyed_hash
from django_slidingwindow.inspection import spans
from django_slidingwindow.registry import registry
from django_slidingwindow.rejections.text import printable
from tests.support.rejection_factories import row
from tests.support.usage_factories import usage_row

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>\"'&%1B[31m"
PROFILES = {
    "api": {"axis": "tenant", "rates": ["10/m", "5/10s", "500/h"], "log": "all"},
    "plain": {"axis": "tenant", "rate": "10/m"},
    "planned": {"axis": "tenant", "rate": "tests.admin.test_usage.planned", "log": "all"},
}


def planned(identifier: str, request: Any) -> str | None:
    return "7/m" if identifier == "acme" else None


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    with override_settings(SLIDING_WINDOW={"PROFILES": PROFILES}):
        yield


def get(client: Client, **query: str) -> Any:
    return client.get(reverse("admin:django_slidingwindow_rejection_usage"), query)


def minute(back: int) -> Any:
    return timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=back)


def test_profile_shows_percentiles_and_the_busiest_identifiers(admin_client: Client) -> None:
    for back in range(1, 21):
        usage_row(minute=minute(back), hits=back).save()
    usage_row(minute=minute(5), identifier="globex").save()
    row(profile="api", identifier="acme", minute=minute(5), hits=100).save()
    response = get(admin_client)
    # By default, the page shows the first profile that logs all requests.
    assert response.context["chosen"] == "api"
    windows = {one.window: one for one in response.context["windows"]}
    assert list(windows) == ["10 / 1 min", "5 / 10 s", "500 / 1 h"]
    # The samples, sorted: 1, 1, 2, 3, 4, 6, 7, …, 20, 105.
    assert windows["10 / 1 min"].cells == [
        ("11", True),
        ("20", True),
        ("105", True),
        ("105", True),
    ]
    # 5 in 10 seconds are 30 in a minute.
    assert [above for _, above in windows["5 / 10 s"].cells] == [False, False, True, True]
    assert windows["5 / 10 s"].measured == "1 min"
    rows = response.context["busiest"]
    assert [(one.identifier, one.admitted, one.refused) for one in rows] == [
        ("acme", "210", "100"),
        ("globex", "1", "0"),
    ]
    assert "identifier=acme" in rows[0].url
    assert response.context["total"].admitted == 211
    assert b"sw-limit" not in response.content


@pytest.mark.parametrize("when", ["1h", "24h", "7d"])
def test_identifier_is_shown_over_time_with_its_limits(admin_client: Client, when: str) -> None:
    for back in range(1, 30):
        usage_row(minute=minute(back), hits=8).save()
    usage_row(minute=minute(5), identifier="globex", hits=999).save()
    # Before the hour that is shown, but in the windows of its first minutes.
    usage_row(minute=minute(62), hits=100).save()
    response = get(admin_client, profile="api", identifier=" acme ", when=when)
    charts = response.context["charts"]
    assert [chart.limit for chart in charts] == [10, 30, 500]
    assert [chart.limit_text for chart in charts] == ["10 / 1 min", "5 / 10 s", "500 / 1 h"]
    hour = charts[2].series[0].values
    # The window that ended three minutes ago still held the 100 hits.
    assert max(hour) == 27 * 8 + 100
    if when == "1h":
        assert hour[0] == 100
        assert hour[-1] == 29 * 8
        assert response.context["total"].admitted == 232
    requests = response.context["requests"]
    assert requests.series[0].total == (232 if when == "1h" else 332)
    content = response.content.decode()
    assert content.count('class="sw-limit"') == 3
    assert "globex" not in content
    assert response.context["windows"] == response.context["busiest"] == []


def test_chart_shows_the_identifiers_limit_when_a_function_returns_it(admin_client: Client) -> None:
    usage_row(profile="planned").save()
    response = get(admin_client, profile="planned", identifier="acme")
    assert [chart.limit for chart in response.context["charts"]] == [7]
    assert get(admin_client, profile="planned", identifier="free").context["charts"] == []
    (window,) = get(admin_client, profile="planned").context["windows"]
    assert (window.window, window.use.limit) == ("1 min", None)
    assert not any(above for _, above in window.cells)


@override_settings(SLIDING_WINDOW={"PROFILES": PROFILES, "LOG_IDENTIFIERS": "hash"})
def test_chart_has_no_limit_line_when_identifiers_are_hashed(admin_client: Client) -> None:
    stored = keyed_hash("acme")
    usage_row(profile="planned", identifier=stored).save()
    response = get(admin_client, profile="planned", identifier="acme")
    assert [chart.limit for chart in response.context["charts"]] == [7]
    response = get(admin_client, profile="planned", identifier=stored)
    assert [chart.limit for chart in response.context["charts"]] == [None]
    assert b"sw-limit" not in response.content


def test_page_escapes_hostile_text(admin_client: Client) -> None:
    usage_row(identifier=HOSTILE).save()
    for query in ({}, {"identifier": HOSTILE}, {"profile": HOSTILE}, {"when": HOSTILE}):
        content = get(admin_client, **{"profile": "api", **query}).content.decode()
        assert "<script>alert" not in content
        assert "alert(1)" in content or "when" in query
        assert " style=" not in content.partition('id="content-main"')[2]
    name = get(admin_client, profile="api").context["busiest"][0].url
    assert "<" not in name
    assert get(admin_client, profile="api", identifier=HOSTILE).context["total"].admitted == 1


def test_page_shows_the_problem_when_the_profile_is_unknown(admin_client: Client) -> None:
    response = get(admin_client, profile="apo")
    assert response.status_code == 200
    assert "did you mean &#x27;api&#x27;?" in response.content.decode()


def test_page_shows_the_problem_when_no_profile_is_valid(admin_client: Client) -> None:
    invalid = {name: {"axis": "ip"} for name in registry.configs()}
    with override_settings(SLIDING_WINDOW={"PROFILES": invalid}):
        assert "needs exactly one of" in get(admin_client).context["problem"]


def test_page_says_which_data_is_missing(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert b"The logs have no requests" in get(admin_client, profile="api").content
    assert b"logs refused requests only" in get(admin_client, profile="plain").content
    usage_row(identifier="", others=True, hits=1_234).save()
    usage_row(hits=1, cost=5).save()
    content = get(admin_client, profile="api").content.decode()
    assert "1,234 requests are beyond LOG_ROWS_PER_MINUTE" in content
    assert "cost other than one hit" in content
    assert "too many rows" not in content
    for back in range(5):
        usage_row(minute=minute(back)).save()
    monkeypatch.setattr(spans, "MOST_ROWS", 3)
    content = get(admin_client, profile="api").content.decode()
    assert re.search(r"too many rows: only requests after \d{4}-\d\d-\d\d \d\d:\d\d are", content)


def test_page_needs_the_permission_to_view_the_log(client: Client) -> None:
    user = User.objects.create_user("viewer", is_staff=True)
    client.force_login(user)
    assert get(client).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="view_rejection"))
    assert get(client).status_code == 200


def test_list_links_to_usage_with_its_filters(admin_client: Client) -> None:
    log = reverse("admin:django_slidingwindow_rejection_changelist")
    response = admin_client.get(log, {"profile": "api", "q": "acme inc"})
    assert response.context["usage_url"].endswith("/usage/?profile=api&identifier=acme+inc")
    # Usage is of one identifier or of all.
    response = admin_client.get(log, {"profile": "api", "q": "acme*"})
    assert response.context["usage_url"].endswith("/usage/?profile=api")
    assert response.context["live_url"].endswith("/live/?profile=api&identifier=acme%2A")


@pytest.mark.parametrize("identifier", ["a\x1bb", "9+bob%2Bx"])
def test_identifier_with_escapes_links_to_its_rejections_and_live_keys(
    identifier: str, admin_client: Client, redis: Any
) -> None:
    limits.check("api", identifier)
    row(profile="api", identifier=printable(identifier)).save()
    (busiest,) = get(admin_client, profile="api").context["busiest"]
    context = admin_client.get(busiest.url).context
    assert context["subtitle"] == printable(identifier)
    assert len(admin_client.get(context["log_url"]).context["cl"].result_list) == 1
    (found, *_) = admin_client.get(context["live_url"]).context["rows"]
    assert found.state.identifier == identifier


def test_page_runs_few_queries(admin_client: Client) -> None:
    for back in range(20):
        usage_row(minute=minute(back), identifier=f"t{back}").save()
    with CaptureQueriesContext(connection) as queries:
        get(admin_client, profile="api")
    assert len([query for query in queries if "slidingwindow" in query["sql"]]) == 4
