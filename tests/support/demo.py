"""The example project in a process of its own: start it, send requests, stop it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

if TYPE_CHECKING:
    from email.message import Message

    from typing_extensions import Self

ROOT = Path(__file__).parent.parent.parent
SERVE = (sys.executable, str(ROOT / "scripts" / "serve.py"))
# An environment variable that the demo and all its child processes inherit.
MARK = "DEMO_UNDER_TEST"

_opener = build_opener(ProxyHandler({}))


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment variables for a demo, without any that configure it elsewhere.

    Coverage is not measured in the demo: other tests cover that code.
    """
    rest = {
        name: value
        for name, value in os.environ.items()
        if name not in ("REDIS_URL", "PORT") and not name.startswith("COVERAGE_")
    }
    return {
        **rest,
        "DATABASE_URL": f"sqlite:///{folder / 'demo.sqlite3'}",
        "PYTHON": sys.executable,
        "DJANGO_SETTINGS_MODULE": "tests.support.sites.demo_settings",
        MARK: uuid.uuid4().hex,
        **more,
    }


def processes(mark: str) -> list[str]:
    """Return the command lines of all running processes with this value of `MARK`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append(command or "(ended, but not waited for)")
        except OSError:
            # The process has ended meanwhile, or belongs to another user.
            continue
    return found


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    text: str


class Demo:
    """A running demo."""

    def __init__(
        self, folder: Path, command: Sequence[str] = SERVE, cwd: Path = ROOT, **variables: str
    ) -> None:
        self.folder = folder
        self.environment = environment(folder, **variables)
        self.mark = self.environment[MARK]
        self.process = subprocess.Popen(
            [*command, "--port", "0"],
            cwd=cwd,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = ""
        try:
            self._read_to("Ctrl-C ends it")
        except BaseException:
            self.stop()
            raise
        found = re.search(r"Open (http://127\.0\.0\.1:\d+)/", self.output)
        password = re.search(r"password: (\S+)", self.output)
        assert found, self.output
        assert password, self.output
        self.url, self.password = found[1], password[1]

    def _read_to(self, text: str) -> None:
        assert self.process.stdout is not None
        while text not in self.output:
            line = self.process.stdout.readline()
            assert line, f"the demo ended; its output: {self.output}"
            self.output += line

    def get(
        self,
        path: str,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        **fields: str,
    ) -> Answer:
        """Return the response, whatever its status. With fields, send a POST."""
        headers = {**(headers or {}), **({"X-API-Key": f"demo-key-of-{key}"} if key else {})}
        data = urlencode(fields).encode() if fields else None
        try:
            response = _opener.open(Request(self.url + path, data, headers), timeout=30)
        except HTTPError as error:
            response = error
        with response:
            return Answer(response.status, response.headers, response.read().decode())

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal, wait for the end, and return the exit code."""
        self.process.send_signal(number)  # does nothing if the process has ended already
        self.output += self.process.communicate(timeout=60)[0]
        return self.process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
