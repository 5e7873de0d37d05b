"""The steps of README and quick start, followed exactly, lead to a 429."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.installed import make_project
from tests.support.docs_pages import ROOT, blocks, pages
from tests.support.servers.redis import free_port, wait_until

if TYPE_CHECKING:
    from tests.support.servers import RedisServer

PAGE = "docs/quick-start.md"
README = "README.md"
LINE = '@rate_limit(profile="tenant_paid")'
SETTINGS_OF_HELLO = 6
SETTINGS_OF_README = 6
COMMANDS = 2
LINES = 30
# A busy machine is not an outage.
PATIENT = '"LATENCY_BUDGET": 30.0'


def files(page: str) -> dict[str, str]:
    """Return the files that a page shows, by name."""
    found: dict[str, str] = {}
    for block in blocks(page, "python"):
        if block.file is not None:
            found.setdefault(block.file, block.code)
    return found


def commands(page: str, number: int = 0) -> list[str]:
    """Return the commands of the n-th console block of a page."""
    console = blocks(page, "console")[number].code
    return [line.removeprefix("$ ") for line in console.splitlines()]


def one_file(folder: Path, redis_url: str) -> list[str]:
    """Write the single file of the quick start, and return the command that serves it."""
    file = files(PAGE)["hello.py"]
    changed = file.replace("redis://127.0.0.1:6379/0", redis_url)
    patient = changed.replace('"LOG": False', f'"LOG": False, {PATIENT}')
    assert file != changed != patient
    (folder / "hello.py").write_text(patient)
    install, serve = commands(PAGE)
    assert install == "pip install django_slidingwindow"
    return serve.split()


def existing_project(folder: Path, redis_url: str) -> list[str]:
    """Add the code of the README to a new project, and return the command that serves it."""
    install, migrate, serve = commands(README)
    assert install == "pip install django_slidingwindow"
    assert migrate == "python manage.py migrate"
    make_project(folder, redis_url)
    return serve.split()


@contextmanager
def serving(folder: Path, command: list[str]) -> Iterator[str]:
    """Run the command of a page on a free port, and yield the address of the site."""
    python, *arguments = command
    assert python == "python"
    address = f"127.0.0.1:{free_port()}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    # Instead of `pip install`, use this environment: the suite runs without a network.
    with subprocess.Popen(
        [sys.executable, *arguments, address],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as server:
        try:
            wait_until(lambda: reachable(f"http://{address}/nowhere"), "the site answers", 60)
            yield f"http://{address}/"
        finally:
            # Kill the autoreloader and the server.
            os.killpg(server.pid, signal.SIGKILL)


def reachable(url: str) -> bool:
    try:
        get(url)
    except OSError:
        return False
    return True


def get(url: str, **headers: str) -> tuple[int, dict[str, str], str]:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=30
        ) as response:
            return response.status, dict(response.headers), response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read().decode()


def assert_shown(page: str, answer: tuple[int, dict[str, str], str]) -> None:
    """Assert that a response equals the first one that the page shows."""
    head, body = blocks(page, "http")[0].code.split("\n\n")
    status_line, *lines = head.splitlines()
    _, headers, text = answer
    assert status_line == "HTTP/1.1 429 Too Many Requests"
    wait = int(headers["Retry-After"])
    assert 1 <= wait <= 60
    assert text == body.replace("60 seconds", f"{wait} seconds")
    for line in lines:
        name, value = line.split(": ", 1)
        # Seconds may have passed since the first request.
        assert without_seconds(headers[name], wait) == without_seconds(value, 60), name


def without_seconds(value: str, wait: int) -> str:
    return re.sub(r"t=\d+", "t=", value) if value != str(wait) else "the wait"


def test_first_429_takes_two_commands_and_six_lines_of_settings() -> None:
    file = files(PAGE)["hello.py"]
    assert len(commands(PAGE)) == COMMANDS
    tree = ast.parse(file)
    (configure,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "settings.configure"
    ]
    (alias,) = [node for node in tree.body if ast.unparse(node).startswith("REDIS = ")]
    lines = {keyword.value.lineno for keyword in configure.keywords}
    lines |= {keyword.value.end_lineno or 0 for keyword in configure.keywords}
    lines.add(alias.lineno)
    assert len(lines) <= SETTINGS_OF_HELLO
    assert len([line for line in file.splitlines()[1:] if line]) <= LINES


def test_readme_needs_six_lines_of_settings() -> None:
    lines = files(README)["settings.py"].splitlines()[1:]
    assert len(lines) == SETTINGS_OF_README


def test_sixth_answer_is_the_429_that_the_quick_start_shows(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with serving(tmp_path, one_file(tmp_path, redis_server.url)) as url:
        with redis_server.client() as client:
            client.flushall()
        answers = [get(url) for _ in range(6)]
        with redis_server.client() as client:
            assert client.keys() == ["throttle:ip:{127.0.0.1}:hello:c60"]
    assert [status for status, _, _ in answers] == [200] * 5 + [429]
    assert_shown(PAGE, answers[-1])


def test_quick_start_refuses_without_redis_too(tmp_path: Path) -> None:
    command = one_file(tmp_path, f"redis://127.0.0.1:{free_port()}/0")
    with serving(tmp_path, command) as url:
        assert [get(url)[0] for _ in range(6)] == [200] * 5 + [429]


def test_readme_leads_an_existing_project_to_its_429(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with serving(tmp_path, existing_project(tmp_path, redis_server.url)) as url:
        (curl,) = commands(README, 1)
        path, key = re.search(r"8000/(\S+);", curl), re.search(r'"X-API-Key: (\S+)"', curl)
        assert path is not None
        assert key is not None
        with redis_server.client() as client:
            client.flushall()
        answers = [get(url + path[1], **{"X-API-Key": key[1]}) for _ in range(6)]
        strangers = [get(url + path[1])[0] for _ in range(6)]
    assert [status for status, _, _ in answers] == [200] * 5 + [429]
    assert strangers == [200] * 6
    assert_shown(README, answers[-1])


@pytest.mark.parametrize("page", [README, PAGE])
def test_page_shows_the_line_that_limits_a_view(page: str) -> None:
    assert any(f"\n{LINE}" in code for code in files(page).values())


@pytest.mark.parametrize("script", ["./scripts/demo", "./scripts/test"])
def test_commands_of_the_readme_can_be_run(script: str) -> None:
    assert f"$ {script}\n" in pages()["README.md"]
    assert os.access(ROOT / script, os.X_OK)
