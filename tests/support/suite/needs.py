"""What some tests need beyond Python and a Redis server, and how to install it.

Every skip goes through `require`, so that the summary at the end can list what was skipped and the
command that installs what is missing. A skip for any other reason is a failure.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

# Debian installs database servers in folders outside PATH.
_FOLDERS = ["/usr/sbin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), *_FOLDERS])
_MARK = "needs "


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A program or feature that a machine may lack."""

    name: str
    """The name in the summary."""
    packages: tuple[str, ...]
    """The Debian packages that install it."""
    programs: tuple[str, ...] = ()
    """Executables that must be installed."""

    def missing(self) -> list[str]:
        """Return the programs that are not on this machine."""
        return [program for program in self.programs if which(program) is None]


CHROMIUM = Need(
    name="Chromium", packages=("chromium", "chromium-driver"), programs=("chromium", "chromedriver")
)
POSTGRESQL = Need(name="PostgreSQL", packages=("postgresql",), programs=("initdb", "postgres"))
MARIADB = Need(
    name="MariaDB", packages=("mariadb-server",), programs=("mariadb-install-db", "mariadbd")
)
WRK = Need(name="wrk", packages=("wrk",), programs=("wrk",))
REDIS_BENCHMARK = Need(
    name="redis-benchmark", packages=("redis-tools",), programs=("redis-benchmark",)
)
TLS = Need(name="a Redis server with TLS", packages=("redis-server",))
JEMALLOC = Need(name="a Redis server with jemalloc", packages=("redis-server",))
NEEDS = (CHROMIUM, POSTGRESQL, MARIADB, WRK, REDIS_BENCHMARK, TLS, JEMALLOC)


def which(program: str) -> str | None:
    """Return the path of a program in PATH or in Debian's folders for database servers."""
    return shutil.which(program, path=PATH)


def require(need: Need, fulfilled: bool = True) -> None:
    """Skip the test if a program is missing, or if `fulfilled` is False."""
    missing = need.missing()
    if missing:
        skip(need, f"there is no {' and no '.join(missing)}")
    if not fulfilled:
        skip(need, "the server of this run is built without it")


def skip(need: Need, why: str) -> None:
    pytest.skip(f"{_MARK}{need.name}: {why}")


def need_of(reason: str) -> Need | None:
    """Return the need that a skip's reason names; None for another reason."""
    text = reason.removeprefix("Skipped: ")
    return next((need for need in NEEDS if text.startswith(f"{_MARK}{need.name}: ")), None)


def install_command(needs: Iterable[Need]) -> str:
    packages = sorted({package for need in needs for package in need.packages})
    return f"apt-get install {' '.join(packages)}"
