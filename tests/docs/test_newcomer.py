"""A newcomer's path: what the quick start shows, typed as it stands, ends in a 429."""

from __future__ import annotations

import ast
import os
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

from tests.support.docs_pages import ROOT, blocks, pages
from tests.support.servers.redis import free_port, wait_until

if TYPE_CHECKING:
    from tests.support.servers import RedisServer

PAGE = "docs/quick-start.md"
ADDRESS = "redis://127.0.0.1:6379/0"
COMMANDS = 2
LINES_OF_SETTINGS = 6
LINES = 30


def shown(page: str) -> tuple[str, list[str]]:
    """The file and the commands of a page's way to the first 429."""
    (file,) = [b.code for b in blocks(page, "python") if b.file == "hello.py"]
    console = blocks(page, "console")[0].code
    return file, [line.removeprefix("$ ") for line in console.splitlines()]


@contextmanager
def serving(folder: Path, redis_url: str) -> Iterator[str]:
    """The address of the quick start's project, run as it says, on free ports."""
    file, (install, serve) = shown(PAGE)
    assert install == "pip install django_slidingwindow"
    # A busy machine is no outage.
    patient = file.replace('"LOG": False', '"LOG": False, "LATENCY_BUDGET": 30.0')
    assert ADDRESS in file
    assert patient != file
    (folder / "hello.py").write_text(patient.replace(ADDRESS, redis_url))
    python, *arguments = serve.split()
    assert python == "python"
    address = f"127.0.0.1:{free_port()}"
    # What is installed here stands in for the index: the suite runs without a network.
    with subprocess.Popen(
        [sys.executable, *arguments, address],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as server:
        try:
            wait_until(lambda: reachable(f"http://{address}/nowhere"), "the site answers", 60)
            yield f"http://{address}/"
        finally:
            # The autoreloader and the server that it watches.
            os.killpg(server.pid, signal.SIGKILL)


def reachable(url: str) -> bool:
    try:
        get(url)
    except OSError:
        return False
    return True


def get(url: str) -> tuple[int, dict[str, str], str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return response.status, dict(response.headers), response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read().decode()


def test_first_429_takes_two_commands_and_six_lines_of_settings() -> None:
    file, commands = shown(PAGE)
    assert len(commands) == COMMANDS
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
    assert len(lines) <= LINES_OF_SETTINGS
    assert len([line for line in file.splitlines()[1:] if line]) <= LINES


def test_readme_shows_the_same_way() -> None:
    assert shown("README.md") == shown(PAGE)


def test_sixth_answer_is_the_429_that_the_page_shows(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with serving(tmp_path, redis_server.url) as url:
        with redis_server.client() as client:
            client.flushall()
        answers = [get(url) for _ in range(6)]
        with redis_server.client() as client:
            assert client.keys() == ["throttle:ip:{127.0.0.1}:hello:c60"]
    assert [status for status, _, _ in answers] == [200] * 5 + [429]
    page = blocks(PAGE, "http")[0].code
    (status_line, *lines), body = page.split("\n\n")[0].splitlines(), page.split("\n\n")[1]
    _, headers, text = answers[-1]
    assert status_line == "HTTP/1.1 429 Too Many Requests"
    wait = int(headers["Retry-After"])
    assert 1 <= wait <= 60
    assert text.replace(str(wait), "60") == body
    for line in lines:
        name, value = line.split(": ", 1)
        assert headers[name].replace(str(wait), "60") == value


def test_without_a_redis_it_ends_in_the_same_429(tmp_path: Path) -> None:
    with serving(tmp_path, f"redis://127.0.0.1:{free_port()}/0") as url:
        assert [get(url)[0] for _ in range(6)] == [200] * 5 + [429]


@pytest.mark.parametrize("script", ["./scripts/demo", "./scripts/test"])
def test_commands_of_the_readme_can_be_run(script: str) -> None:
    assert f"$ {script}\n" in pages()["README.md"]
    assert os.access(ROOT / script, os.X_OK)
