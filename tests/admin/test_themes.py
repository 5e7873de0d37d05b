"""The pages of the admin in a browser, with themes that replace Django's templates and styles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from tests.support.browser import next_page
from tests.support.content_security import errors
from tests.support.demo import Demo

pytestmark = pytest.mark.xdist_group("browser")

SETTINGS = "tests.support.sites.theme_settings"
LOG = "/admin/django_slidingwindow/rejection/"
OVERRIDES = "/admin/django_slidingwindow/override/"
KEY = "?key=throttle:ip:{127.0.0.1}:login:c60"
# How each theme is switched between light and dark.
SCHEMES = {
    "unfold": "document.documentElement.classList.toggle('dark', arguments[0] === 'dark')",
    "jazzmin": "document.documentElement.dataset.bsTheme = arguments[0]",
}
# The elements that have no size, or too little contrast to what is behind them.
UNREADABLE = """
const contrast = (first, second) => {
  const [a, b] = [first, second].map(([r, g, b]) => 0.2126 * r ** 2.2 + 0.7152 * g ** 2.2
    + 0.0722 * b ** 2.2).map((light) => light / 255 ** 2.2 + 0.05).sort();
  return b / a;
};
const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const seen = (element, property, below) => {
  canvas.fillStyle = `rgb(${below})`;
  canvas.fillRect(0, 0, 1, 1);
  canvas.fillStyle = getComputedStyle(element)[property];
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const behind = (element) =>
  element ? seen(element, "backgroundColor", behind(element.parentElement)) : [255, 255, 255];
return [...document.querySelectorAll(arguments[0])]
  .filter((element) => element.textContent.trim() || element.value)
  .filter((element) => !element.closest(".visually-hidden, details:not([open]), option"))
  .filter((element) => {
    const { width, height } = element.getBoundingClientRect();
    const back = behind(element);
    return !width || !height || contrast(seen(element, "color", back), back) < 3;
  })
  .map((element) => element.outerHTML.slice(0, 200));
"""
TEXTS = """.sw-drill a, .sw-summary h2, .sw-panel h2, .sw-legend li, .sw-table th, .sw-table td,
.sw-table a, .sw-tool a, .sw-pages a, .sw-title, .sw-subtitle, .sw-facts dt, .sw-facts dd, .sw-note,
.sw-button, .sw-search label, .sw-search input, .sw-buttons input, .errornote, .readonly,
.form-row label, .form-row input, .form-row select"""
# The fields of a form that have no visible border.
WITHOUT_BORDER = """
return [...document.querySelectorAll("form .vTextField, form .vDateField, form .vTimeField")]
  .filter((field) => parseFloat(getComputedStyle(field).borderTopWidth) < 1)
  .map((field) => field.name);
"""


class Operator:
    """A logged-in user at an admin with a theme."""

    def __init__(self, browser: WebDriver, demo: Demo, theme: str) -> None:
        self.browser, self.demo, self.theme = browser, demo, theme
        login = demo.url + "/admin/login/?next=" + LOG
        browser.get(login)
        # Delete the session of the previous test.
        browser.delete_all_cookies()
        browser.get(login)
        browser.find_element(By.NAME, "username").send_keys("demo")
        self.leave(browser.find_element(By.NAME, "password"), demo.password + Keys.ENTER)

    def leave(self, element: Any, keys: str = "") -> None:
        """Click the element or type into it, and wait for the next page."""
        with next_page(self.browser):
            element.send_keys(keys) if keys else element.click()

    def open(self, path: str) -> None:
        self.browser.get(self.demo.url + LOG + path)

    def open_overrides(self, path: str = "") -> None:
        self.browser.get(self.demo.url + OVERRIDES + path)

    def all(self, selector: str) -> list[Any]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def look(self, name: str) -> None:
        """Assert that the page can be read and fits, light and dark."""
        for scheme in ("light", "dark"):
            self.browser.execute_script(SCHEMES[self.theme], scheme)
            self.browser.execute_script("for (const a of document.getAnimations()) a.finish()")
            if folder := os.environ.get("TEST_SCREENSHOTS"):
                file = Path(folder) / f"{self.theme}-{name}-{scheme}.png"
                self.browser.save_screenshot(str(file))
            assert self.browser.execute_script(UNREADABLE, TEXTS) == [], (name, scheme)
        page = "const page = document.documentElement; return page.scrollWidth - page.clientWidth"
        assert self.browser.execute_script(page) <= 0, name
        for picture in self.all("svg.sw-chart, svg.sw-meter"):
            assert picture.size["width"] > 40, name
            assert picture.size["height"] >= 10, name
        assert errors(self.browser) == []


@pytest.fixture(scope="module", params=sorted(SCHEMES))
def theme(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def demo(theme: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp(theme)
    with Demo(folder, DJANGO_SETTINGS_MODULE=SETTINGS, THEME=theme) as running:
        yield running


@pytest.fixture
def operator(chromium: WebDriver, demo: Demo, theme: str) -> Operator:
    return Operator(chromium, demo, theme)


def test_operator_reads_the_log_and_unblocks_a_client(operator: Operator) -> None:
    for _ in range(6):
        refused = operator.demo.get("/api/login/", username="demo", password="?")
    assert refused.status == 429

    operator.open("")
    assert len(operator.all("svg.sw-chart rect")) > 50
    operator.look("list")
    operator.leave(operator.all("#result_list tbody th a")[0])
    assert operator.all(".readonly a[href*='/live/']")
    operator.look("rejection")

    operator.browser.back()
    operator.leave(operator.all(".sw-tool a[href*='/live/']")[0])
    operator.look("live")
    operator.all("input[name=blocked]")[0].click()
    operator.leave(operator.all(".sw-search input[type=submit]")[0])
    operator.leave(operator.all("#live-keys th a")[0])
    operator.look("key")
    operator.leave(operator.all("a.sw-button")[0])
    assert operator.all(".sw-subtitle")[0].text == "127.0.0.1"
    operator.look("unblock")
    operator.leave(operator.all(".sw-buttons input")[0])
    assert "Unblocked: 127.0.0.1. 3 windows were deleted." in operator.browser.page_source

    operator.open(f"key/{KEY}")
    assert operator.all(".errornote")[0].text == "There is no such window: it has no hits."
    operator.look("no-key")
    operator.open("profiles/")
    operator.look("profiles")


def test_operator_adds_and_ends_an_override(operator: Operator) -> None:
    operator.open_overrides()
    operator.look("overrides")
    operator.leave(operator.all("a[href*='/override/add/']")[-1])
    operator.look("override-add")
    assert operator.browser.execute_script(WITHOUT_BORDER) == []

    operator.open_overrides("add/?profile=login&identifier=127.0.0.1&action=block")
    operator.leave(operator.all("[name=_continue]")[0])
    operator.look("override-change")
    assert operator.browser.execute_script(WITHOUT_BORDER) == []
    refused = operator.demo.get("/api/login/", username="demo", password="?")
    assert refused.status == 429
    operator.leave(operator.all("[name=_end]")[0])
    assert operator.demo.get("/api/login/", username="demo", password="?").status == 401

    operator.open("profiles/")
    operator.all("#profiles summary")[0].click()
    operator.look("profiles-override")
    operator.browser.set_window_size(500, 900)
    operator.open("")
    operator.look("list-narrow")
    operator.open_overrides()
    operator.look("overrides-narrow")
    operator.browser.set_window_size(1500, 1300)
