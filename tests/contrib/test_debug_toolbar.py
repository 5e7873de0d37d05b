"""The panel of django-debug-toolbar, on real requests and once in a real browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.test import AsyncClient, Client, override_settings
from django.test.testcases import LiveServerThread
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from django_slidingwindow.signals import limit_checked
from tests.support.installed_apps import installed

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

    from tests.support.servers import RedisServer

PANEL = "django_slidingwindow.contrib.debug_toolbar.RateLimitPanel"
HISTORY = "debug_toolbar.panels.history.HistoryPanel"
MIDDLEWARE = "django_slidingwindow.middleware.RateLimitMiddleware"
URLS = "tests.support.sites.toolbar_urls"
LIMITS: dict[str, Any] = {
    # A large budget: a busy machine must not look like an outage.
    "LATENCY_BUDGET": 5.0,
    "PROFILES": {
        "site": {"axis": "ip", "rate": "100/m"},
        "narrow": {"axis": "ip", "rate": "2/m"},
        "watched": {"axis": "ip", "rate": "1/h", "mode": "observe"},
        "partner": {"axis": "tenant", "rate": "5/m"},
        "members": {"axis": "user", "rate": "5/m", "anonymous": "skip"},
        "key": {"axis": "header:X-API-Key", "rate": "5/m"},
        "later": {"axis": "ip", "rate": "9/m", "mode": "deferred"},
        "free": {"axis": "ip", "rate": lambda identifier, request: None},
        "broken": {"axis": "tenant", "rate": "5/m"},
    },
    "IDENTITIES": {"tenant": lambda request: 1 // 0},
    "LOG": False,
}


@pytest.fixture
def toolbar(redis: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set up a site that shows the toolbar to clients on this host."""
    # Not by override_settings, because the toolbar must find this setting when it is installed.
    monkeypatch.setattr(settings, "DEBUG_TOOLBAR_PANELS", [HISTORY, PANEL], raising=False)
    with (
        installed("debug_toolbar"),
        override_settings(
            DEBUG=True,
            ALLOWED_HOSTS=["*"],
            INTERNAL_IPS=["127.0.0.1"],
            MIDDLEWARE=["debug_toolbar.middleware.DebugToolbarMiddleware", *settings.MIDDLEWARE],
            ROOT_URLCONF=URLS,
            SLIDING_WINDOW=LIMITS,
        ),
    ):
        yield


def with_rules(**options: Any) -> Any:
    return override_settings(
        MIDDLEWARE=[*settings.MIDDLEWARE, MIDDLEWARE],
        SLIDING_WINDOW={**LIMITS, "RULES": [{"path": "^/", "profiles": ["site"]}], **options},
    )


def stats_of(response: Any) -> dict[str, Any]:
    """Return the values that the panel has recorded, from the toolbar's store."""
    from debug_toolbar.toolbar import StoredDebugToolbar

    stored = StoredDebugToolbar.from_store(response.headers["djdt-request-id"])
    stats: dict[str, Any] = stored.get_panel_by_id("RateLimitPanel").get_stats()
    return stats


def shown_of(response: Any) -> str:
    """Return the text of the panel, as the browser loads it."""
    query = {"request_id": response.headers["djdt-request-id"], "panel_id": "RateLimitPanel"}
    content: str = Client().get("/__debug__/render_panel/", query).json()["content"]
    return unescape(content)


@pytest.mark.usefixtures("toolbar")
def test_panel_shows_one_check_of_deferred_and_other_profiles() -> None:
    with with_rules(RULES=[{"path": "^/", "profiles": ["later", "site"]}]):
        stats = stats_of(Client().get("/"))
    (check,) = stats["checks"]
    assert {row["profile"] for row in check["rows"]} == {"later", "site"}
    assert check["ms"] == stats["ms"] > 0
    assert stats["asked"] == 1


@pytest.mark.usefixtures("toolbar")
def test_panel_shows_checks_and_what_requires_them() -> None:
    with with_rules():
        response = Client().get("/decorated/")
        stats = stats_of(response)
        shown = shown_of(response)
    (check,) = stats["checks"]
    assert (check["source"], check["reason"], check["refused"]) == ("redis", "allowed", False)
    assert check["ms"] == stats["ms"] > 0
    assert stats["asked"] == 1
    rows = {row.pop("profile"): row for row in check["rows"]}
    assert rows["site"] == {
        "why": "RULES[0]",
        "axis": "ip",
        "identifier": "127.0.0.1",
        "key": "throttle:ip:{127.0.0.1}:site:c60",
        "policy": "100 / 1 min",
        "limit": 100,
        "remaining": 99,
        "retry_after": "",
        "outcome": "allowed",
    }
    assert rows["narrow"]["why"].startswith("rate_limit at tests.support.sites.toolbar_urls:")
    assert rows["narrow"]["why"] == rows["watched"]["why"]
    for text in ("RULES[0]", "127.0.0.1", "100 / 1 min", "throttle:ip:{127.0.0.1}:site:c60"):
        assert text in shown
    assert "RateLimitPanel_redis;dur=" in response.headers["Server-Timing"]


@pytest.mark.usefixtures("toolbar")
def test_panel_shows_window_source_and_wait_of_a_refusal() -> None:
    client = Client()
    admitted, observed, refused, shielded = [client.get("/decorated/") for _ in range(4)]
    assert [r.status_code for r in (admitted, observed, refused)] == [200, 200, 429]
    outcomes = {row["profile"]: row["outcome"] for row in stats_of(observed)["checks"][0]["rows"]}
    assert outcomes == {"narrow": "allowed", "watched": "would be refused (observe)"}
    (check,) = stats_of(refused)["checks"]
    assert (check["source"], check["reason"], check["refused"]) == ("redis", "limit", True)
    assert check["rows"][0]["retry_after"].endswith(("s", "min"))
    assert check["rows"][0]["outcome"] == "refused"
    assert shielded.status_code == 429


@pytest.mark.usefixtures("toolbar")
def test_panel_shows_that_the_shield_decided_without_redis() -> None:
    client = Client()
    answers = [client.get("/chosen/") for _ in range(4)]
    stats = stats_of(answers[-1])
    assert (stats["asked"], stats["ms"], stats["refused"]) == (0, 0, True)
    (check,) = stats["checks"]
    assert (check["source"], check["ms"]) == ("shield", None)
    assert check["rows"][0]["why"].startswith("rate_limit at ")
    assert "Refused" in shown_of(answers[-1])


@pytest.mark.usefixtures("toolbar")
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("/drf/", "ProfileThrottle at tests.support.sites.toolbar_urls:"),
        ("/drf/view/", "ProfileThrottle, rate_limit_profiles of the view"),
        ("/ninja/orders", "ProfileThrottle at tests.support.sites.toolbar_urls:"),
    ],
)
def test_panel_names_throttles(url: str, why: str) -> None:
    (check,) = stats_of(Client().get(url))["checks"]
    assert check["rows"][0]["why"].startswith(why)


@pytest.mark.usefixtures("toolbar")
def test_panel_shows_calls_of_limits() -> None:
    with with_rules():
        stats = stats_of(Client().get("/calling/"))
    rule, call = stats["checks"]
    assert rule["rows"][0]["why"] == "RULES[0]"
    assert call["rows"][0]["why"] == "a call of limits"
    assert call["rows"][0]["identifier"] == "acme"
    assert stats["asked"] == 2


@pytest.mark.usefixtures("toolbar")
async def test_panel_shows_checks_of_async_requests() -> None:
    stats = stats_of(await AsyncClient().get("/async/"))
    decorated, call = stats["checks"]
    assert decorated["rows"][0]["profile"] == "narrow"
    assert call["rows"][0]["profile"] == "partner"
    assert stats["asked"] == 2


@pytest.mark.usefixtures("toolbar")
@pytest.mark.parametrize(
    ("url", "options", "note"),
    [
        ("/decorated/", {"EXEMPT": ["127.0.0.1"]}, "the setting EXEMPT covers it"),
        ("/exempt/", {}, "it has rate_limit_exempt"),
        ("/decorated/", {"ENABLED": False}, "ENABLED is False"),
        ("/no such path/", {"RULES": []}, "No limit was checked."),
        ("/posted/", {"RULES": []}, "No limit was checked."),
    ],
)
def test_panel_says_why_a_request_has_no_limits(url: str, options: Any, note: str) -> None:
    with with_rules(**options):
        response = Client().get(url)
        assert stats_of(response)["checks"] == []
        assert note in shown_of(response)


@pytest.mark.usefixtures("toolbar")
def test_panel_says_that_only_later_limits_do_not_apply() -> None:
    """The view logs in a user that EXEMPT covers."""
    with with_rules(EXEMPT=["staff"], RULES=[]):
        response = Client().get("/logging-in/")
        (check,) = stats_of(response)["checks"]
        assert check["rows"][0]["profile"] == "narrow"
        assert "The later limits of this request do not apply" in shown_of(response)
        assert "is not limited" not in shown_of(response)


@pytest.mark.usefixtures("toolbar")
@pytest.mark.parametrize(
    ("url", "status", "outcome"),
    [
        ("/anonymous/", 200, "not counted: no identifier"),
        ("/free/", 200, "allowed"),
        ("/broken/", 503, "refused"),
    ],
)
def test_panel_has_a_row_for_a_profile_without_windows(url: str, status: int, outcome: str) -> None:
    response = Client().get(url)
    assert response.status_code == status
    ((row,),) = [check["rows"] for check in stats_of(response)["checks"]]
    assert row["outcome"] == outcome
    assert row["why"].startswith("rate_limit at ")
    assert row["axis"]


@pytest.mark.usefixtures("toolbar")
def test_panel_shows_a_check_once_when_it_was_refunded() -> None:
    check, of_the_view = stats_of(Client().get("/refunded/"))["checks"]
    assert of_the_view["rows"][0]["profile"] == "partner"
    assert check["ms"] > 0
    assert (check["rows"][0]["remaining"], check["rows"][0]["outcome"]) == (2, "allowed")


@pytest.mark.usefixtures("toolbar")
def test_panel_shows_secrets_only_as_a_hash() -> None:
    response = Client().get("/key/", headers={"X-API-Key": "hunter2"})
    ((row,),) = [check["rows"] for check in stats_of(response)["checks"]]
    assert row["identifier"]
    assert "hunter2" not in shown_of(response)


@pytest.mark.usefixtures("toolbar")
def test_panel_shows_an_outage(fresh_server: RedisServer) -> None:
    fresh_server.kill()
    caches = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}}
    with override_settings(CACHES=caches, SLIDING_WINDOW={**LIMITS, "FALLBACK": "allow"}):
        stats = stats_of(Client().get("/decorated/"))
    (check,) = stats["checks"]
    assert (check["source"], check["refused"]) == ("allow", False)
    assert check["error"]
    assert {row["profile"] for row in check["rows"]} == {"narrow", "watched"}


@pytest.mark.usefixtures("toolbar")
def test_panel_is_connected_only_when_the_toolbar_records() -> None:
    heard: list[int] = import_module(URLS).LISTENERS
    heard.clear()
    for address in ("127.0.0.1", "203.0.113.9"):
        Client(REMOTE_ADDR=address).get("/plain/")
    before = len(limit_checked.receivers)
    assert heard == [before + 1, before]


@pytest.mark.usefixtures("toolbar")
def test_panel_connects_once_when_it_is_enabled_twice() -> None:
    from django_slidingwindow.contrib.debug_toolbar import RateLimitPanel

    panel = RateLimitPanel(None, None)
    before = len(limit_checked.receivers)
    panel.enable_instrumentation()
    panel.enable_instrumentation()
    assert len(limit_checked.receivers) == before + 1
    panel.disable_instrumentation()
    panel.disable_instrumentation()
    assert len(limit_checked.receivers) == before


# From version 7 on, the toolbar is in a shadow DOM.
FIND = """const root = document.getElementById("djDebugRoot");
return (root ? root.shadowRoot : document).querySelector("#djDebug:not(.djdt-hidden)");"""


@contextmanager
def served() -> Iterator[str]:
    """Serve the site with its current settings and static files, and yield its address."""
    server = LiveServerThread("127.0.0.1", StaticFilesHandler)
    server.start()
    server.is_ready.wait()
    assert server.error is None
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.terminate()


@pytest.mark.usefixtures("toolbar")
@pytest.mark.xdist_group("browser")
def test_panel_works_in_a_browser(chromium: WebDriver) -> None:
    with with_rules(), served() as site:
        for _ in range(3):
            chromium.get(f"{site}/decorated/")
        wait = WebDriverWait(chromium, 20)
        shown = wait.until(lambda browser: browser.execute_script(FIND))
        shown.find_element(By.CSS_SELECTOR, "a.RateLimitPanel").click()
        panel = shown.find_element(By.CSS_SELECTOR, "#RateLimitPanel")
        wait.until(lambda browser: "narrow" in panel.text)
    for text in ("Refused", "RULES[0]", "127.0.0.1", "throttle:ip:{127.0.0.1}:narrow:c60"):
        assert text in panel.text
    errors = [entry["message"] for entry in chromium.get_log("browser")]
    assert [error for error in errors if "favicon" not in error and "429" not in error] == []
    folder = os.environ.get("TEST_SCREENSHOTS")
    for theme in ("light", "dark") if folder else ():
        chromium.execute_script("arguments[0].dataset.theme = arguments[1]", shown, theme)
        chromium.save_screenshot(str(Path(str(folder)) / f"toolbar-{theme}.png"))
