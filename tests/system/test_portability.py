"""The package works on systems without POSIX features."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.docs_pages import ROOT

if TYPE_CHECKING:
    from redis import Redis

    from tests.support.servers import RedisServer

# Removes what Python lacks on Windows. It does so after the import of Django and of parts of the
# standard library, which adapt to the system on their own.
SCRIPT = """
import asyncio, multiprocessing.util, os, pkgutil, select, socket, subprocess, sys
import django
from django.conf import settings
from tests import settings as project

values = {name: getattr(project, name) for name in dir(project) if name.isupper()}
values["SLIDING_WINDOW"] = {"LATENCY_BUDGET": 30.0}
settings.configure(**values)

for module, names in {os: "fork register_at_fork", select: "poll epoll"}.items():
    for name in names.split():
        vars(module).pop(name, None)
for name in "fcntl grp pwd resource syslog termios tty".split():
    sys.modules[name] = None

django.setup()
import django_slidingwindow

for found in pkgutil.walk_packages(django_slidingwindow.__path__, "django_slidingwindow."):
    __import__(found.name)

from django_slidingwindow import limits

async def main():
    return await limits.acheck("ip_public", "203.0.113.9")

print([limits.check("ip_public", "203.0.113.9").source, asyncio.run(main()).source])
"""


def test_package_needs_no_fork_no_poll_and_no_terminal(
    redis: Redis, redis_server: RedisServer
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TEST_REDIS_URL": redis_server.url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['redis', 'redis']\n"
