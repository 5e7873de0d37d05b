"""The lines that a test run prints: progress, and at the end what ran and what was skipped."""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.suite.needs import Need, install_command, need_of

if TYPE_CHECKING:
    from collections.abc import Sequence

# Seconds between two lines of progress.
_INTERVAL = 10.0
# The share of tests after which the time left is estimated. The slow groups run first.
_MIN_SHARE_FOR_ESTIMATE = 0.2


@dataclass(slots=True)
class Summary:
    """The results of a run, stored for `coverage_gate`."""

    ran: int
    skipped: int
    complete: bool
    """Whether the whole suite was requested, not a selection."""
    lines: list[str] = field(default_factory=list)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Summary:
        return cls(**json.loads(path.read_text(encoding="utf-8")))


class Reporter:
    """Count the reports of tests, and print progress and summary.

    With xdist, this runs in the controlling process, not in the workers.
    """

    def __init__(self, config: pytest.Config, server: str) -> None:
        self._config = config
        self._server = server
        self._progress: bool = config.option.progress and config.option.verbose <= 0
        self._started = self._printed = time.monotonic()
        self._total = 0
        self._count: Counter[str] = Counter()
        self._needs: Counter[Need] = Counter()
        self._unknown: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._total = self._total or len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        self._total = len(ids)
        self._started = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Print no letter for each test if lines of progress are printed instead."""
        if not self._progress:
            return None
        if report.when == "call" or report.outcome != "passed":
            error = report.failed and report.when != "call"
            return "error" if error else report.outcome, "", ""
        return "", "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._note_skip(report)
        if report.failed:
            self._count["failed"] += 1
            if self._progress:
                self._print(f"FAILED {report.nodeid}")
        if report.when == "teardown":
            self._count["done"] += 1
        if self._progress and time.monotonic() - self._printed > _INTERVAL:
            self._printed = time.monotonic()
            self._print(self._state())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._note_skip(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        forbidden = self._unknown or (self._skipped and os.environ.get("CI") == "true")
        if forbidden and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        summary = Summary(
            self._count["done"] - self._skipped, self._skipped, not self._is_selection()
        )
        summary.lines = self._lines(summary)
        terminalreporter.section("what ran")
        for line in summary.lines:
            terminalreporter.write_line(line)
        if self._unknown:
            terminalreporter.write_line(
                "Skips for a reason other than those in tests/support/suite/needs.py are failures:",
                red=True,
            )
            for reason in sorted(set(self._unknown)):
                terminalreporter.write_line(f"  {reason}")
        if self._skipped and os.environ.get("CI") == "true":
            terminalreporter.write_line("CI=true: a skipped test is a failure.", red=True)
        path = os.environ.get("TEST_SUMMARY")
        if path:
            summary.save(Path(path))

    @property
    def _skipped(self) -> int:
        return self._count["skipped"]

    def _is_selection(self) -> bool:
        option = self._config.option
        asked = self._config.invocation_params.args
        named = any(str(each).startswith("tests") for each in asked)
        return bool(option.keyword or option.markexpr or option.quick or option.servers or named)

    def _note_skip(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        self._count["skipped"] += 1
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        need = need_of(reason)
        if need is None:
            self._unknown.append(f"{report.nodeid}: {reason}")
        else:
            self._needs[need] += 1

    def _state(self) -> str:
        done, elapsed = self._count["done"], time.monotonic() - self._started
        share = done / max(self._total, 1)
        state = (
            f"{done:5,} of {self._total:,} tests ({share:4.0%}), {self._count['failed']} failed, "
            f"{self._skipped} skipped"
        )
        if share < _MIN_SHARE_FOR_ESTIMATE:
            return state
        return f"{state}, about {_minutes(elapsed / done * (self._total - done))} left"

    def _print(self, line: str) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        reporter.ensure_newline()
        reporter.write_line(line)
        reporter.flush()

    def _lines(self, summary: Summary) -> list[str]:
        import django

        elapsed = _minutes(time.monotonic() - self._started)
        lines = [
            f"Ran {summary.ran:,} tests in {elapsed}.",
            f"On: Python {platform.python_version()}, Django {django.__version__}, {self._server}.",
        ]
        if not self._needs:
            return [*lines, "Nothing was skipped."] if not summary.skipped else lines
        lines.append(f"Skipped {sum(self._needs.values())} tests that need what is not here:")
        lines += [f"  {count:3}  {need.name}" for need, count in self._needs.most_common()]
        lines.append(f"To run them as well (Debian, Ubuntu): {install_command(self._needs)}")
        return lines


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
