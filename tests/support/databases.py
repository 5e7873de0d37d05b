"""PostgreSQL and MariaDB servers for the tests, and fixtures that keep the logs in them."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connections
from django.db.utils import ConnectionHandler
from django.test import override_settings

from tests.support.servers.redis import WATCHDOG
from tests.support.suite.needs import MARIADB, POSTGRESQL, Need, require, which

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

ALIAS = "log"
# Both servers refuse to run as root.
USER: dict[str, Any] = {"user": "nobody", "group": "nogroup"} if os.getuid() == 0 else {}


class DatabaseServer:
    """A server that listens on a socket in a temporary folder. It trades durability for speed."""

    need: Need

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="db-"))
        self.process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        if USER:
            shutil.chown(self.folder, **USER)

    def create(self) -> None:
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    @property
    def settings(self) -> dict[str, Any]:
        """The entry of DATABASES."""
        raise NotImplementedError

    def start(self) -> Self:
        try:
            if not (self.folder / "data").exists():
                self.create()
            self.launch()
        except BaseException:
            self.stop()
            raise
        return self

    def launch(self) -> None:
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
                **USER,
            )
        self._watchdog = subprocess.Popen(
            ["sh", "-c", WATCHDOG, "sh", str(self.process.pid), str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        deadline = time.monotonic() + 60
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no answer:\n{(self.folder / 'log').read_text()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Stop at once, as a crash does. `launch` starts the server again."""
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None
        if self.process is not None:
            # PostgreSQL does not start again while child processes are alive.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, *command: str) -> None:
        program = which(command[0])
        assert program, command
        done = subprocess.run(
            [program, *command[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            check=False,
            **USER,
        )
        assert done.returncode == 0, done.stdout.decode()

    def _answers(self) -> bool:
        handler = ConnectionHandler({"default": self.settings})
        try:
            with handler["default"].cursor() as cursor:
                cursor.execute("SELECT 1")
        except OperationalError:
            return False
        finally:
            handler["default"].close()
        return True


class PostgreSQL(DatabaseServer):
    need = POSTGRESQL

    def create(self) -> None:
        # As on most servers, the collation does not sort by code point.
        language = ["--locale-provider=icu", "--icu-locale=en-US", "--locale=C.UTF-8"]
        self.run("initdb", "-D", "data", "-U", "tests", "-A", "trust", "-E", "UTF8", "--no-sync",
                 *language)  # fmt: skip

    def command(self) -> list[str]:
        program = which("postgres")
        assert program
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}", "fsync=off"]
        settings += ["synchronous_commit=off", "full_page_writes=off", "max_wal_size=4GB"]
        settings += ["wal_level=minimal", "max_wal_senders=0", "maintenance_work_mem=256MB"]
        return [program, "-D", "data", *(part for line in settings for part in ("-c", line))]

    @cached_property
    def settings(self) -> dict[str, Any]:
        return {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": str(self.folder),
            "USER": "tests",
            "NAME": "postgres",
            "OPTIONS": {"connect_timeout": 5},
        }


class MariaDB(DatabaseServer):
    need = MARIADB

    def create(self) -> None:
        self.run("mariadb-install-db", "--no-defaults", f"--datadir={self.folder}/data",
                 "--auth-root-authentication-method=normal", "--skip-test-db")  # fmt: skip

    def command(self) -> list[str]:
        program = which("mariadbd")
        assert program
        return [
            program,
            "--no-defaults",
            f"--datadir={self.folder}/data",
            f"--socket={self.folder}/socket",
            f"--pid-file={self.folder}/pid",
            "--skip-networking",
            "--skip-log-bin",
            "--innodb-flush-log-at-trx-commit=0",
            # Debian's defaults. The collation treats ACME and acme as equal.
            "--character-set-server=utf8mb4",
            "--collation-server=utf8mb4_general_ci",
        ]

    @cached_property
    def settings(self) -> dict[str, Any]:
        return {
            "ENGINE": "django.db.backends.mysql",
            "USER": "root",
            "NAME": "mysql",
            "OPTIONS": {"unix_socket": f"{self.folder}/socket", "charset": "utf8mb4"},
        }

    def launch(self) -> None:
        install_pymysql()
        super().launch()

    def _answers(self) -> bool:
        # MariaDB listens when it is ready. PyMySQL would leak a socket for each failed attempt.
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(f"{self.folder}/socket") == 0


def install_pymysql() -> None:
    """Use PyMySQL, which needs no compiler, instead of the driver that Django imports."""
    import pymysql

    pymysql.version_info = (2, 2, 8, "final", 0)
    pymysql.__version__ = "2.2.8"
    pymysql.install_as_MySQLdb()


SERVERS: dict[str, type[DatabaseServer]] = {"postgresql": PostgreSQL, "mariadb": MariaDB}


@contextlib.contextmanager
def added(alias: str, settings: dict[str, Any]) -> Iterator[str]:
    """Add an entry to DATABASES for the duration of the block."""
    every = ConnectionHandler({"default": {}, alias: settings}).settings
    connections.settings[alias] = every[alias]
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]


class LogRouter:
    """Send both logs to another database, as a router of a project does."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return ALIAS if model._meta.model_name in ("rejection", "usage") else None

    db_for_write = db_for_read


@pytest.fixture(scope="session")
def _database_settings() -> Iterator[Callable[[str], dict[str, Any]]]:
    """A function that creates an empty database of a kind and returns its entry of DATABASES."""
    running: dict[str, DatabaseServer] = {}
    number = itertools.count()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())

        def settings(kind: str) -> dict[str, Any]:
            name = f"log{next(number)}"
            if kind == "sqlite":
                path = f"{folder}/{name}.sqlite3"
                return {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": {}}
            server = SERVERS[kind]
            require(server.need)
            if kind not in running:
                running[kind] = stack.enter_context(server())
            with added("main", running[kind].settings), connections["main"].cursor() as cursor:
                cursor.execute(f"CREATE DATABASE {name}")
            return {**running[kind].settings, "NAME": name}

        yield settings


@contextlib.contextmanager
def log_in(settings: dict[str, Any]) -> Iterator[str]:
    """Create the empty log tables in another database than the default, and yield its alias."""
    router = f"{__name__}.{LogRouter.__name__}"
    with added(ALIAS, settings), override_settings(DATABASE_ROUTERS=[router]):
        call_command("migrate", "django_slidingwindow", database=ALIAS, verbosity=0)
        try:
            yield ALIAS
        finally:
            connections[ALIAS].close()


@pytest.fixture
def log_database(
    request: pytest.FixtureRequest, _database_settings: Any, django_db_blocker: Any
) -> Iterator[str]:
    """The alias of a database of the parametrized kind that holds only the log."""
    with django_db_blocker.unblock(), log_in(_database_settings(request.param)) as alias:
        yield alias


on_every_database = pytest.mark.parametrize(
    "log_database", ["sqlite", "postgresql", "mariadb"], indirect=True
)
