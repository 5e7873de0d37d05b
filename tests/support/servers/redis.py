"""One Redis server that a test may kill, freeze and restart."""

from __future__ import annotations

import contextlib
import functools
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import redis
import redis_binary
import trustme
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError
from redis.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

HOST = "127.0.0.1"
# When the test process ends, even by SIGKILL, its end of the pipe closes, and `read` returns.
WATCHDOG = 'read -r _; kill -9 "$1"; rm -rf "$2"'


@functools.cache
def server_name() -> str:
    """Return the name and version of the server binary, such as "Redis 7.0.15"."""
    command = [redis_binary.find(), "--version"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    match = re.search(r"(\w+) server v=([\d.]+)", output)
    assert match, output
    return " ".join(match.groups())


@functools.cache
def has_tls() -> bool:
    """Whether the server binary supports TLS. Starts a server to find out."""
    server = RedisServer(tls=True)
    server.port = free_port()
    try:
        server.start()
    except RuntimeError:
        return False
    finally:
        server.stop()
    return True


def free_port() -> int:
    """Return a free port whose cluster bus port (10,000 above) is free too.

    Both are below the range of ports that the system gives to outgoing connections.
    """
    while True:
        port = random.randrange(12_000, 22_000)
        with socket.socket() as one, socket.socket() as two:
            try:
                one.bind((HOST, port))
                two.bind((HOST, port + 10_000))
            except OSError:
                continue
        return port


def wait_until(condition: Callable[[], object], what: str, seconds: float = 20) -> None:
    """Wait until `condition()` is true. An error of Redis counts as false."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(redis.RedisError):
            if condition():
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s in vain until {what}")
        time.sleep(0.02)


class RedisServer:
    """A server on a free port, with `lines` added to its redis.conf."""

    def __init__(
        self,
        *lines: str,
        replica_of: RedisServer | None = None,
        password: str = "",
        tls: bool = False,
        sentinel: bool = False,
    ) -> None:
        self.binary = redis_binary.find()
        self.lines = lines
        self.replica_of = replica_of
        self.password = password
        self.tls = tls
        self.sentinel = sentinel
        self.port = 0
        self.folder = Path(tempfile.mkdtemp(prefix="redis-"))
        self.process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        scheme = "rediss" if self.tls else "redis"
        login = f":{quote(self.password, safe='')}@" if self.password else ""
        query = f"?ssl_ca_certs={self.folder}/ca.pem" if self.tls else ""
        return f"{scheme}://{login}{HOST}:{self.port}/0{query}"

    @property
    def unix_url(self) -> str:
        login = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"unix://{login}{self.folder}/redis.sock?db=0"

    def client(self, **options: Any) -> redis.Redis:
        """Return a new client that never retries a command. The caller closes it."""
        options.setdefault("retry", Retry(NoBackoff(), 0))
        options.setdefault("decode_responses", True)
        return redis.Redis.from_url(self.url, **options)

    def start(self) -> Self:
        """Start the server and wait until it answers."""
        fixed = self.port
        for _ in range(5):
            self.port = fixed or free_port()
            self._launch()
            if self._answers():
                return self
            self.kill()
            if fixed:
                break
        # Another process may take the port in between once, but hardly five times.
        raise RuntimeError(f"Redis did not start:\n{self.log}")

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def stop(self) -> None:
        """Stop for good, and remove the server's files."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """Stop at once (SIGKILL), as a crash does; files stay, so it may start again."""
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        """Suspend the server: connections stay open, but no reply comes."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def restart(self, *, keep_data: bool = False) -> None:
        """Restart on the same port, without scripts, and without keys unless `keep_data`."""
        if keep_data:
            with self.client() as client:
                client.save()
        self.kill()
        if not keep_data:
            (self.folder / "dump.rdb").unlink(missing_ok=True)
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None, "the server does not run"
        self.process.send_signal(number)

    def _launch(self) -> None:
        config = self.folder / "redis.conf"
        if not (self.sentinel and config.exists()):  # a sentinel keeps its state there
            config.write_text("\n".join(self._config()) + "\n")
        command = [self.binary, str(config)]
        if self.sentinel:
            command.append("--sentinel")
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C ends the tests, which then stop the server
            )
        self._watchdog = subprocess.Popen(
            ["sh", "-c", WATCHDOG, "sh", str(self.process.pid), str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def _config(self) -> list[str]:
        lines = [f"bind {HOST}", f"dir {self.folder}"]
        if self.tls:
            authority = trustme.CA()
            authority.cert_pem.write_to_path(f"{self.folder}/ca.pem")
            pair = authority.issue_cert(HOST).private_key_and_cert_chain_pem
            pair.write_to_path(f"{self.folder}/server.pem")
            lines += ["port 0", f"tls-port {self.port}", "tls-auth-clients no"]
            lines += [f"tls-ca-cert-file {self.folder}/ca.pem"]
            lines += [f"tls-cert-file {self.folder}/server.pem"]
            lines += [f"tls-key-file {self.folder}/server.pem"]
        else:
            lines += [f"port {self.port}"]
        if not self.sentinel:
            lines += ['save ""', f"unixsocket {self.folder}/redis.sock"]
            lines += ["repl-diskless-sync-delay 0"]  # replicas join at once, not in 5 s
        if self.password:
            lines += [f'requirepass "{self.password}"']
        if self.replica_of is not None:
            lines += [f"replicaof {HOST} {self.replica_of.port}"]
        return [*lines, *self.lines]

    def _answers(self) -> bool:
        """Wait for the first reply. Return False if the server ended instead."""
        assert self.process is not None
        deadline = time.monotonic() + 20
        with self.client(socket_timeout=5) as client:
            while self.process.poll() is None and time.monotonic() < deadline:
                try:
                    client.ping()
                    # If another server holds the port, that one replies until ours gives up.
                    return bool(client.info("server")["process_id"] == self.process.pid)
                except (AuthenticationError, NoPermissionError):
                    return True  # the server runs, with users that the test has configured
                except redis.RedisError:
                    time.sleep(0.01)
        return False
