"""How soon all processes of a site obey an override that is made in the admin, in a browser.

`PYTHONPATH=scripts python -m benchmarks.overrides` starts Redis, gunicorn with two workers and
uvicorn with one, on one SQLite database. It saves overrides in Chromium, asks every process until
it obeys, and prints the longest time of each, from the click on the button. It fails if a request
sends a query, or if it takes longer than OVERRIDES_SECONDS. Needs `.[test]`, redis-server and
chromium.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.support.browser import FLAGS
from tests.support.needs import CHROMIUM, which
from tests.support.servers import RedisServer
from tests.support.servers.redis import HOST, free_port, wait_until

PROCESSES = 3
ROUNDS = 5
MOST_SECONDS = 2.0
CREATE = """
from benchmarks import override_site
from django.core.management import call_command
from django.contrib.auth.models import User
call_command("migrate", verbosity=0)
User.objects.create_superuser("admin", password="admin")
"""


@contextmanager
def site(redis_url: str, folder: str) -> Iterator[list[int]]:
    """Start both servers, and give their ports."""
    environment = {
        **os.environ,
        "SITE_REDIS_URL": redis_url,
        "SITE_DATABASE": str(Path(folder) / "db.sqlite3"),
    }
    subprocess.run([sys.executable, "-c", CREATE], env=environment, check=True)
    ports = [free_port(), free_port()]
    target = "benchmarks.override_site"
    commands = [
        f"gunicorn {target}:application --workers 2 --threads 4 --bind {HOST}:{ports[0]}",
        f"uvicorn {target}:asgi_application --host {HOST} --port {ports[1]}",
    ]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", *command.split(), "--log-level", "error"], env=environment
        )
        for command in commands
    ]
    try:
        yield ports
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def ask(port: int) -> tuple[str, int]:
    """Return the process that answered, and the status of the answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    connection.request("GET", "/")
    response = connection.getresponse()
    response.read()
    assert response.headers["X-Queries"] == "0", "a request sent a query"
    found = response.headers["X-Process"], response.status
    connection.close()
    return found


def answers(ports: list[int]) -> dict[str, int]:
    """Return what each process answers now; a process of gunicorn may not be among them."""
    return dict(ask(port) for port in (*ports, ports[0], ports[0], ports[0]))


def wait_for_site(ports: list[int]) -> set[str]:
    """Return the processes of the site."""
    seen: set[str] = set()

    def all_answer() -> bool:
        try:
            seen.update(answers(ports))
        except OSError:
            return False
        return len(seen) == PROCESSES

    wait_until(all_answer, "all processes answer")
    return seen


def seconds_until(status: int, ports: list[int], processes: set[str], since: float) -> float:
    """Return how long it took until every process answered with this status."""
    obeying: dict[str, float] = {}
    while set(obeying) < processes:
        for process, answered in answers(ports).items():
            if answered == status:
                obeying.setdefault(process, time.monotonic() - since)
        assert time.monotonic() - since < 30
    return max(obeying.values())


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        RedisServer() as server,
        site(server.url, folder) as ports,
    ):
        processes = wait_for_site(ports)
        browser, driver = map(which, CHROMIUM.programs)
        options = webdriver.ChromeOptions()
        options.binary_location = str(browser)
        for flag in (*FLAGS, f"--user-data-dir={folder}/profile"):
            options.add_argument(flag)
        operator = webdriver.Chrome(options, webdriver.ChromeService(driver))
        try:
            watch(operator, ports, processes)
        finally:
            operator.quit()


def watch(operator: webdriver.Chrome, ports: list[int], processes: set[str]) -> None:
    admin = f"http://{HOST}:{ports[0]}/admin"
    operator.get(f"{admin}/login/")
    operator.find_element(By.NAME, "username").send_keys("admin")
    operator.find_element(By.NAME, "password").send_keys("admin")
    operator.find_element(By.CSS_SELECTOR, "[type=submit]").click()
    overrides = f"{admin}/django_slidingwindow/override"
    longest = 0.0
    for number in range(ROUNDS):
        operator.get(f"{overrides}/add/?profile=site&action=block")
        since = time.monotonic()
        operator.find_element(By.NAME, "_continue").click()
        blocked = seconds_until(429, ports, processes, since)
        since = time.monotonic()
        operator.find_element(By.NAME, "_end").click()
        freed = seconds_until(200, ports, processes, since)
        longest = max(longest, blocked, freed)
        print(f"round {number + 1}: blocked after {blocked:.2f} s, ended after {freed:.2f} s")
    print(f"longest: {longest:.2f} s, in {len(processes)} processes; no request sent a query")
    assert longest < MOST_SECONDS


if __name__ == "__main__":
    main()
