"""Start this process's own Redis server before Django reads its settings.

Loaded by `-p tests.plugin`, because pytest-django reads the settings earlier than
pytest reads conftest.py. Each xdist worker is a process, and so has a server.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
import redis_binary

from tests.support import measuring
from tests.support.reporting import Reporter
from tests.support.servers import RedisServer
from tests.support.servers.redis import server_name

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


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite", "the suite of django_slidingwindow")
    group.addoption("--progress", action="store_true", help="lines of progress instead of dots")
    group.addoption(
        "--quick", action="store_true", help="leave out what takes long: an answer in a minute"
    )
    group.addoption(
        "--servers", action="store_true", help="only what starts a server, a browser or a load"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reporter(config, server_name()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if not measuring.is_unmeasured(item):
        return (yield)
    with measuring.unmeasured():
        return (yield)


def pytest_report_header() -> str:
    return f"server: {server_name()} ({redis_binary.find()})"
