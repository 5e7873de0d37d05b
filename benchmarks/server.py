"""The Redis server of a benchmark: its CPU time, its memory and the commands that reach it."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis
import redis_binary

HOST = "127.0.0.1"
MULTIPLY = """
for i = tonumber(ARGV[2]), tonumber(ARGV[3]) do
  redis.call('COPY', KEYS[1], string.format(ARGV[1], i))
end
"""


class Server:
    """A server that only this benchmark uses."""

    def __init__(self, url: str) -> None:
        self.url = url
        # Deleting millions of keys takes seconds.
        self.client: Any = redis.Redis.from_url(url, socket_timeout=120)
        info = self.client.info("server")
        self.pid = int(info["process_id"])
        self.pids = [self.pid]
        self.version = str(info["redis_version"])
        self.port = int(info["tcp_port"])

    def cpu(self) -> float:
        """Return the CPU time of the server so far, in seconds."""
        schedule = Path(f"/proc/{self.pid}/schedstat")
        try:
            # In nanoseconds, and without a command that would count itself.
            return int(schedule.read_text().split()[0]) / 1e9
        except OSError:
            info = self.client.info("cpu")
            return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def memory_of_keys(self, database: int = 0) -> int:
        """Delete all keys, and return by how many bytes used_memory shrinks."""
        before = self.used_memory()
        with redis.Redis(HOST, self.port, db=database, socket_timeout=120) as client:
            # Without SYNC, Valkey frees the memory later.
            client.execute_command("FLUSHDB", "SYNC")
        return max(0, before - self.used_memory())

    def used_memory(self) -> int:
        """Return used_memory: the bytes of keys and everything else."""
        return int(self.client.info("memory")["used_memory"])

    def commands(self, ask: Callable[[], object]) -> list[str]:
        """Call `ask`, and return the commands that clients send meanwhile; not those of scripts."""
        seen: list[str] = []
        with self.client.monitor() as monitor:
            self.client.echo("begin")
            ask()
            self.client.echo("end")
            for entry in monitor.listen():
                name = entry["command"].split()[0]
                if entry["command"] == "ECHO begin":
                    seen.clear()
                elif entry["command"] == "ECHO end":
                    break
                elif entry["client_type"] != "lua":
                    seen.append(name)
        return seen

    def copy(self, name: str, others: list[str]) -> None:
        """Copy every key that contains this name, with its expiry, to the other names."""
        for key in self.client.keys(f"*{name}*"):
            for other in others:
                self.client.copy(key, key.replace(name.encode(), other.encode()), replace=True)

    def multiply(self, name: str, count: int, among: str | None = None) -> None:
        """Copy the keys that contain this name, which ends in zeros, until there are `count`."""
        for key in self.client.keys(among or f"*{name}*"):
            before, after = key.split(name.encode())
            digits = len(name) - len(name.rstrip("0"))
            template = before + name[:-digits].encode() + b"%0" + b"%d" % digits + b"d" + after
            for first in range(1, count, 10_000):
                last = min(first + 9_999, count - 1)
                self.client.eval(MULTIPLY, 1, key, template, first, last)

    def flush(self) -> None:
        self.client.flushall()

    @contextmanager
    def one_core(self) -> Iterator[None]:
        """Keep server and client on one core. On two cores, a call also measures the scheduler."""
        with self._pinned({self._cores()[-1]}, {self._cores()[-1]}):
            yield

    @contextmanager
    def own_core(self) -> Iterator[None]:
        """Give the server its own core if there are two."""
        cores = self._cores()
        with self._pinned({cores[-1]}, set(cores[:-1]) or {cores[-1]}):
            yield

    @contextmanager
    def _pinned(self, server: set[int], client: set[int]) -> Iterator[None]:
        if not hasattr(os, "sched_setaffinity"):
            yield
            return
        before = os.sched_getaffinity(0)
        for pid in self.pids:
            os.sched_setaffinity(pid, server)
        os.sched_setaffinity(0, client)
        try:
            yield
        finally:
            for pid in (*self.pids, 0):
                os.sched_setaffinity(pid, before)

    @staticmethod
    def _cores() -> list[int]:
        return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]


def free_port() -> int:
    """Return a port that a cluster node can use too: its bus listens on a port 10,000 higher."""
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        if port + 10_000 < 2**16:
            return port


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Server]:
    """Run an empty server that keeps its files in the folder."""
    port = free_port()
    command = [redis_binary.find(), "--bind", HOST, "--port", str(port)]
    command += ["--dir", str(folder), "--save", "", "--loglevel", "warning", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for(port, process)
            server = Server(f"redis://{HOST}:{port}/0")
            try:
                yield server
            finally:
                server.client.close()
        finally:
            process.kill()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the process accepts connections."""
    deadline = time.monotonic() + 30
    while True:
        with suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} does not answer")
        time.sleep(0.02)
