"""An override made in the admin, in a real browser, applies in all processes of a site."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.support.browser import next_page
from tests.support.servers.redis import HOST, free_port, wait_until

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

    from tests.support.servers import RedisServer

pytestmark = pytest.mark.xdist_group("browser")

ROOT = Path(__file__).parent.parent.parent
SITE = "tests.support.sites.overrides"
# Two of gunicorn and one of uvicorn.
PROCESSES = 3
# Seconds until an override applies everywhere: the default of OVERRIDES_SECONDS.
PROMISED = 2.0
# Further seconds for a busy machine, on which a process may read overrides late.
PATIENCE = 1.0
CREATE = f"""
import {SITE}
from django.core.management import call_command
from django.contrib.auth.models import User
call_command("migrate", verbosity=0)
User.objects.create_superuser("admin", password="admin")
"""


class Answer(NamedTuple):
    """A response, the process that sent it, and the time of the request."""

    asked: float
    process: str
    status: int


class Site:
    """gunicorn with two workers and uvicorn with one, on one database."""

    def __init__(self, redis_url: str, folder: Path) -> None:
        database = str(folder / "db.sqlite3")
        environment = {**os.environ, "SITE_REDIS_URL": redis_url, "SITE_DATABASE": database}
        subprocess.run([sys.executable, "-c", CREATE], cwd=ROOT, env=environment, check=True)
        self.ports = [free_port(), free_port()]
        commands = [
            f"gunicorn {SITE} --workers 2 --threads 4 --bind {HOST}:{self.ports[0]}",
            f"uvicorn {SITE}:asgi_application --host {HOST} --port {self.ports[1]}",
        ]
        self._started = [
            subprocess.Popen(
                [sys.executable, "-m", *command.split(), "--log-level", "error"],
                cwd=ROOT,
                env=environment,
            )
            for command in commands
        ]
        self._processes: set[str] = set()
        wait_until(self._all_answer, "all processes answer", 60)

    def _all_answer(self) -> bool:
        try:
            self._processes.update(answer.process for answer in self.ask())
        except OSError:
            return False
        return len(self._processes) == PROCESSES

    def ask(self) -> list[Answer]:
        """Send requests to both servers. They may not reach every worker of gunicorn."""
        return [self._get(port) for port in (*self.ports, *self.ports[:1] * 3)]

    def _get(self, port: int) -> Answer:
        asked = time.monotonic()
        connection = http.client.HTTPConnection(HOST, port, timeout=30)
        connection.request("GET", "/")
        response = connection.getresponse()
        response.read()
        connection.close()
        assert response.headers["X-Queries"] == "0", "a request sent a query"
        return Answer(asked, response.headers["X-Process"], response.status)

    def assert_obeys(self, status: int) -> None:
        """Assert that each process responds with this status within the promised time."""
        saved = time.monotonic()
        obeying: set[str] = set()
        while obeying != self._processes:
            for answer in self.ask():
                if answer.status == status:
                    obeying.add(answer.process)
                else:
                    assert answer.process not in obeying, "a process returned to the old state"
                    assert answer.asked < saved + PROMISED + PATIENCE, "a process is late"

    def close(self) -> None:
        for process in self._started:
            process.terminate()
        for process in self._started:
            process.wait()


@pytest.fixture
def site(chromium: WebDriver, redis_server: RedisServer, tmp_path: Path) -> Iterator[Site]:
    site = Site(redis_server.url, tmp_path)
    yield site
    site.close()


def test_override_made_in_a_browser_applies_in_all_processes_without_queries(
    chromium: WebDriver, site: Site
) -> None:
    from selenium.webdriver.common.by import By

    def click(selector: str) -> None:
        with next_page(chromium):
            chromium.find_element(By.CSS_SELECTOR, selector).click()

    admin = f"http://{HOST}:{site.ports[0]}/admin"
    chromium.get(f"{admin}/login/")
    for field in ("username", "password"):
        chromium.find_element(By.NAME, field).send_keys("admin")
    click("[type=submit]")
    chromium.get(f"{admin}/django_slidingwindow/override/add/?profile=site&action=block")
    click("[name=_continue]")
    site.assert_obeys(429)
    click("[name=_end]")
    site.assert_obeys(200)
