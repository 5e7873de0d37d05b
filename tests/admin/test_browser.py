"""The admin in a real browser, as an operator uses it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import override_settings
from django.urls import reverse
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from django_slidingwindow import limits
from django_slidingwindow.models import Rejection, Usage
from tests.support.browser import next_page
from tests.support.content_security import errors, strict
from tests.support.rejection_factories import row
from tests.support.usage_factories import usage_row

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("browser")]

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egnp.exe"
WIDTHS = (1500, 800, 400)
PROFILES = {
    "login": {"axis": "ip", "rates": ["5/m", "20/h"]},
    "tenant_free": {"axis": "tenant", "rate": "100/d"},
    "reports": {"axis": "tenant", "rate": "4/m", "mode": "observe", "algorithm": "log"},
    "stripe": {"axis": "tenant", "rates": ["100/m", "20000/d"], "log": "all"},
}


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    """Configure profiles and a strict Content Security Policy."""
    policy = strict(settings.MIDDLEWARE)
    # A large budget: a busy machine must not look like an outage.
    limits_of_site = {"PROFILES": PROFILES, "LATENCY_BUDGET": 5.0}
    with override_settings(SLIDING_WINDOW=limits_of_site, **policy):
        yield


@pytest.fixture(scope="session")
def live_server(django_db_setup: None) -> Iterator[LiveServer]:
    """Return a server with the middleware of the policy, which is loaded when the server starts."""
    with override_settings(**strict(settings.MIDDLEWARE)):
        server = LiveServer("localhost")
    yield server
    server.stop()


class Operator:
    """A logged-in user at the browser."""

    def __init__(self, browser: WebDriver, server: str, user: User, client: Any) -> None:
        self.browser = browser
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.server = server
        client.force_login(user)
        browser.get(server + "/admin/login/")
        browser.delete_all_cookies()
        browser.add_cookie({"name": "sessionid", "value": client.cookies["sessionid"].value})

    def open(self, page: str, query: str = "", *, seen_as: str = "") -> None:
        name = f"admin:django_slidingwindow_rejection_{page}"
        self.browser.get(self.server + reverse(name) + query)
        self.look(seen_as or page)

    def look(self, name: str) -> None:
        """Assert that nothing failed. With TEST_SCREENSHOTS, save every width and theme there."""
        assert errors(self.browser) == []
        folder = os.environ.get("TEST_SCREENSHOTS")
        for width in WIDTHS if folder else ():
            self._picture(Path(str(folder)) / name, width)

    def resize(self, width: int) -> None:
        """Set the width, even below that of a window. The next test resets it."""
        self.browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 1300, "deviceScaleFactor": 1, "mobile": False},
        )

    def _picture(self, path: Path, width: int) -> None:
        self.resize(width)
        for theme in ("light", "dark"):
            # Finish transitions, so that no picture is taken while colours change.
            self.browser.execute_script(
                """document.documentElement.dataset.theme = arguments[0];
                for (const running of document.getAnimations()) running.finish();""",
                theme,
            )
            self.browser.save_screenshot(str(path.with_name(f"{path.name}-{width}-{theme}.png")))
        self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    @property
    def text(self) -> str:
        return self.browser.find_element(By.ID, "content").text

    def all(self, selector: str) -> list[Any]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def click(self, text: str) -> None:
        """Follow the link with this text."""
        self.follow(self.browser.find_element(By.LINK_TEXT, text))

    def follow(self, element: Any) -> None:
        """Click, and wait for the next page."""
        with next_page(self.browser):
            element.click()


@pytest.fixture
def operator(
    chromium: WebDriver, live_server: LiveServer, client: Any, admin_user: User
) -> Operator:
    return Operator(chromium, live_server.url, admin_user, client)


@pytest.fixture
def viewer(chromium: WebDriver, live_server: LiveServer, client: Any) -> Operator:
    user = User.objects.create_user("viewer", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_rejection"))
    return Operator(chromium, live_server.url, user, client)


@pytest.fixture
def log() -> None:
    """Fill the log with a day of refusals."""
    now = timezone.now().replace(second=0, microsecond=0)
    rows = [
        row(
            minute=now - timedelta(minutes=17 * i),
            profile=profile,
            scope=profile,
            identifier=who,
            axis="tenant" if profile == "tenant_free" else "ip",
            hits=1 + (i * 7919) % (40 + 3 * len(who)),
        )
        for i in range(84)
        for profile, who in (
            ("login", f"203.0.113.{i % 7}"),
            ("tenant_free", ("acme", "umbrella", "initech")[i % 3]),
            ("ip_public", f"2001:db8:{i % 5}::/64"),
        )
        if (i + len(who)) % 3
    ]
    rows.append(row(identifier=HOSTILE.replace("\x1b", "%1B").replace("\u202e", "%E2%80%AE")))
    Rejection.objects.bulk_create(rows)


@pytest.fixture
def usage_log() -> None:
    """Fill the usage log with a day of three tenants. Some requests of one tenant were refused."""
    now = timezone.now().replace(second=0, microsecond=0)
    stored = HOSTILE.replace("\x1b", "%1B").replace("\u202e", "%E2%80%AE")
    Usage.objects.bulk_create(
        usage_row(
            profile="stripe",
            identifier=who,
            minute=now - timedelta(minutes=i),
            hits=1 + (i * 7919 + len(who)) % size,
        )
        for i in range(0, 1_400, 3)
        for who, size in (("acme", 100), ("globex", 30), (stored, 7))
    )
    Rejection.objects.bulk_create(
        row(profile="stripe", identifier="acme", minute=now - timedelta(minutes=i), hits=i % 40)
        for i in range(9, 600, 21)
    )


@pytest.fixture
def blocked(redis: Any) -> None:
    """Block 203.0.113.9 in `login`. Other identifiers have hits, but are not blocked."""
    for _ in range(7):
        limits.check("login", "203.0.113.9")
    for count, who in ((99, "acme"), (60, "umbrella"), (7, HOSTILE)):
        for _ in range(count):
            limits.check("tenant_free", who)
    for _ in range(5):
        limits.check("reports", "acme")


@pytest.mark.usefixtures("log", "redis")
def test_log_shows_a_chart_and_links_to_offenders(operator: Operator) -> None:
    operator.open("changelist")
    assert len(operator.all("svg.sw-chart rect")) > 50
    chart = operator.all("svg.sw-chart")[0]
    assert chart.accessible_name == "Rejections over time, by profile"
    assert chart.size["height"] > 100
    assert "Most refused" in operator.text
    assert not operator.all("#content script")
    offender = operator.all(".sw-offenders tbody a")[0]
    name = offender.text
    operator.follow(offender)
    assert {cell.text for cell in operator.all("td.field-who")} == {name}
    operator.look("offender")
    operator.follow(operator.all("th.field-at a")[0])
    assert "Live keys of this identifier" in operator.text
    operator.look("rejection")


@pytest.mark.usefixtures("redis")
def test_browser_enforces_the_content_security_policy(operator: Operator) -> None:
    operator.open("changelist")
    operator.browser.execute_script("document.body.innerHTML = '<p style=\"color: red\">'")
    assert any("Content Security Policy" in error for error in errors(operator.browser))


@pytest.mark.usefixtures("log", "redis")
def test_log_filters_by_profile_and_hour(operator: Operator) -> None:
    operator.open("changelist")
    operator.click("tenant_free")
    assert {cell.text for cell in operator.all("td.field-profile")} == {"tenant_free"}
    today = timezone.localtime()
    operator.click(f"{today:%b} {today.day}")
    operator.look("day")
    operator.click("00:00")
    assert len(operator.all(".sw-drill [aria-current]")) == 1


@pytest.mark.usefixtures("log", "blocked")
def test_operator_finds_and_unblocks_a_client(operator: Operator) -> None:
    operator.open("changelist")
    operator.follow(operator.all(".object-tools a[href*='/live/']")[0])
    operator.look("live")
    operator.all("input[name=blocked]")[0].click()
    operator.follow(operator.all(".sw-search input[type=submit]")[0])
    assert {cell.text for cell in operator.all("#live-keys th[scope=row]")} >= {"203.0.113.9"}
    operator.click("203.0.113.9")
    assert "released in" in operator.text
    assert operator.all("svg.sw-chart rect")
    operator.look("key")
    operator.click("Unblock…")
    operator.look("unblock")
    operator.follow(operator.all(".submit-row input")[0])
    assert "Unblocked: 203.0.113.9. 2 windows were deleted." in operator.browser.page_source
    operator.look("unblocked")
    assert limits.peek("login", "203.0.113.9").remaining == 4
    assert LogEntry.objects.filter(object_repr__contains="{203.0.113.9}").count() == 2


@pytest.mark.usefixtures("log", "redis")
def test_operator_blocks_a_client_from_its_live_key(operator: Operator, blocked: None) -> None:
    key = limits.peek("login", "203.0.113.9").key
    operator.open("key", f"?key={key}", seen_as="key-buttons")
    operator.click("Block")
    operator.look("override-form")
    operator.browser.find_element(By.NAME, "note").send_keys("scraper")
    operator.follow(operator.browser.find_element(By.NAME, "_save"))
    operator.look("overrides")
    assert "203.0.113.9" in operator.text
    decision = limits.check("login", "203.0.113.9")
    assert (decision.reason, decision.retry_after) == ("block", None)
    operator.open("key", f"?key={key}", seen_as="key-overridden")
    assert "Override\nblock" in operator.text
    operator.click("Overrides")
    operator.click("203.0.113.9")
    operator.look("override-edit")
    operator.follow(operator.browser.find_element(By.NAME, "_end"))
    assert limits.check("login", "203.0.113.9").reason == "limit"


def test_profiles_page_shows_the_configuration(operator: Operator) -> None:
    operator.open("profiles")
    assert "5 / 1 min" in operator.text
    assert "observe" in operator.text
    (table,) = operator.all(".sw-scroll")
    hidden = "return arguments[0].scrollWidth - arguments[0].clientWidth"
    assert operator.browser.execute_script(hidden, table) <= 0
    operator.all("#profiles summary")[0].click()
    operator.click("Exempt for an hour")
    chosen = operator.browser.find_element(By.NAME, "profile").get_attribute("value")
    assert chosen == "endpoint_expensive"


@pytest.mark.usefixtures("log", "blocked")
@pytest.mark.parametrize("width", WIDTHS)
def test_only_tables_scroll_sideways(operator: Operator, width: int) -> None:
    operator.resize(width)
    key = "?key=throttle:ip:{203.0.113.9}:login:c60"
    for page in ("changelist", "live", "profiles", "key" + key, "unblock" + key):
        name, mark, query = page.partition("?")
        operator.browser.get(
            operator.server + reverse(f"admin:django_slidingwindow_rejection_{name}") + mark + query
        )
        needed, there = operator.browser.execute_script(
            "const page = document.documentElement; return [page.scrollWidth, page.clientWidth]"
        )
        assert needed <= there, page
        for chart in operator.all("svg.sw-chart"):
            around = chart.find_element(By.XPATH, "..")
            assert chart.size["width"] <= around.size["width"], page


@pytest.mark.usefixtures("redis")
@pytest.mark.parametrize("width", WIDTHS)
def test_buttons_of_a_rejection_do_not_cover_its_name(operator: Operator, width: int) -> None:
    found = row(profile="login", identifier="a-long-tenant.with-a-long-name.example.com" * 3)
    found.save()
    operator.resize(width)
    page = reverse("admin:django_slidingwindow_rejection_change", args=[found.pk])
    operator.browser.get(operator.server + page)
    name, buttons = operator.all("#content h2")[0].rect, operator.all(".object-tools")[0].rect
    above = name["y"] + name["height"] <= buttons["y"]  # Django 5.2
    beside = name["x"] + name["width"] <= math.ceil(buttons["x"])  # Django 6.1; widths are whole
    assert above or beside, (name, buttons)


@pytest.mark.usefixtures("log", "blocked")
def test_viewer_can_change_nothing(viewer: Operator) -> None:
    viewer.open("live", seen_as="viewer-live")
    assert "203.0.113.9" in viewer.text
    assert not viewer.all("a[href*='unblock']")
    viewer.browser.get(
        viewer.server + reverse("admin:django_slidingwindow_rejection_unblock") + "?key=x"
    )
    assert "403 Forbidden" in viewer.browser.page_source
    errors(viewer.browser)  # the 403 itself
    for page in ("changelist", "profiles"):
        viewer.open(page, seen_as=f"viewer-{page}")
        assert not viewer.all("#content form[method=post] input[type=submit]")


@pytest.mark.usefixtures("log")
def test_all_pages_open_when_redis_is_down(operator: Operator, settings: Any) -> None:
    settings.CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
        }
    }
    operator.open("changelist", seen_as="down-changelist")
    assert operator.all("svg.sw-chart rect")
    operator.open("profiles", seen_as="down-profiles")
    operator.open("key", "?key=throttle:ip:{203.0.113.3}:login:c60", seen_as="down-key")
    assert "Redis does not answer" in operator.text
    assert operator.all("#rejections tbody tr")
    operator.open("live", seen_as="down-live")
    assert "Redis does not answer" in operator.text


@pytest.mark.usefixtures("log", "blocked")
def test_pages_escape_a_hostile_identifier(operator: Operator) -> None:
    for page, query in (("changelist", "?q=<*"), ("live", "?axis=tenant&identifier=<*")):
        operator.open(page, query, seen_as=f"hostile-{page}")
        assert "<script>alert(1)</script>%1B[31m%E2%80%AEgnp.exe" in operator.text


@pytest.mark.usefixtures("usage_log", "redis")
def test_usage_of_a_profile_links_to_an_identifier_over_time(viewer: Operator) -> None:
    viewer.open("usage", seen_as="usage-profile")
    assert viewer.all("select[name=profile] option:checked")[0].text == "stripe"
    assert [cell.text for cell in viewer.all("#windows tbody th")] == [
        "100 / 1 min",
        "20,000 / 1 d",
    ]
    assert not viewer.all("#content script")
    viewer.follow(viewer.all("#busiest a")[0])
    assert viewer.all("h2.sw-subtitle")[0].text == "acme"
    lines = viewer.all("line.sw-limit")
    assert len(lines) == 2
    assert lines[0].value_of_css_property("stroke-dasharray") == "6px, 4px"
    viewer.look("usage-identifier")
    viewer.open("usage", "?profile=stripe&identifier=acme&when=7d", seen_as="usage-week")
    viewer.resize(400)
    assert not viewer.browser.execute_script(
        "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
    )


@pytest.mark.usefixtures("usage_log", "redis")
def test_what_if_answers_on_the_page_of_profiles(viewer: Operator) -> None:
    viewer.open("profiles")
    viewer.follow(viewer.all("#profiles a[href*='profile=stripe'][href$='#what-if']")[0])
    viewer.all("#what-if input[name=limit]")[0].send_keys("50/m")
    viewer.follow(viewer.all("#what-if input[type=submit]")[0])
    answer = viewer.all("#answer")[0].text
    assert "50 / 1 min" in answer
    assert "What the logs cannot tell:" in viewer.text
    assert not viewer.all("#content script")
    viewer.look("what-if")
    viewer.open("profiles", "?profile=stripe&limit=many&when=1h", seen_as="what-if-error")
    assert viewer.all("#what-if [role=alert]")
