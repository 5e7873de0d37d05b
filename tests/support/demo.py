"""The example project as a process that is started, asked and stopped."""

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
# Every process that a test starts inherits it, and its children do.
MARK = "DEMO_UNDER_TEST"

_opener = build_opener(ProxyHandler({}))


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The variables of a machine that has set none of the demo's.

    Without coverage: what the demo runs of the package has tests of its own.
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
        "DJANGO_SETTINGS_MODULE": "tests.support.demo_settings",
        MARK: uuid.uuid4().hex,
        **more,
    }


def processes(mark: str) -> list[str]:
    """The command lines of all that still run and bear the mark."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append(command or "(ended, but not waited for)")
        except OSError:
            # It ended meanwhile, or is another user's.
            continue
    return found


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    text: str


class Demo:
    """Started, and ready to answer."""

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
        self.said = ""
        try:
            self._read_to("Ctrl-C ends it")
        except BaseException:
            self.stop()
            raise
        found = re.search(r"Open (http://127\.0\.0\.1:\d+)/", self.said)
        password = re.search(r"password: (\S+)", self.said)
        assert found, self.said
        assert password, self.said
        self.url, self.password = found[1], password[1]

    def _read_to(self, text: str) -> None:
        assert self.process.stdout is not None
        while text not in self.said:
            line = self.process.stdout.readline()
            assert line, f"it ended, and had said: {self.said}"
            self.said += line

    def get(
        self,
        path: str,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        **fields: str,
    ) -> Answer:
        """The answer, whatever its status; fields make it a POST."""
        headers = {**(headers or {}), **({"X-API-Key": f"demo-key-of-{key}"} if key else {})}
        data = urlencode(fields).encode() if fields else None
        try:
            response = _opener.open(Request(self.url + path, data, headers), timeout=30)
        except HTTPError as error:
            response = error
        with response:
            return Answer(response.status, response.headers, response.read().decode())

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Its exit code."""
        self.process.send_signal(number)  # none, if it has ended already
        self.said += self.process.communicate(timeout=60)[0]
        return self.process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
