"""What has to be there before Django is: this process's own Redis server.

Loaded by `-p tests.plugin`, because pytest-django reads the settings earlier than
pytest reads conftest.py. Each xdist worker is a process, and so has a server.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
import redis_binary

from tests.servers import RedisServer
from tests.servers.redis import server_version

if TYPE_CHECKING:
    from collections.abc import Generator

SERVER = pytest.StashKey[RedisServer]()


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config,
) -> Generator[None, object, object]:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # In the background of a shell. What tests start would ignore it as well, and never end.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        server = RedisServer().start()
    except redis_binary.RedisNotFoundError as error:
        raise pytest.UsageError(str(error)) from error
    early_config.add_cleanup(server.stop)
    early_config.stash[SERVER] = server
    os.environ["TEST_REDIS_URL"] = server.url
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("CI") == "true" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipsFail())


def pytest_report_header() -> str:
    version = ".".join(map(str, server_version()))
    return f"redis server: {redis_binary.find()} {version}"


class SkipsFail:
    """In CI everything is installed, so a skipped test is one that nobody runs."""

    def __init__(self) -> None:
        self.skipped = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.skipped += report.skipped and not hasattr(report, "wasxfail")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.skipped += report.skipped

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.skipped:
            terminalreporter.write_sep("=", f"CI=true: {self.skipped} skipped", red=True)
