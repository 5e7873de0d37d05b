"""Run a command beside a Redis of its own, whose address is in REDIS_URL.

python scripts/with_redis.py COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

import contextlib
import os
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


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """The URL of an empty server that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:
        port = free_port()
        options = ["--bind", HOST, "--port", str(port), "--dir", folder, "--save", ""]
        command = [redis_binary.find(), *options]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
            try:
                wait_for(port, server)
                yield f"redis://{HOST}:{port}/0"
            finally:
                server.kill()


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
        with redis() as url:
            environment = {**os.environ, "REDIS_URL": url}
            return subprocess.run(command, env=environment, check=False).returncode
    except redis_binary.RedisNotFoundError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
