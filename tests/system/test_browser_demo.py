"""The live page of the example project in a real browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.content_security import errors
from tests.support.demo import Demo

pytestmark = pytest.mark.xdist_group("demo")

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
DESKTOP = {"width": 1280, "height": 1240, "deviceScaleFactor": 1, "mobile": False}
# Requests around the edge of a window: ten before it, ten after it, one much later.
MODEL = """
const [done] = arguments;
import("/static/live/model.js").then(({ fixedWindow, trailing, steps, summary }) => {
  const times = [...Array(10).fill(9700), ...Array(10).fill(10300), 25000];
  const requests = times.map((at) => ({ at, cost: 1 }));
  const fixed = fixedWindow(requests, 10, 10000);
  const exact = requests.map((request, i) => i < 10 || i == 20);
  done({
    fixed: summary(requests, fixed, 10000),
    exact: summary(requests, exact, 10000),
    left: trailing([{ at: 0, cost: 1 }, { at: 10000, cost: 1 }], [true, true], 10000),
    steps: steps([{ at: 0, cost: 2 }, { at: 4, cost: 1 }], [true, true], 10),
    dear: fixedWindow([{ at: 1, cost: 3 }, { at: 2, cost: 3 }, { at: 3, cost: 2 }], 5, 10),
  });
});
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("demo")) as started:
        yield started


class Visitor:
    """A browser at the live page."""

    def __init__(self, browser: WebDriver, url: str) -> None:
        self.browser = browser
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", DESKTOP)
        browser.get(url)
        self.wait_for("#said", "Ready")

    def text(self, selector: str) -> str:
        return self.browser.find_element(By.CSS_SELECTOR, selector).text

    def all(self, selector: str) -> list[Any]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def number(self, selector: str) -> int:
        return int(self.text(selector))

    def click(self, selector: str) -> None:
        self.browser.find_element(By.CSS_SELECTOR, selector).click()

    def wait_for(self, selector: str, text: str) -> None:
        message = f"{selector} never said {text!r}"
        # The page may change between finding the element and reading it.
        gone = [StaleElementReferenceException]
        waiting = WebDriverWait(self.browser, 40, 0.05, ignored_exceptions=gone)
        waiting.until(lambda _: text in self.text(selector), message)

    def choose(self, name: str, value: str) -> None:
        self.click(f"input[name={name}][value='{value}']")
        self.wait_for("#said", "Ready")

    def header(self, name: str) -> str:
        return self.text(f"#headers dt[data-name='{name}'] + dd")

    def take_screenshots(self, name: str) -> None:
        """Save screenshots of all themes and sizes to the folder TEST_SCREENSHOTS, if it is set."""
        folder = os.environ.get("TEST_SCREENSHOTS")
        sizes = {"": DESKTOP, "phone-": PHONE} if folder else {}
        for prefix, size in sizes.items():
            self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            for theme in ("light", "dark"):
                feature = {"name": "prefers-color-scheme", "value": theme}
                self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
                self.browser.save_screenshot(f"{Path(folder or '')}/{name}-{prefix}{theme}.png")
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", DESKTOP)


@pytest.fixture
def visitor(chromium: WebDriver, demo: Demo) -> Iterator[Visitor]:
    yield Visitor(chromium, demo.url)
    # The browser logs each refusal as an error. Any other error fails the test.
    assert [error for error in errors(chromium) if "status of 429" not in error] == []


def test_one_request_is_shown_with_the_headers_of_its_response(visitor: Visitor) -> None:
    visitor.click("#one")
    visitor.wait_for("#said", "1 sent, 1 admitted, 0 refused.")
    assert visitor.text("#status") == "200 OK"
    assert visitor.header("RateLimit") == '"live_compact_10";r=9;t=10'
    assert visitor.header("RateLimit-Remaining") == visitor.text("#remaining") == "9"
    assert visitor.text("#source") == "redis"
    assert len(visitor.all("#sliding .mark.admitted")) == 1
    assert len(visitor.all("#log tbody tr")) == 1


def test_refusal_shows_when_to_retry(visitor: Visitor) -> None:
    for _ in range(3):
        visitor.click("#ten")
        visitor.wait_for("#said", "10 sent, 10 admitted")
        visitor.click("#ten")
        visitor.wait_for("#said", "come back in")
        if "10 refused" in visitor.text("#said"):
            break
        # A busy machine may take longer than the window: try again.
        visitor.click("#again")
        visitor.wait_for("#said", "Ready")
    assert "10 refused, come back in" in visitor.text("#said")
    assert visitor.text("#status") == "429 Too Many Requests"
    assert 1 <= int(visitor.header("Retry-After")) <= 10
    assert visitor.text("#retry").startswith("Retry-After: come back in")
    assert visitor.text("#remaining") == "0"
    assert visitor.number("#sliding-passed") == visitor.number("#sliding-refused") == 10
    assert len(visitor.all("#sliding .mark.refused")) == 10
    assert visitor.text("#source") in ("redis", "shield")


def test_burst_across_an_edge_passes_only_a_fixed_window(
    visitor: Visitor,
) -> None:
    for _ in range(5):
        visitor.click("#again")
        visitor.wait_for("#said", "Ready")
        visitor.click("#burst")
        visitor.wait_for("#said", "Around the edge: 20 sent, 10 admitted, 10 refused")
        assert visitor.number("#sliding-most") == 10
        # A slow machine may miss the edge.
        if visitor.number("#fixed-passed") == 20:
            break
    visitor.take_screenshots("burst")
    assert visitor.number("#fixed-passed") == visitor.number("#fixed-most") == 20
    assert not visitor.all(".numbers .over #sliding-most")
    assert visitor.all(".numbers .over #fixed-most")


@pytest.mark.parametrize("algorithm", ["log", "buckets", "counter"])
def test_algorithm_limit_and_cost_can_be_switched(visitor: Visitor, algorithm: str) -> None:
    visitor.choose("algorithm", algorithm)
    visitor.choose("limit", "5")
    visitor.click("input[name=cost][value='2']")
    for _ in range(3):
        visitor.click("#ten")
        visitor.wait_for("#said", "10 sent, ")
        if "2 admitted, 8 refused" in visitor.text("#said"):
            break
        # A busy machine may take longer than the window: try again.
        visitor.click("#again")
        visitor.wait_for("#said", "Ready")
    assert "10 sent, 2 admitted, 8 refused" in visitor.text("#said")
    assert visitor.header("RateLimit-Policy") == f'"live_{algorithm}_5";q=5;w=5'
    assert visitor.text("#remaining") == "1"


def test_limit_on_requests_in_flight_can_be_switched_on(visitor: Visitor) -> None:
    visitor.choose("in_flight", "on")
    for _ in range(3):
        visitor.click("#ten")
        visitor.wait_for("#said", "10 sent, ")
        if "3 admitted, 7 refused" in visitor.text("#said"):
            break
        # A slow browser may send some requests after the first ones have ended: try again.
        visitor.click("#again")
        visitor.wait_for("#said", "Ready")
    assert "10 sent, 3 admitted, 7 refused." in visitor.text("#said")
    policies = visitor.header("RateLimit-Policy")
    assert policies == '"live_compact_10";q=10;w=10, "live_in_flight";q=3;qu="concurrent-requests"'
    # The slots are free again, and the rate has counted the admitted requests.
    visitor.click("#one")
    visitor.wait_for("#said", "1 sent, 1 admitted")
    assert visitor.text("#remaining") == "6"
    visitor.choose("in_flight", "")
    visitor.click("#ten")
    visitor.wait_for("#said", "10 sent, 10 admitted")


def test_start_over_empties_the_window(visitor: Visitor) -> None:
    visitor.click("#ten")
    visitor.wait_for("#said", "10 sent")
    visitor.click("#again")
    visitor.wait_for("#said", "Ready")
    visitor.click("#one")
    visitor.wait_for("#said", "1 sent, 1 admitted")
    assert visitor.text("#remaining") == "9"
    assert visitor.number("#sliding-passed") == 1


def test_no_request_fails_while_redis_is_unplugged(visitor: Visitor) -> None:
    visitor.click("#plug")
    visitor.wait_for("#said", "The plug is pulled")
    assert visitor.text("#server") == "stopped"
    visitor.click("#ten")
    visitor.wait_for("#said", "10 sent, 10 admitted, 0 refused")
    visitor.click("#one")
    visitor.wait_for("#said", "1 sent, 0 admitted, 1 refused")
    assert visitor.text("#source") == "local"
    visitor.wait_for("#breaker", "open")
    assert len(visitor.all("#sliding .mark.admitted.local")) == 10
    visitor.take_screenshots("plug")

    visitor.browser.refresh()
    visitor.wait_for("#said", "Ready")
    assert visitor.text("#plug") == "Put the plug back", "the state survives a reload"
    visitor.click("#plug")
    visitor.wait_for("#said", "Redis runs again")

    def answered_by_redis(_: WebDriver) -> bool:
        visitor.click("#one")
        visitor.wait_for("#said", "1 sent")
        return visitor.text("#source") == "redis"

    WebDriverWait(visitor.browser, 30, 0.3).until(answered_by_redis)
    assert visitor.text("#breaker").startswith("closed")


def test_page_works_by_keyboard_alone(visitor: Visitor) -> None:
    one = visitor.browser.find_element(By.ID, "one")
    visitor.browser.execute_script("arguments[0].focus()", one)
    one.send_keys(Keys.ENTER)
    visitor.wait_for("#said", "1 sent")
    active = visitor.browser.switch_to.active_element
    for _ in range(4):
        active.send_keys(Keys.TAB)
        active = visitor.browser.switch_to.active_element
    assert active.get_attribute("name") == "algorithm"
    active.send_keys(Keys.ARROW_RIGHT)
    visitor.wait_for("#algorithm-means", "ordinary Redis tools")


def test_page_fits_a_phone(visitor: Visitor) -> None:
    visitor.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    script = "return document.documentElement.scrollWidth - window.innerWidth"
    assert visitor.browser.execute_script(script) <= 0


def test_page_of_a_refusal_keeps_its_style_under_the_policy(visitor: Visitor, demo: Demo) -> None:
    for _ in range(10):  # Two requests fill the window, unless the machine is very slow.
        visitor.browser.get(f"{demo.url}/live/hit/?cost=5")
        if visitor.browser.title == "Too many requests":
            break
    assert visitor.text("h1") == "Too many requests"
    main = visitor.browser.find_element(By.TAG_NAME, "main")
    assert main.rect["y"] > 300, "in the middle of the page"
    visitor.take_screenshots("refusal")


def test_numbers_of_both_windows_are_correct(visitor: Visitor) -> None:
    found = visitor.browser.execute_async_script(MODEL)
    assert found["fixed"] == {"passed": 21, "refused": 0, "most": 20}
    assert found["exact"] == {"passed": 11, "refused": 10, "most": 10}
    assert found["left"] == [1, 1], "a hit expires after one window"
    assert found["steps"] == [[0, 2], [4, 3], [10, 1], [14, 0]]
    assert found["dear"] == [True, False, True]


def test_demo_admin_shows_a_day_of_refusals(visitor: Visitor, demo: Demo) -> None:
    browser = visitor.browser
    browser.find_element(By.LINK_TEXT, "Admin").click()
    visitor.wait_for("body", "Password")
    browser.find_element(By.NAME, "username").send_keys("demo")
    browser.find_element(By.NAME, "password").send_keys(demo.password + Keys.ENTER)
    visitor.wait_for("#content", "Most refused")
    assert len(visitor.all("svg.sw-chart rect")) > 50
    assert {"acme", "192.0.2.66"} <= {link.text for link in visitor.all(".sw-offenders a")}
    visitor.take_screenshots("admin")
