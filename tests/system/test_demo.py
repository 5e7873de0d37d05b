"""`./scripts/demo`, run as in a fresh clone."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.demo import MARK, ROOT, Demo, environment, processes
from tests.support.servers.redis import wait_until

# The tests share one virtual environment in the checkout, which is slow to create.
pytestmark = pytest.mark.xdist_group("demo")

SCRIPT = (str(ROOT / "scripts" / "demo"),)
AS_IT_IS = {"DJANGO_SETTINGS_MODULE": "config.settings"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a fresh clone that the installation reads."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("scripts", "django_slidingwindow"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def test_one_command_leads_to_the_page_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    with Demo(tmp_path, SCRIPT, **AS_IT_IS) as demo:
        assert "A limit that holds at every moment" in demo.get("/").text
        assert demo.get("/static/admin/css/base.css").status == 200
        assert demo.get("/api/orders/", key="acme").status == 200
        assert demo.stop(signal.SIGINT) == 0
    assert processes(demo.mark) == []

    with Demo(tmp_path, SCRIPT, **AS_IT_IS) as again:
        assert "Installing" not in again.output
        assert again.get("/").status == 200
        assert again.stop(signal.SIGTERM) == 0
    assert processes(again.mark) == []


def test_missing_package_index_is_reported(checkout: Path, tmp_path: Path) -> None:
    variables = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    done = subprocess.run(
        [checkout / "scripts" / "demo"],
        env=environment(tmp_path, **variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Is there a network" in done.stderr
    assert "pip.log" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_an_installation_that_is_stopped(
    checkout: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        variables = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index, "PIP_FIND_LINKS": ""}
        # pip's child process ends when the index closes the connection, without a retry.
        variables |= {"PIP_EXTRA_INDEX_URL": "", "PIP_RETRIES": "0"}
        marked = environment(tmp_path, **variables)
        with (
            subprocess.Popen([checkout / "scripts" / "demo"], env=marked) as script,
            silent.accept()[0],  # pip has begun
        ):
            script.send_signal(number)
            assert script.wait(60) == 130
    wait_until(lambda: not processes(marked[MARK]), "pip has ended")


def test_old_python_gets_an_error_with_the_version_needed(checkout: Path, tmp_path: Path) -> None:
    old = tmp_path / "python"
    # A fake Python 3.8: prints its version, and fails the test for 3.10.
    old.write_text('#!/bin/sh\ncase "$2" in *exit*) exit 1;; *) echo 3.8;; esac\n')
    old.chmod(0o755)
    done = subprocess.run(
        [checkout / "scripts" / "demo"],
        env=environment(tmp_path, PYTHON=str(old)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "is Python 3.8, and 3.10 or newer is needed" in done.stderr
