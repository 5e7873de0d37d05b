"""A real browser to test pages with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.needs import CHROMIUM, require, which

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run
--disable-background-networking --disable-component-update --disable-sync
--window-size=1500,1300""".split()


@pytest.fixture(scope="module")
def chromium() -> Iterator[WebDriver]:
    """Chromium without a window, with a profile of its own."""
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
