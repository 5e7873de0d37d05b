"""Serve the example project; `./scripts/demo` runs this in its own environment.

Without REDIS_URL, this also starts a Redis server. Without DATABASE_URL, it uses an SQLite file in
example_project/. Ctrl-C ends everything.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import redis_binary
import with_redis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from with_redis import EmbeddedRedis

HOST = "127.0.0.1"
ROOT = Path(__file__).resolve().parent.parent
PROJECT = ROOT / "example_project"
WELCOME = """
  Open http://{host}:{port}/

  The admin   http://{host}:{port}/admin/     name: demo   password: {password}
  Metrics     http://{host}:{port}/metrics
  A tenant    curl -i -H "X-API-Key: demo-key-of-acme" http://{host}:{port}/api/orders/
  Live keys   {command} slidingwindow keys

  Ready after {seconds:.1f} s. Ctrl-C ends it.
"""


def main(arguments: list[str]) -> int:
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="demo", description="Serve the example project.")
    parser.add_argument("--port", type=int, default=os.environ.get("PORT") or 8000)
    options = parser.parse_args(arguments)
    # Uvicorn shuts down on a signal, and then raises it again.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with listen(options.port) as listener, redis() as server:
            serve(listener, server, started)
    except KeyboardInterrupt:
        pass
    except (DemoError, redis_binary.RedisNotFoundError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


class DemoError(Exception):
    """The demo cannot start. The message says why and what to do."""


def listen(port: int) -> socket.socket:
    """Return the socket of the server. It is bound first, so that a busy port fails early."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise DemoError(
            f"port {port} cannot be used ({error}). Choose another one: ./scripts/demo --port 8001"
        ) from error
    return listener


@contextlib.contextmanager
def redis() -> Iterator[EmbeddedRedis | None]:
    """Run an embedded Redis server; yield None if REDIS_URL names another one."""
    if os.environ.get("REDIS_URL"):
        yield None
        return
    with with_redis.redis() as server:
        os.environ["REDIS_URL"] = server.url
        yield server


def serve(listener: socket.socket, server: EmbeddedRedis | None, started: float) -> None:
    import uvicorn

    sys.path[:0] = [str(PROJECT), str(ROOT)]
    from config.asgi import application
    from django.core.management import call_command
    from live import plug

    call_command("migrate", verbosity=0)
    with open(os.devnull, "w") as nowhere:
        password = call_command("demo_data", stdout=nowhere, stderr=nowhere)
    plug.server = server
    listener.listen()  # from now on, connections wait instead of being refused
    manage = shlex.join(os.path.relpath(path) for path in (sys.executable, PROJECT / "manage.py"))
    password = password or "as before (changepassword demo sets another)"
    shown = {"host": HOST, "port": listener.getsockname()[1], "password": password}
    command = f"REDIS_URL={shlex.quote(os.environ['REDIS_URL'])} {manage}"
    print(WELCOME.format(**shown, command=command, seconds=time.monotonic() - started), flush=True)
    config = uvicorn.Config(
        application,
        lifespan="off",
        log_level="warning",
        # Uvicorn would trust X-Forwarded-For from this machine, where the clients are.
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
