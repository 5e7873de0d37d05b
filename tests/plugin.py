"""Start a Redis server for this process before Django reads its settings.

Loaded by `-p tests.plugin`, because pytest-django reads the settings before pytest reads
conftest.py. Each xdist worker is a process, and therefore has its own server.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
import redis_binary

from tests.support.servers import RedisServer
from tests.support.servers.redis import server_name
from tests.support.suite import coverage_exclusions
from tests.support.suite.report import Reporter

if TYPE_CHECKING:
    from collections.abc import Generator

SERVER = pytest.StashKey[RedisServer]()


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config,
) -> Generator[None, object, object]:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background job ignores SIGINT. Programs that tests start would inherit that
        # and never end.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        server = RedisServer().start()
    except redis_binary.RedisNotFoundError as error:
        raise pytest.UsageError(str(error)) from error
    early_config.add_cleanup(server.stop)
    early_config.stash[SERVER] = server
    os.environ["TEST_REDIS_URL"] = server.url
    return (yield)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite", "the suite of django_slidingwindow")
    group.addoption(
        "--progress", action="store_true", help="print lines of progress instead of dots"
    )
    group.addoption(
        "--quick", action="store_true", help="leave out slow tests, and finish in a minute or two"
    )
    group.addoption(
        "--servers",
        action="store_true",
        help="run only tests that start servers, browsers or load generators",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reporter(config, server_name()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if not coverage_exclusions.is_unmeasured(item):
        return (yield)
    with coverage_exclusions.unmeasured():
        return (yield)


def pytest_report_header() -> str:
    return f"server: {server_name()} ({redis_binary.find()})"
