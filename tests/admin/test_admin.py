"""The admin: the read-only log, live keys, unblocking and profiles."""

from __future__ import annotations

import csv
import html
import io
import re
import zoneinfo
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from datetime import timezone as datetime_timezone
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Permission, User
from django.core.handlers.asgi import ASGIRequest
from django.test import AsyncClient, Client, override_settings
from django.urls import reverse
from django.utils import timezone

from django_slidingwindow import decisions, limits
from django_slidingwindow.admin_views import export, formatting, live, summary, times
from django_slidingwindow.core.keys import escape
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.guard import usages
from django_slidingwindow.guard.identity import keyed_hash
from django_slidingwindow.guard.requirements import Requirement
from django_slidingwindow.inspection import spans
from django_slidingwindow.inspection import windows as inspection
from django_slidingwindow.models import Rejection
from django_slidingwindow.rejections import rows as rejections
from tests.support.rejection_factories import row

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"
SHOWN = "&lt;script&gt;alert(1)&lt;/script&gt;%1B[31m%E2%80%AE"
# A large budget: a busy machine must not look like an outage.
PATIENT = {"LATENCY_BUDGET": 5.0}
PROFILES: dict[str, Any] = {
    "login": {"axis": "ip", "rates": ["2/m", "20/h"]},
    "watched": {"axis": "tenant", "rate": "1/m", "mode": "observe", "scope": "shared"},
    "asked": {"axis": "tenant", "limit": lambda identifier, request: 3, "window": 60},
    "broken": {"axis": "ip", "rate": "many"},
}
RULES = [
    {"path": r"^/api/", "methods": ["GET"], "profiles": ["login", "watched"]},
    {"profiles": ["watched"]},
    {"profiles": []},
]


@pytest.fixture(autouse=True)
def _configured() -> Iterator[None]:
    with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": PROFILES, "RULES": RULES}):
        yield


@pytest.fixture
def staff(client: Client) -> User:
    """Log in as a user who may only view the log."""
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_rejection"))
    client.force_login(user)
    return user


def address(page: str, query: str = "", *args: Any) -> str:
    return reverse(f"admin:django_slidingwindow_rejection_{page}", args=args) + query


def get(client: Client, page: str = "changelist", query: str = "", *args: Any) -> Any:
    response = client.get(address(page, query, *args))
    assert response.status_code == 200, (response.status_code, response.headers)
    return response


def listed(client: Client, query: str = "") -> list[str]:
    return [
        found.identifier for found in get(client, "changelist", query).context["cl"].result_list
    ]


def save(**values: Any) -> Rejection:
    made = row(**values)
    made.save()
    return made


class TestLog:
    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("", {"a", "b", "c"}),
            ("?profile=login", {"b"}),
            ("?axis=tenant", {"c"}),
            ("?reason=observe", {"c"}),
            ("?source=shield", {"b"}),
            ("?profile=login&axis=tenant", set()),
            ("?when=1h", {"a"}),
            ("?when=24h", {"a", "b"}),
            ("?when=7d", {"a", "b", "c"}),
            ("?profile=gone", set()),
        ],
    )
    def test_list_applies_the_filters(
        self, admin_client: Client, query: str, found: set[str]
    ) -> None:
        now = timezone.now()
        save(identifier="a")
        save(identifier="b", profile="login", source="shield", minute=now - timedelta(hours=5))
        save(identifier="c", axis="tenant", reason="observe", minute=now - timedelta(days=3))
        assert set(listed(admin_client, query)) == found

    def test_filters_offer_the_configured_choices(self, admin_client: Client) -> None:
        specs = {spec.title: spec for spec in get(admin_client).context["cl"].filter_specs}
        assert [str(title) for title in specs] == ["time", "profile", "axis", "reason", "source"]
        names = [name for name, _ in specs["profile"].lookup_choices]
        assert {"login", "broken", "ip_public"} <= set(names)
        assert [axis for axis, _ in specs["axis"].lookup_choices] == ["endpoint", "ip", "tenant"]

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("acme", {"acme"}),
            ("  acme ", {"acme"}),
            ("acme*", {"acme", "acme-2"}),
            ("Acme", {"Acme"}),
            ("cme", set()),
            ("2001:db8::7", {"2001:db8::/64"}),
            ("%1B", {"%1B"}),
            ("%1B*", {"%1B"}),
            ("\x1b*", {"%1B"}),
            ("   ", {"acme", "acme-2", "Acme", "2001:db8::/64", "%1B"}),
        ],
    )
    def test_search_finds_an_identifier_or_a_prefix(
        self, admin_client: Client, text: str, found: set[str]
    ) -> None:
        for name in ("acme", "acme-2", "Acme", "2001:db8::/64", "%1B"):
            save(identifier=name)
        response = admin_client.get(address("changelist"), {"q": text})
        assert {r.identifier for r in response.context["cl"].result_list} == found

    def test_search_hashes_the_identifier_when_the_log_does(self, admin_client: Client) -> None:
        with override_settings(SLIDING_WINDOW={"LOG_IDENTIFIERS": "hash"}):
            save(identifier=keyed_hash("203.0.113.9"))
            assert listed(admin_client, "?q=203.0.113.9") == [keyed_hash("203.0.113.9")]
            assert listed(admin_client, f"?q={keyed_hash('203.0.113.9')}") != []
            assert listed(admin_client, "?q=203.0.113.8") == []

    def test_pages_continue_after_the_previous_one(self, admin_client: Client) -> None:
        minute = datetime(2026, 11, 16, 12, 0, tzinfo=datetime_timezone.utc)
        for i in range(250):
            save(identifier=str(i), minute=minute + timedelta(minutes=i // 60))
        seen, query, pages = [], "?reason=limit", 0
        while query:
            cl = get(admin_client, "changelist", query).context["cl"]
            seen += [r.identifier for r in cl.result_list]
            assert bool(cl.newest) == bool(pages)
            assert (cl.summary is None) == bool(pages)
            query, pages = cl.older, pages + 1
        assert seen == [str(i) for i in reversed(range(250))]
        assert pages == 3
        assert cl.newest == "?reason=limit"

    def test_next_page_does_not_shift_when_rows_are_added(self, admin_client: Client) -> None:
        minute = timezone.now().replace(second=0, microsecond=0)
        for i in range(120):
            save(identifier=str(i), minute=minute)
        older = get(admin_client).context["cl"].older
        save(identifier="new", minute=minute)
        assert listed(admin_client, older) == [str(i) for i in reversed(range(20))]

    @pytest.mark.parametrize(
        "query", ["?before=x", "?before=1.x", "?before=999999999999999999999.1", "?when=2026-13-01",
                  "?when=2026-11-16T99", "?when=soon", "?when=9999-12-31", "?when=0001-01-01",
                  "?when=0001-01-01T00", "?when=1969-12-31"],
    )  # fmt: skip
    @pytest.mark.parametrize("page", ["changelist", "export"])
    def test_invalid_query_redirects_to_the_list(
        self, admin_client: Client, query: str, page: str
    ) -> None:
        response = admin_client.get(address(page, query))
        assert response.status_code == 302
        assert response.headers["Location"] == address("changelist", "?e=1")
        assert admin_client.get(response.headers["Location"]).status_code == 200

    @pytest.mark.parametrize("query", ["?hits__gt=1", "?user_agent__contains=x", "?id=1"])
    def test_lookup_is_rejected_when_no_index_serves_it(
        self, admin_client: Client, query: str
    ) -> None:
        assert admin_client.get(address("changelist", query)).status_code == 400

    def test_list_is_always_ordered_by_time(self, admin_client: Client) -> None:
        now = timezone.now()
        for i, hits in enumerate((5, 9, 1)):
            save(identifier=str(i), hits=hits, minute=now - timedelta(minutes=i))
        assert listed(admin_client, "?o=-8") == ["0", "1", "2"]

    def test_drill_down_links_to_days_and_hours(self, admin_client: Client) -> None:
        now = timezone.localtime()
        save(identifier="now")
        save(identifier="before", minute=now - timedelta(days=3))
        dates = get(admin_client, "changelist", "?axis=ip").context["cl"].drill_down
        assert len(dates) == 30
        assert dates[0]["href"] == f"?axis=ip&when={now.date()}"
        assert listed(admin_client, dates[0]["href"]) == ["now"]
        assert listed(admin_client, dates[3]["href"]) == ["before"]
        hours = get(admin_client, "changelist", dates[0]["href"]).context["cl"].drill_down
        assert hours[0] == {"text": "All dates", "href": "?axis=ip"}
        assert hours[1]["chosen"]
        assert len(hours) == 2 + 24
        assert listed(admin_client, hours[2 + now.hour]["href"]) == ["now"]
        inside = (
            get(admin_client, "changelist", hours[2 + now.hour]["href"]).context["cl"].drill_down
        )
        assert [link["chosen"] for link in inside[1:]].index(True) == 1 + now.hour

    def test_time_filter_shows_the_chosen_day_or_hour(self, admin_client: Client) -> None:
        def chosen(query: str) -> list[str]:
            changelist = get(admin_client, "changelist", query).context["cl"]
            choices = changelist.time_filter.choices(changelist)
            return [str(choice["display"]) for choice in choices if choice["selected"]]

        assert chosen("") == ["All"]
        assert chosen("?when=24h") == ["Past 24 hours"]
        assert chosen("?when=2026-11-16") == ["2026-11-16"]
        assert chosen("?when=2026-11-16T13") == ["2026-11-16 13:00"]

    def test_drill_down_is_limited_by_log_days(self, admin_client: Client) -> None:
        with override_settings(SLIDING_WINDOW={"LOG_DAYS": 3}):
            assert len(get(admin_client).context["cl"].drill_down) == 3

    def test_log_is_read_only(self, client: Client, staff: User) -> None:
        one = save()
        assert get(client, "change", "", one.pk).context["has_change_permission"] is False
        for page, args in (("add", ()), ("delete", (one.pk,))):
            assert client.get(address(page, "", *args)).status_code == 403
        assert client.post(address("change", "", one.pk), {"hits": 9}).status_code == 403
        action = {"action": "delete_selected", "_selected_action": one.pk}
        client.post(address("changelist"), action)
        assert Rejection.objects.get().hits == 1

    @pytest.mark.parametrize("page", ["changelist", "export", "live", "key", "unblock", "profiles"])
    def test_page_is_forbidden_without_the_permission(self, client: Client, page: str) -> None:
        assert client.get(address(page)).status_code == 302
        client.force_login(User.objects.create_user("other", is_staff=True))
        assert client.get(address(page)).status_code == 403

    @pytest.mark.parametrize("page", ["changelist", "export", "live", "key", "profiles"])
    @pytest.mark.usefixtures("staff", "redis")
    def test_viewer_can_open_every_page(self, client: Client, page: str) -> None:
        save()
        get(client, page)

    def test_change_page_shows_all_facts(self, admin_client: Client) -> None:
        text = get(admin_client, "change", "", save(retry_after=None).pk).content.decode()
        for expected_text in (
            "120 / 1 min",
            "limit: over the limit",
            "redis: counted in Redis",
            "never",
        ):
            assert expected_text in text
        assert "203.0.113.9" in text
        assert address("live").replace("/", "/") in text

    def test_row_without_an_identifier_is_shown(self, admin_client: Client) -> None:
        one = save(identifier="", limit=None, window=None, view="", method="", reason="other")
        text = get(admin_client, "change", "", one.pk).content.decode()
        assert "Live keys of" not in text
        assert listed(admin_client) == [""]
        assert '<td class="field-where">-</td>' in get(admin_client).content.decode()

    def test_list_escapes_hostile_text(self, admin_client: Client) -> None:
        name = rejections.logged_identifier(HOSTILE)
        save(identifier=name, view="<img src=x>", profile="<i>")
        text = get(admin_client).content.decode()
        assert SHOWN in text
        assert "<img src=x>" not in text
        assert "<script>alert" not in text
        for char in "\x1b\u202e":
            assert char not in text

    def test_list_works_when_use_tz_is_false(self, admin_client: Client) -> None:
        with override_settings(USE_TZ=False):
            now = datetime.now().replace(second=0, microsecond=0)
            for i in range(101):
                save(identifier=str(i), minute=now)
            cl = get(admin_client, "changelist", f"?when={now.date()}").context["cl"]
            assert cl.summary.total == 101
            assert listed(admin_client, cl.older) == ["0"]
            assert get(admin_client).context["cl"].summary.total == 101


def hostile_addresses() -> Iterator[str]:
    texts = ["a\x00b", "%ED%A0%80", "\ufffd", "é" * 300, "'%s"]
    for text in texts:
        for name in ("profile", "axis", "reason", "source", "q", "when", "before", "e", "p", "o"):
            yield address("changelist", f"?{urlencode({name: text})}")
        yield address("changelist", f"?{urlencode({'q': text + '*'})}")
        yield address("export", f"?{urlencode({'profile': text, 'q': text})}")
        for name in ("profile", "axis", "identifier", "blocked", "cursor"):
            yield address("live", f"?{urlencode({name: text})}")
        for name in ("profile", "identifier", "when"):
            yield address("usage", f"?{urlencode({name: text})}")
        for name in ("profile", "limit", "when"):
            tried = {"profile": "login", "limit": "5/m", name: text}
            yield address("profiles", f"?{urlencode(tried)}")
        for key in (
            text,
            f"throttle:{text}:{{x}}:{text}:c60",
            f"throttle:ip:{{{text}}}:login:c60",
            f"throttle:{escape(text)}:{{{escape(text)}}}:{escape(text)}:c60",
        ):
            yield address("key", f"?{urlencode({'key': key})}")
            yield address("unblock", f"?{urlencode({'key': key})}")
    for before in ("-62135596800000000.1", "253402300799000000.1", f"0.{10**30}", f"0.-{10**30}"):
        yield address("changelist", f"?before={before}")
    for when in ("0001-01-01", "0001-01-01T00", "1970-01-01", "9998-12-31", "9999-12-31T23"):
        yield address("changelist", f"?when={when}")
        yield address("export", f"?when={when}")


@pytest.mark.parametrize(
    ("log_database", "zone", "log_identifiers"),
    [
        ("sqlite", "Pacific/Kiritimati", "plain"),
        ("sqlite", "Pacific/Midway", "hash"),
        ("postgresql", "Pacific/Midway", "plain"),
        ("mariadb", "Pacific/Kiritimati", "hash"),
    ],
    indirect=["log_database"],
)
@pytest.mark.usefixtures("log_database", "redis")
def test_no_query_string_causes_an_error(
    admin_user: User, client: Client, zone: str, log_identifiers: str
) -> None:
    save()
    client.force_login(admin_user)
    configured = {**PATIENT, "PROFILES": PROFILES, "LOG_IDENTIFIERS": log_identifiers}
    with override_settings(SLIDING_WINDOW=configured), timezone.override(zone):
        for url in hostile_addresses():
            response = client.get(url)
            assert response.status_code in (200, 302), url
            b"".join(response)


def test_profile_filter_finds_an_unprintable_name(admin_client: Client) -> None:
    save(identifier="a", profile="%1Bodd")
    assert listed(admin_client, f"?{urlencode({'profile': chr(27) + 'odd'})}") == ["a"]


def test_overflow_row_is_marked(admin_client: Client) -> None:
    one = save(identifier="", reason="overflow", source="", limit=None, window=None, view="")
    assert "(others)" in get(admin_client).content.decode()
    text = get(admin_client, "change", "", one.pk).content.decode()
    assert "overflow: beyond LOG_ROWS_PER_MINUTE, counted together" in text
    assert listed(admin_client, "?reason=overflow") == [""]


class TestSummary:
    def test_columns_are_hours_and_series_are_profiles(self, admin_client: Client) -> None:
        now = timezone.now()
        save(profile="login", hits=3)
        save(profile="login", hits=2, minute=now - timedelta(hours=2))
        save(profile="ip_public", hits=9, minute=now - timedelta(hours=2))
        save(profile="old", hits=9, minute=now - timedelta(hours=25))
        found = get(admin_client).context["cl"].summary
        assert found.total == 14
        assert [(s.name, s.total) for s in found.chart.series] == [("ip_public", 9), ("login", 5)]
        assert [sum(column) for column in found.chart.columns if any(column)] == [11, 3]
        assert len(found.chart.labels) in (24, 25)

    @pytest.mark.parametrize(
        ("length", "columns"),
        [("1h", {60, 61}), ("24h", {24, 25}), ("7d", {7, 8})],
    )
    def test_columns_fit_the_span(
        self, admin_client: Client, length: str, columns: set[int]
    ) -> None:
        save()
        found = get(admin_client, "changelist", f"?when={length}").context["cl"].summary
        assert len(found.chart.labels) in columns
        assert found.total == 1

    def test_summary_covers_the_filtered_rows(self, admin_client: Client) -> None:
        save(identifier="acme", hits=3)
        save(identifier="other", hits=4)
        found = get(admin_client, "changelist", "?q=acme").context["cl"].summary
        assert found.total == 3
        assert [(o.identifier, o.hits) for o in found.offenders] == [("acme", 3)]

    def test_offenders_have_the_most_hits_and_an_identifier(self, admin_client: Client) -> None:
        for i in range(8):
            save(identifier=f"10.0.0.{i}", hits=i + 1)
        save(identifier="10.0.0.3", hits=50, method="POST")
        save(identifier="", hits=500)
        found = get(admin_client).context["cl"].summary.offenders
        assert [(o.identifier, o.hits) for o in found][:2] == [("10.0.0.3", 54), ("10.0.0.7", 8)]
        assert len(found) == summary.OFFENDERS

    def test_profiles_beyond_the_colours_share_a_series(self, admin_client: Client) -> None:
        for i in range(12):
            save(profile=f"p{i:02}", hits=100 - i)
        series = get(admin_client).context["cl"].summary.chart.series
        assert len(series) == 8
        assert (series[-1].name, series[-1].total) == ("others", 93 + 92 + 91 + 90 + 89)

    def test_observed_requests_are_apart_from_the_refused_ones(self, admin_client: Client) -> None:
        for i in range(9):
            save(profile=f"p{i}", identifier="refused")
        for reason in (decisions.OBSERVED, decisions.OBSERVED_PENALTY):
            save(profile="p0", identifier="admitted", reason=reason, hits=50)
        found = get(admin_client).context["cl"].summary
        assert found.total == 9
        assert [o.identifier for o in found.offenders] == ["refused"] * summary.OFFENDERS
        assert [series.total for series in found.chart.series] == [1] * 6 + [3, 100]
        assert found.chart.series[-1].name == "only observed"
        found = get(admin_client, "changelist", "?reason=observe").context["cl"].summary
        assert (found.total, len(found.offenders), len(found.chart.series)) == (0, 0, 1)

    def test_summary_is_partial_when_the_log_is_busy(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(spans, "MOST_ROWS", 5)
        minute = timezone.now().replace(second=0, microsecond=0)
        for i in range(8):
            save(minute=minute - timedelta(minutes=i), identifier=str(i))
        # In a time zone where it is noon, because the page of profiles only reads rows of today.
        with timezone.override(timezone.get_fixed_timezone(60 * (12 - minute.hour))):
            response = get(admin_client)
            profiles = get(admin_client, "profiles")
            found = response.context["cl"].summary
            since = f"refusals after {formatting.minute(found.since)}"
        assert found.total == 5
        assert found.since == minute - timedelta(minutes=4)
        assert f"The log has too many rows: the chart only shows {since}." in (
            response.content.decode()
        )
        assert f"The log has too many rows: only {since} are counted." in profiles.content.decode()

    def test_summary_of_a_minute_has_one_column(self) -> None:
        now = times.now()
        found = summary.summarize(
            Rejection.objects.all(), times.Span(now - timedelta(minutes=1), now)
        )
        assert len(found.chart.labels) == 1

    @pytest.mark.parametrize(("days", "label"), [(1, "14:00"), (5, "Oct 25")])
    def test_hits_are_in_their_column_when_the_clocks_change(self, days: int, label: str) -> None:
        zone = zoneinfo.ZoneInfo("Europe/Berlin")
        with timezone.override(zone):
            # On that day the clocks were set back, between 0:00 and 3:00.
            day = datetime(2026, 10, 25, tzinfo=zone)
            save(minute=day.replace(hour=14 if days == 1 else 23, minute=30))
            span = times.Span(day + timedelta(days=1 - days), day + timedelta(days=1))
            chart = summary.summarize(Rejection.objects.all(), span).chart
        hits = dict(zip(chart.labels, chart.series[0].values, strict=True))
        assert {name for name, value in hits.items() if value} == {label}

    @pytest.mark.parametrize(
        ("text", "hours", "labels"),
        [
            # The clocks were set forward, and 2:00 was missing.
            ("2026-03-29", 23, ["00:00", "01:00", "03:00", "04:00"]),
            ("2026-03-29T02", 0, []),
            # They were set back, and 2:00 came twice.
            ("2026-10-25", 25, ["00:00", "01:00", "02:00", "02:00"]),
            ("2026-10-25T02", 2, ["02:00", "02:05", "02:10", "02:15"]),
        ],
    )
    def test_columns_are_equally_long_when_the_clocks_change(
        self, text: str, hours: int, labels: list[str]
    ) -> None:
        with timezone.override("Europe/Berlin"):
            span = times.parse_span(text)
            for number in range(60 * hours):
                save(minute=span.start + timedelta(minutes=number))
            chart = summary.summarize(Rejection.objects.all(), span).chart
        assert chart.labels[:4] == labels
        assert len(set(chart.columns)) == min(1, hours)

    def test_day_begins_at_midnight_in_time_zone_when_use_tz_is_false(self) -> None:
        midnight = datetime(2026, 11, 15, 15, tzinfo=datetime_timezone.utc)  # in Tokyo
        with (
            override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo"),
            timezone.override("Pacific/Honolulu"),
        ):
            for minute in (-1, 0, 13 * 60 + 5, 24 * 60 - 1, 24 * 60):
                moment = midnight + timedelta(minutes=minute)
                save(minute=rejections.moment(moment.timestamp()))
            day = summary.summarize(Rejection.objects.all(), times.parse_span("2026-11-16")).chart
            span = times.parse_span("2026-11-16T13")
            one_hour = summary.summarize(Rejection.objects.all(), span).chart
        assert day.labels == [f"{hour:02}:00" for hour in range(24)]
        assert list(day.rows) == [("00:00", (1,)), ("13:00", (1,)), ("23:00", (1,))]
        assert list(one_hour.rows) == [("13:05", (1,))]


class TestExport:
    def lines(self, response: Any) -> list[list[str]]:
        return list(csv.reader(io.StringIO(response.getvalue().decode())))

    def test_export_has_the_filtered_rows(self, admin_client: Client) -> None:
        save(identifier="a", limit=None, hits=12)
        save(identifier="b", profile="login")
        response = get(admin_client, "export", "?profile=ip_public")
        header, *found = self.lines(response)
        assert response.headers["Content-Type"].startswith("text/csv")
        assert "attachment" in response.headers["Content-Disposition"]
        assert [dict(zip(header, line, strict=True))["identifier"] for line in found] == ["a"]
        one = dict(zip(header, found[0], strict=True))
        assert (one["limit"], one["hits"], one["window"]) == ("", "12", "60.0")
        assert datetime.fromisoformat(one["minute"]) == Rejection.objects.get(hits=12).minute
        assert "digest" not in header

    @pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff20"])
    def test_cell_is_never_a_formula(self, start: str) -> None:
        assert export.cell(f"{start}cmd|' /C calc'!A0") == f"'{start}cmd|' /C calc'!A0"
        assert export.cell("a=b") == "a=b"
        assert export.cell(-1.5) == "-1.5"

    @pytest.mark.parametrize("separator", [",", ";", "\t"])
    @pytest.mark.parametrize(
        "text",
        [
            "=1+1",
            "a;=1+1",
            "a; =1+1",
            'a;"=1+1"',
            'a";"=1+1',
            "a;;@SUM(1)",
            "a\t=1+1",
            "a\r\n=1+1",
            "a;\uff1d1",
            '";',
            "a,;-1",
        ],
    )
    def test_export_has_no_formula_with_any_separator(
        self, admin_client: Client, separator: str, text: str
    ) -> None:
        save(identifier=text, view=text, user_agent=text)
        save(identifier=text, view=text, user_agent=text)
        exported = get(admin_client, "export").getvalue().decode()
        cells = [
            cell
            for line in csv.reader(io.StringIO(exported, newline=""), delimiter=separator)
            for cell in line
        ]
        assert [cell for cell in cells if re.match(r"""[\s"]*[=+\-@\uff1d]""", cell)] == []

    def test_cell_keeps_a_usual_user_agent(self) -> None:
        usual = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
        assert export.cell(usual) == usual

    def test_export_reads_chunks_up_to_a_bound(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(export, "CHUNK", 10)
        for i in range(25):
            save(identifier=str(i))
        newest = [str(i) for i in reversed(range(25))]
        column = export.COLUMNS.index("identifier")
        whole = self.lines(get(admin_client, "export"))[1:]
        assert [line[column] for line in whole] == newest
        monkeypatch.setattr(export, "MAX_ROWS", 25)
        assert self.lines(get(admin_client, "export"))[1:] == whole
        monkeypatch.setattr(export, "MAX_ROWS", 15)
        *cut, note = self.lines(get(admin_client, "export"))[1:]
        assert [line[column] for line in cut] == newest[:15]
        assert note == ["Only the newest 15 rows are exported."]

    @pytest.mark.django_db(transaction=True)
    async def test_export_streams_under_asgi(self, async_client: AsyncClient) -> None:
        user = await User.objects.acreate(username="a", is_staff=True, is_superuser=True)
        await async_client.aforce_login(user)
        await Rejection.objects.abulk_create([row(identifier="a"), row(identifier="b")])
        response = await async_client.get(address("export"))
        assert isinstance(response.asgi_request, ASGIRequest)
        assert response.is_async
        text = b"".join([part async for part in response]).decode()
        assert len(text.splitlines()) == 3


def block(identifier: str = "203.0.113.9", count: int = 3) -> str:
    """Use up the limit of `login`, and return the key of the window that refuses."""
    for _ in range(count):
        decision = limits.check("login", identifier)
    assert not decision.allowed
    return decision.verdicts[0].key


@pytest.fixture
def redis_down(settings: Any) -> None:
    settings.CACHES = {
        "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1"}
    }


@pytest.mark.usefixtures("redis")
class TestLive:
    def rows(self, client: Client, query: str = "") -> list[Any]:
        return list(get(client, "live", query).context["rows"])

    def test_live_page_lists_blocked_windows_first(self, admin_client: Client) -> None:
        limits.check("tenant_free", "acme")
        block()
        found = self.rows(admin_client)
        assert [(r.identifier, r.state.window, r.state.blocked) for r in found] == [
            ("203.0.113.9", 60.0, True),
            ("203.0.113.9", 3600.0, False),
            ("acme", 86400.0, False),
        ]
        # However long a slow machine took since the block began.
        assert re.fullmatch(r"1 min( 1 s)?|[1-5]?\d s", found[0].release)
        assert found[1].release == ""
        text = get(admin_client, "live").content.decode()
        assert found[0].unblock_url.replace("&", "&amp;") in text

    @pytest.mark.parametrize(
        ("query", "count"),
        [
            ("?profile=login", 2),
            ("?axis=tenant", 1),
            ("?identifier=203.0.113.9", 2),
            ("?identifier=203.*", 2),
            ("?identifier=nobody", 0),
            ("?blocked=1", 1),
            ("?profile=login&axis=tenant", 0),
        ],
    )
    def test_live_page_applies_the_search(
        self, admin_client: Client, query: str, count: int
    ) -> None:
        limits.check("tenant_free", "acme")
        block()
        assert len(self.rows(admin_client, query)) == count

    def test_cursor_pages_through_all_keys(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(live, "KEYS_PER_PAGE", 20)
        monkeypatch.setattr(live, "KEYS_PER_SCAN", 10)
        names = {f"t{i}" for i in range(90)}
        for name in names:
            limits.check("tenant_free", name)
        seen: list[str] = []
        query, pages = "?axis=tenant", 0
        while query:
            context = get(admin_client, "live", query).context
            seen += [r.identifier for r in context["rows"]]
            query = context["more"].partition("/live/")[2]
            pages += 1
        assert set(seen) == names
        assert pages > 2

    def test_search_is_partial_when_nothing_was_found_in_time(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(live, "KEYS_PER_SCAN", 10)
        monkeypatch.setattr(live, "MAX_SCANS", 2)
        for i in range(200):
            limits.check("tenant_free", f"t{i}")
        response = get(admin_client, "live", "?blocked=1")
        assert response.context["rows"] == []
        assert "blocked=1" in response.context["more"]
        text = response.content.decode()
        assert "Nothing found so far." in text
        assert f"This page is partial: {response.context['seen']} keys were examined" in text
        assert 20 <= int(response.context["seen"]) < 200
        # The server has examined them as well if no key matches.
        assert 20 <= int(get(admin_client, "live", "?axis=ip").context["seen"]) < 200

    def test_search_continues_on_the_next_page_when_time_is_up(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(live, "KEYS_PER_SCAN", 10)
        monkeypatch.setattr(live, "MAX_SECONDS", 0.0)
        for i in range(100):
            limits.check("tenant_free", f"t{i}")
        key = block()
        query, pages, found = "?blocked=1", 0, []
        while query:
            context = get(admin_client, "live", query).context
            assert int(context["seen"]) < 100
            found += [r.state.key for r in context["rows"]]
            query = context["more"].partition("/live/")[2]
            pages += 1
        assert pages > 3
        assert found == [key]

    def test_complete_search_is_not_partial(self, admin_client: Client) -> None:
        block()
        assert "partial" not in get(admin_client, "live", "?blocked=1").content.decode()

    def test_blocked_search_reads_only_hits_of_other_windows(
        self, admin_client: Client, redis: Any
    ) -> None:
        for i in range(30):
            limits.check("tenant_free", f"t{i}")
        block()
        redis.config_resetstat()
        assert len(self.rows(admin_client, "?blocked=1")) == 1
        # Redis 6.2 counts MEMORY USAGE as MEMORY.
        stats = redis.info("commandstats")
        calls = [stats[name]["calls"] for name in stats if name.startswith("cmdstat_memory")]
        assert calls == [1]

    @pytest.mark.parametrize("query", ["?profile=gone", "?cursor=x", "?profile=broken"])
    def test_live_page_shows_the_problem_when_the_search_is_invalid(
        self, admin_client: Client, query: str
    ) -> None:
        response = get(admin_client, "live", query)
        assert response.context["problem"]
        assert response.context["problem"] in html.unescape(response.content.decode())

    def test_key_page_shows_hits_and_rejections(self, admin_client: Client) -> None:
        key = block()
        save(identifier="203.0.113.9", scope="login", view="login/")
        save(identifier="203.0.113.9", scope="other", view="elsewhere/")
        response = get(admin_client, "key", f"?key={key}")
        assert response.context["chart"].series[0].total == 2
        text = response.content.decode()
        assert "login/" in text
        assert "elsewhere/" not in text
        assert "released in" in text

    def test_key_page_shows_that_a_limit_of_0_never_ends(self, admin_client: Client) -> None:
        key = block()
        closed = {"login": {"axis": "ip", "rates": ["0/m", "0/h"]}}
        with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": closed}):
            text = get(admin_client, "key", f"?key={key}").content.decode()
        assert "yes, permanently" in text
        assert "released in" not in text

    def test_window_is_not_blocked_when_only_observed(self, admin_client: Client) -> None:
        watched = {"watched": {"axis": "tenant", "rate": "2/h", "mode": "observe"}}
        with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": watched}):
            for _ in range(3):
                limits.check("watched", "acme")
            (one,) = self.rows(admin_client)
            assert "only observed" in get(admin_client, "live").content.decode()
            text = admin_client.get(one.key_url).content.decode()
            assert "but the profile only observes" in text
            question = admin_client.get(one.unblock_url).content.decode()
            answer = admin_client.post(one.unblock_url, follow=True).content.decode()
        assert "released in" not in text
        assert "Yes, reset" in question
        assert "Unblocked: acme. 1 window was deleted." in answer

    def test_leased_hits_are_shown(self, admin_client: Client) -> None:
        profiles = {"leased": {"axis": "tenant", "rate": "10000/d", "lease": 1_000}}
        with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": profiles}):
            for _ in range(2):
                limits.check("leased", "acme")
            assert "(4 leased)" in get(admin_client, "live").content.decode()
            (one,) = self.rows(admin_client)
            text = admin_client.get(one.key_url).content.decode()
            assert "<dt>Leased, at most</dt><dd>4</dd>" in text
            assert "compact, lease 1,000" in get(admin_client, "profiles").content.decode()

    def test_requests_in_flight_are_shown(self, admin_client: Client) -> None:
        profiles = {"slots": {"axis": "tenant", "inflight": 1, "hold": "1h"}}
        with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": profiles}):
            with limits.hold("slots", "acme"):
                text = get(admin_client, "live").content.decode()
                (one,) = self.rows(admin_client)
                assert re.search(r"\(in flight for [\d.]+ m?s\)", text)
                assert "when a request ends" in text
                text = admin_client.get(one.key_url).content.decode()
                assert "yes, until a request in flight ends" in text
                assert "Oldest request in flight for" in text
                assert "Oldest hit leaves in" not in text
                assert "1 in flight, slots" in text
                # An override may admit no requests at all.
                assert replace(one, state=replace(one.state, retry_after=None)).release == "never"
            assert self.rows(admin_client) == []
            text = get(admin_client, "profiles").content.decode()
            assert "1 in flight" in text
            assert ">hold 1 h<" in text
        row = Rejection(limit=5, window=3600.0, algorithm="slots")
        assert formatting.policy(row) == "5 in flight"

    def test_rejection_by_slots_has_no_wait(self, admin_client: Client) -> None:
        save(limit=5, window=3600.0, algorithm="slots", retry_after=0.0)
        save(limit=5, window=3600.0, algorithm="slots", retry_after=7.0)
        texts = re.findall(r'field-wait">([^<]*)<', get(admin_client).content.decode())
        assert sorted(texts) == ["7 s", "when a request ends"]

    def test_hits_chart_places_hits_by_age(self) -> None:
        state = inspection.KeyState(
            key="k", axis="ip", identifier="x", scope="s", algorithm="log", window=60.0,
            profile=None, limit=None, hits=6, remaining=None, use=None, blocked=False,
            observed=False, retry_after=0.0, reset_after=1.0, ttl=None, bytes=None,
        )  # fmt: skip
        values = live._hits_chart(state, [(60.0, 1), (30.5, 2), (0.0, 3)]).series[0].values
        assert {i: n for i, n in enumerate(values) if n} == {0: 1, 29: 2, 59: 3}

    @pytest.mark.parametrize("key", ["", "other:key", "throttle:ip:{nobody}:login:c60"])
    def test_key_page_says_that_there_is_no_window(self, admin_client: Client, key: str) -> None:
        text = get(admin_client, "key", f"?key={key}").content.decode()
        assert "There is no such window" in text

    def test_window_without_a_profile_is_shown(self, admin_client: Client, redis: Any) -> None:
        limits.check("tenant_free", "acme")
        redis.rename("throttle:tenant:{acme}:tenant_free:c86400", "throttle:t:{acme}:x:c86400")
        (one,) = self.rows(admin_client)
        assert one.state.profile is None
        assert "no limit" in one.meter
        get(admin_client, "key", "?key=throttle:t:{acme}:x:c86400")
        assert admin_client.post(one.unblock_url).status_code == 302
        assert redis.keys() == []

    def test_live_pages_escape_a_hostile_identifier(self, admin_client: Client) -> None:
        limits.check("tenant_free", HOSTILE)
        (one,) = self.rows(admin_client)
        for url in (address("live"), one.key_url, one.unblock_url):
            text = admin_client.get(url).content.decode()
            assert SHOWN in text
            assert "<script>alert" not in text
            assert "\x1b" not in text
            assert "\u202e" not in text

    def test_unblock_asks_and_deletes_all_windows_of_the_profile(
        self, admin_client: Client, admin_user: User
    ) -> None:
        key = block()
        block("198.51.100.1")
        question = admin_client.get(address("unblock", f"?key={key}"))
        assert len(question.context["rows"]) == 2
        assert not limits.peek("login", "203.0.113.9").allowed
        response = admin_client.post(address("unblock", f"?key={key}"), follow=True)
        assert "Unblocked: 203.0.113.9. 2 windows" in response.content.decode()
        assert limits.check("login", "203.0.113.9").allowed
        assert not limits.peek("login", "198.51.100.1").allowed
        entries = list(LogEntry.objects.order_by("object_repr"))
        assert [entry.object_repr for entry in entries] == [key.replace("c60", "c3600"), key]
        assert {(entry.user_id, entry.action_flag) for entry in entries} == {
            (admin_user.pk, CHANGE)
        }
        assert entries[0].get_change_message() == "Unblocked. Hits deleted: 2."
        assert entries[0].get_admin_url() is None
        assert key in admin_client.get(reverse("admin:index")).content.decode()

    def test_history_hashes_the_identifier_when_the_log_does(self, admin_client: Client) -> None:
        with override_settings(
            SLIDING_WINDOW={**PATIENT, "PROFILES": PROFILES, "LOG_IDENTIFIERS": "hash"},
        ):
            key = block()
            admin_client.post(address("unblock", f"?key={key}"))
            expected = f"throttle:ip:{{{keyed_hash('203.0.113.9')}}}:login:c60"
            assert LogEntry.objects.filter(object_repr=expected).count() == 1
            assert not LogEntry.objects.filter(object_repr__contains="203.0.113.9").exists()

    @pytest.mark.parametrize("window", ["c60", "c3600"])
    def test_unblock_deletes_all_windows_of_a_long_identifier(
        self, admin_client: Client, redis: Any, window: str
    ) -> None:
        name = "i" * 190 + "é" * 10
        key = block(name).replace("c60", window)
        assert len(redis.keys()) == 2
        response = admin_client.post(address("unblock"), query_params={"key": key}, follow=True)
        assert "2 windows were deleted" in response.content.decode()
        assert redis.keys() == []
        assert limits.check("login", name).allowed

    def test_row_of_a_long_identifier_links_to_its_live_keys(
        self, admin_client: Client, redis: Any
    ) -> None:
        name = "\x1b" + "i" * 200
        key = block(name)
        ((group, tally),) = rejections.refusals(None, limits.peek("login", name), 0.0)
        one = group.row(tally)
        one.save()
        text = get(admin_client, "change", "", one.pk).content.decode()
        link = html.unescape(re.search(r'href="([^"]*/live/[^"]*identifier[^"]*)"', text)[1])
        found = admin_client.get(link).context["rows"]
        assert {r.state.key for r in found} == {key, key.replace("c60", "c3600")}
        text = get(admin_client, "key", f"?{urlencode({'key': key})}").content.decode()
        assert f"/{one.pk}/change/" in text

    def test_row_with_a_hash_has_no_link_to_live_keys(self, admin_client: Client) -> None:
        saved = save(identifier=keyed_hash("203.0.113.9"))
        assert "Live keys of this" in get(admin_client, "change", "", saved.pk).content.decode()
        with override_settings(SLIDING_WINDOW={"LOG_IDENTIFIERS": "hash"}):
            text = get(admin_client, "change", "", saved.pk).content.decode()
        # Keys have the identifier, so a search for its hash would find nothing.
        assert "Live keys of this" not in text

    def test_unblock_deletes_one_window_when_a_function_limits_a_long_identifier(
        self, admin_client: Client, redis: Any
    ) -> None:
        name = "i" * 200
        for _ in range(4):
            decision = limits.check("asked", name)
        key = decision.verdicts[0].key
        admin_client.post(address("unblock"), query_params={"key": key})
        assert redis.keys() == []

    def test_unblock_also_deletes_a_damaged_window_of_the_identifier(
        self, admin_client: Client, redis: Any
    ) -> None:
        key = block()
        damaged = key.replace(":c60", ":c3600")
        redis.set(damaged, "rubbish")
        response = admin_client.get(address("unblock"), {"key": key})
        assert [r.state.key for r in response.context["rows"]] == [key, damaged]
        admin_client.post(address("unblock"), query_params={"key": key})
        assert redis.keys() == []

    def test_unblock_deletes_nothing_when_the_window_has_no_hits(
        self, admin_client: Client, redis: Any
    ) -> None:
        key = block()
        redis.delete(key)
        response = admin_client.post(address("unblock"), query_params={"key": key}, follow=True)
        assert "There is no such window" in response.content.decode()
        assert len(redis.keys()) == 1

    def test_unblock_does_not_treat_an_identifier_as_a_pattern(self, admin_client: Client) -> None:
        for _ in range(3):
            limits.check("watched", "*")
            limits.check("watched", "acme")
        decision = limits.peek("watched", "*")
        response = admin_client.get(address("unblock"), {"key": decision.verdicts[0].key})
        assert [r.identifier for r in response.context["rows"]] == ["*"]

    def test_unblock_needs_its_own_permission(self, client: Client, staff: User) -> None:
        key = block()
        assert client.post(address("unblock", f"?key={key}")).status_code == 403
        assert "Unblock" not in get(client, "live").content.decode()
        assert "Unblock" not in get(client, "key", f"?key={key}").content.decode()
        staff.user_permissions.add(Permission.objects.get(codename="unblock"))
        assert client.post(address("unblock", f"?key={key}")).status_code == 302
        assert limits.peek("login", "203.0.113.9").allowed

    def test_unblock_needs_a_csrf_token(self, admin_user: User) -> None:
        key = block()
        client = Client(enforce_csrf_checks=True)
        client.force_login(admin_user)
        assert client.post(address("unblock", f"?key={key}")).status_code == 403
        assert not limits.peek("login", "203.0.113.9").allowed

    @pytest.mark.parametrize("method", ["get", "post"])
    def test_unblock_ignores_keys_of_other_applications(
        self, admin_client: Client, redis: Any, method: str
    ) -> None:
        redis.set("session:1", "precious")
        response = getattr(admin_client, method)(address("unblock", "?key=session:1"), follow=True)
        assert "There is no such window" in response.content.decode()
        assert redis.get("session:1") == "precious"
        assert not LogEntry.objects.exists()

    def test_unblock_mentions_the_shield_only_when_it_is_on(self, admin_client: Client) -> None:
        key = block()
        text = admin_client.get(address("unblock", f"?key={key}")).content.decode()
        assert "for up to 1 s more" in text
        own = {**PATIENT, "PROFILES": PROFILES, "SHIELD_SECONDS": 0}
        with override_settings(SLIDING_WINDOW=own):
            text = admin_client.get(address("unblock", f"?key={key}")).content.decode()
            assert "for up to" not in text


@pytest.mark.usefixtures("redis_down")
class TestWithoutRedis:
    @pytest.mark.parametrize("page", ["changelist", "export", "live", "key", "profiles"])
    def test_every_page_opens_when_redis_is_down(self, admin_client: Client, page: str) -> None:
        save(identifier="203.0.113.9", scope="login", view="login/")
        response = get(
            admin_client, page, "?key=throttle:ip:{203.0.113.9}:login:c60" * (page == "key")
        )
        if page in ("live", "key"):
            assert "Redis does not answer" in response.content.decode()
        if page == "key":
            assert "login/" in response.content.decode()

    @pytest.mark.parametrize("method", ["get", "post"])
    def test_unblock_shows_an_error_when_redis_is_down(
        self, admin_client: Client, method: str
    ) -> None:
        url = address("unblock", "?key=throttle:ip:{203.0.113.9}:login:c60")
        response = getattr(admin_client, method)(url, follow=True)
        assert response.status_code == 200
        assert "Redis does not answer" in response.content.decode()
        assert not LogEntry.objects.exists()


@pytest.mark.usefixtures("redis")
def test_live_page_keeps_results_when_redis_fails_during_the_search(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, calls = inspection.scan, []

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs)
        if len(calls) > 1:
            raise StoreError("gone")
        page = scan(*args, **kwargs)
        return inspection.Page(states=page.states, cursor="7", seen=1)

    limits.check("tenant_free", "acme")
    monkeypatch.setattr(inspection, "scan", failing)
    response = get(admin_client, "live")
    assert [r.identifier for r in response.context["rows"]] == ["acme"]
    assert "Redis does not answer" in response.content.decode()
    assert response.context["more"] == ""


class TestProfiles:
    def rows(self, client: Client) -> dict[str, Any]:
        return {r.state.name: r for r in get(client, "profiles").context["rows"]}

    def test_page_shows_policies_and_problems(self, admin_client: Client) -> None:
        text = get(admin_client, "profiles").content.decode()
        for expected_text in (
            "2 / 1 min",
            "20 / 1 h",
            "depends on the identifier",
            "observe",
            "shared",
            "many",
        ):
            assert expected_text in text

    def test_page_shows_where_profiles_are_used(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(usages, "_usages", {})
        usages.declare("shop.views.login", Requirement(("login",)))
        usages.declare("shop.views.any", Requirement(lambda request: "login"))
        found = self.rows(admin_client)
        assert found["login"].places == ["shop.views.login", "rule 1: GET ^/api/"]
        assert found["watched"].places == ["rule 1: GET ^/api/", "rule 2: all requests"]
        assert found["tenant_free"].places == []

    def test_page_shows_refusals_of_today(self, admin_client: Client) -> None:
        save(profile="login", hits=3)
        save(profile="login", hits=4, method="POST")
        save(profile="login", hits=50, minute=timezone.now() - timedelta(days=2))
        save(profile="watched", reason=decisions.OBSERVED)
        assert self.rows(admin_client)["login"].hits == 7
        assert self.rows(admin_client)["watched"].hits == 0

    def test_page_shows_refusals_of_a_profile_whose_name_the_log_escapes(
        self, admin_client: Client
    ) -> None:
        profiles = {"100%ab": {"axis": "ip", "rate": "1/m"}}
        with override_settings(SLIDING_WINDOW={"PROFILES": profiles}):
            save(profile="100%25ab", hits=3)
            assert self.rows(admin_client)["100%ab"].hits == 3

    def test_links_open_the_log_and_live_keys(self, admin_client: Client, redis: Any) -> None:
        one = self.rows(admin_client)["login"]
        assert admin_client.get(one.log_url).status_code == 200
        assert admin_client.get(one.live_url).context["filters"].profile == "login"


def test_today_is_the_day_in_time_zone_when_use_tz_is_false() -> None:
    # It is never the same day in these two time zones, which are 26 hours apart.
    zone = "Pacific/Kiritimati"
    with (
        override_settings(USE_TZ=False, TIME_ZONE=zone),
        timezone.override("Etc/GMT+12"),
    ):
        before = datetime.now(zoneinfo.ZoneInfo(zone)).date()
        found, (day, day_before) = times.today(), times.days(2)
        after = datetime.now(zoneinfo.ZoneInfo(zone)).date()
    assert found.start == datetime.combine(found.start, time())
    assert before <= found.start.date() <= after
    assert before <= day <= after
    assert day - day_before == timedelta(days=1)


def test_last_minute_of_a_day_belongs_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "now", lambda: datetime(2026, 11, 17, tzinfo=datetime_timezone.utc))
    assert times.today().start.date() == date(2026, 11, 16)
    assert times.days(2) == [date(2026, 11, 16), date(2026, 11, 15)]


def test_wait_is_never_when_there_is_no_end() -> None:
    assert [formatting.wait(seconds) for seconds in (None, 3_900)] == ["never", "1 h 5 min"]


def test_minute_accepts_naive_times() -> None:
    assert formatting.minute(datetime(2026, 11, 15, 23, 43)) == "2026-11-15 23:43"
