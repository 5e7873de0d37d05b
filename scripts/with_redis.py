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

# When this process dies, however it dies, its end of the pipe closes.
WATCHDOG = 'read -r _; kill -9 "$1"; rm -rf "$2"'


class EmbeddedRedis:
    """A server on a socket of its own, which is gone with this process.

    The socket lies in a folder that other users of this machine cannot enter, and there is
    no port: it needs no password. It keeps nothing: stopped and started again it is empty,
    at the same address.
    """

    def __init__(self) -> None:
        self._binary = redis_binary.find()
        # Its mode is 0700.
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
        """Return when the server answers; nothing if it does already."""
        if self._server is not None:
            return
        options = ["--port", "0", "--unixsocket", self._socket, "--unixsocketperm", "700"]
        options += ["--dir", self._folder, "--save", ""]
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
            wait_for(self._socket, self._server)
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
