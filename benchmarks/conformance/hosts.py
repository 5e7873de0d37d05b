"""Processes with one contender each, like the hosts of one site."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from .model import Answer, Question, Setup

ROOT = Path(__file__).resolve().parent.parent.parent


class HostFailedError(Exception):
    """The process of a contender could not start, or has ended."""


class Host:
    """One process with one contender, started and ended by `with`."""

    def __init__(self, contender: str, setup: Setup) -> None:
        command = [sys.executable, "-m", "benchmarks.conformance.worker", contender]
        self._command = [*command, json.dumps(asdict(setup))]
        self._is_ready = False

    def __enter__(self) -> Host:  # noqa: PYI034, Python 3.10 has no Self
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'scripts'}"}
        environment.pop("DJANGO_SETTINGS_MODULE", None)
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def ask(self, questions: Iterable[Question]) -> list[Answer]:
        """Ask one question after another."""
        self.send(questions)
        return self.receive()

    def send(self, questions: Iterable[Question]) -> None:
        """Send questions; `receive` returns their answers."""
        if not self._is_ready:
            self._line()
            self._is_ready = True
        assert self._process.stdin is not None
        print(json.dumps(list(questions)), file=self._process.stdin, flush=True)

    def receive(self) -> list[Answer]:
        return [Answer(*item) for item in json.loads(self._line())]

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            raise HostFailedError(said[-1] if said else "ended")
        return line
