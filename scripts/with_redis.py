"""Run a command with a new Redis server. REDIS_URL has its address.

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

# `read` returns when this process ends for any reason, because that closes the pipe.
WATCHDOG = 'read -r _; kill -9 "$1"; rm -rf "$2"'


class EmbeddedRedis:
    """A server on a Unix socket, which ends with this process.

    The server needs no password, because it has no port, and other users of this machine cannot
    enter the folder of the socket. It saves nothing: after a stop and a start it is empty, at the
    same address.
    """

    def __init__(self) -> None:
        self._binary = redis_binary.find()
        # Its mode is 0700, so only this user can enter it.
        self._folder = tempfile.mkdtemp(prefix="redis-")
        self._socket = f"{self._folder}/redis.sock"
        self._server: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def running(self) -> bool:
        return self._server is not None

    def start(self) -> None:
        """Start the server and wait until it answers. Do nothing if it is running."""
        if self._server is not None:
            return
        options = ["--port", "0", "--unixsocket", self._socket, "--unixsocketperm", "700"]
        options += ["--dir", self._folder, "--save", ""]
        # New sessions, because Ctrl-C must only reach this process, which then stops the server.
        self._server = subprocess.Popen(
            [self._binary, *options], stdout=subprocess.DEVNULL, start_new_session=True
        )
        self._watchdog = subprocess.Popen(
            ["sh", "-c", WATCHDOG, "sh", str(self._server.pid), self._folder],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            wait_for(self._socket, self._server)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server at once, as in a crash. It can be started again."""
        # The watchdog first: after the server has ended, another process may get its process id.
        for process in (self._watchdog, self._server):
            if process is not None:
                process.kill()
                process.communicate()
        self._server = self._watchdog = None

    def close(self) -> None:
        """Stop the server and delete its folder."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def redis() -> Iterator[EmbeddedRedis]:
    """Run an empty server while the context is open."""
    server = EmbeddedRedis()
    try:
        server.start()
        yield server
    finally:
        server.close()


def wait_for(path: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while True:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)
            return
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{server.args!r} does not answer on {path}")
        time.sleep(0.02)


def main(command: list[str]) -> int:
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends too
    try:
        with redis() as server:
            environment = {**os.environ, "REDIS_URL": server.url}
            return subprocess.run(command, env=environment, check=False).returncode
    except redis_binary.RedisNotFoundError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
