"""A headless Chromium to test pages with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.suite.needs import CHROMIUM, require, which

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run
--disable-background-networking --disable-component-update --disable-sync
--window-size=1500,1300""".split()


@pytest.fixture(scope="module")
def chromium() -> Iterator[WebDriver]:
    """A headless Chromium with an empty profile."""
    require(CHROMIUM)
    browser, driver = map(which, CHROMIUM.programs)
    from selenium import webdriver

    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        started = webdriver.Chrome(options, webdriver.ChromeService(driver))
        try:
            yield started
        finally:
            started.quit()


@contextmanager
def next_page(browser: WebDriver) -> Iterator[None]:
    """Wait at the end of the block for the page that a click inside the block opens."""
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.support.wait import WebDriverWait

    browser.execute_script("window.leaving = true")
    yield
    # The driver may fail while one page replaces the other.
    waiting = WebDriverWait(browser, 20, 0.1, ignored_exceptions=[WebDriverException])
    waiting.until(lambda driver: driver.execute_script(_LOADED))


_LOADED = "return !window.leaving && document.readyState === 'complete'"
