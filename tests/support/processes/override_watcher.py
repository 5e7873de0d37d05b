"""Save overrides in several processes, and print which override each process uses.

Run as `python -m tests.support.processes.override_watcher <folder>`, where the folder holds the
database. Prints one line of JSON for each step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ADDRESS = "203.0.113.9"


def main(folder: Path) -> None:
    import django
    from django.conf import settings

    settings.configure(
        SECRET_KEY="watching",
        USE_TZ=True,
        INSTALLED_APPS=["django_slidingwindow"],
        CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://x"}},
        DATABASES={
            "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / "db.sqlite3"}
        },
        SLIDING_WINDOW={
            "PROFILES": {"one": {"axis": "ip", "rate": "3/m"}},
            "OVERRIDES_SECONDS": 0.05,
            "LATENCY_BUDGET": 20.0,
        },
    )
    django.setup()
    steps(folder)


def steps(folder: Path) -> None:
    from django.core.management import call_command
    from django.db import connections

    from django_slidingwindow import limits
    from django_slidingwindow.guard import override_snapshot
    from django_slidingwindow.models import Override
    from django_slidingwindow.overrides.watcher import watcher

    def action() -> str:
        found = override_snapshot.find("one", ADDRESS)
        return "" if found is None else found.action

    call_command("migrate", verbosity=0)
    Override.objects.create(profile="one", action="block")
    report("saved in a process that checks no limit", action(), watcher.status().running)
    limits.get_limiter()
    report("first check", action(), watcher.status().running)
    Override.objects.update(action="exempt")
    report("saved in a process that checks limits", action())

    child = os.fork()
    if not child:
        connections.close_all()
        inherited = action(), watcher.status().running
        limits.get_limiter()
        report("child", *inherited, watcher.status().running)
        Override.objects.update(action="observe")
        sys.exit()
    _, status = os.waitpid(child, 0)
    wait_until(lambda: action() == "observe")
    report("saved by another process", action(), status)

    connections.close_all()
    (folder / "db.sqlite3").rename(folder / "away.sqlite3")
    wait_until(lambda: watcher.status().error)
    report("database away", action(), "no such table" in watcher.status().error)
    (folder / "away.sqlite3").replace(folder / "db.sqlite3")
    wait_until(lambda: not watcher.status().error)
    Override.objects.all().delete()
    report("database back", action())


def report(*facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def wait_until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
