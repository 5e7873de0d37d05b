"""Run a command beside a Redis of its own, whose address is in REDIS_URL.

python scripts/with_redis.py COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import redis_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"
# When this process dies, however it dies, its end of the pipe closes.
WATCHDOG = 'read -r _; kill -9 "$1"; rm -rf "$2"'


class EmbeddedRedis:
    """A server on a port of its own, which is gone with this process.

    It keeps nothing: stopped and started again it is empty, at the same address.
    """

    def __init__(self) -> None:
        self._binary = redis_binary.find()
        self._folder = tempfile.mkdtemp(prefix="redis-")
        self._port = free_port()
        self._server: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self._port}/0"

    @property
    def running(self) -> bool:
        return self._server is not None

    def start(self) -> None:
        """Return when the server answers; nothing if it does already."""
        if self._server is not None:
            return
        options = ["--bind", HOST, "--port", str(self._port), "--dir", self._folder, "--save", ""]
        # Ctrl-C is for this process, which then stops the server: hence the sessions.
        self._server = subprocess.Popen(
            [self._binary, *options], stdout=subprocess.DEVNULL, start_new_session=True
        )
        self._watchdog = subprocess.Popen(
            ["sh", "-c", WATCHDOG, "sh", str(self._server.pid), self._folder],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            wait_for(self._port, self._server)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop at once, as a crash does; it may be started again."""
        # The watchdog first: a process id may be another's once its own process is gone.
        for process in (self._watchdog, self._server):
            if process is not None:
                process.kill()
                process.communicate()
        self._server = self._watchdog = None

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def redis() -> Iterator[EmbeddedRedis]:
    """An empty server that is gone afterwards."""
    server = EmbeddedRedis()
    try:
        server.start()
        yield server
    finally:
        server.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while True:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{server.args!r} does not answer on port {port}")
        time.sleep(0.02)


def main(command: list[str]) -> int:
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else the server would stay
    try:
        with redis() as server:
            environment = {**os.environ, "REDIS_URL": server.url}
            return subprocess.run(command, env=environment, check=False).returncode
    except redis_binary.RedisNotFoundError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
