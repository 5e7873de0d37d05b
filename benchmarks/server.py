"""The Redis that is measured: its CPU, its memory and the commands that reach it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
import with_redis


class Server:
    """A server of this benchmark's own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: Any = redis.Redis.from_url(url)
        info = self.client.info("server")
        self.pid = int(info["process_id"])
        self.version = str(info["redis_version"])
        self.port = int(info["tcp_port"])

    def cpu(self) -> float:
        """Seconds that the server has run on a CPU so far."""
        schedule = Path(f"/proc/{self.pid}/schedstat")
        try:
            # In nanoseconds, and without a command that would itself be counted.
            return int(schedule.read_text().split()[0]) / 1e9
        except OSError:
            info = self.client.info("cpu")
            return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def used_memory(self) -> int:
        return int(self.client.info("memory")["used_memory"])

    def commands(self, ask: Callable[[], object]) -> list[str]:
        """The commands that clients send meanwhile; those of scripts are left out."""
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
        """Copies every key with this name in it, with its expiry, under the other names."""
        for key in self.client.keys(f"*{name}*"):
            for other in others:
                self.client.copy(key, key.replace(name.encode(), other.encode()), replace=True)

    def flush(self) -> None:
        self.client.flushall()

    @contextmanager
    def one_core(self) -> Iterator[None]:
        """Keeps server and client on one core: across two, a call measures the scheduler."""
        with self._pinned({self._cores()[-1]}, {self._cores()[-1]}):
            yield

    @contextmanager
    def own_core(self) -> Iterator[None]:
        """Gives the server a core of its own, where there are two."""
        cores = self._cores()
        with self._pinned({cores[-1]}, set(cores[:-1]) or {cores[-1]}):
            yield

    @contextmanager
    def _pinned(self, server: set[int], client: set[int]) -> Iterator[None]:
        if not hasattr(os, "sched_setaffinity"):
            yield
            return
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(self.pid, server)
        os.sched_setaffinity(0, client)
        try:
            yield
        finally:
            os.sched_setaffinity(self.pid, before)
            os.sched_setaffinity(0, before)

    @staticmethod
    def _cores() -> list[int]:
        return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]


@contextmanager
def running() -> Iterator[Server]:
    """A fresh server, gone afterwards."""
    with with_redis.redis() as url:
        server = Server(url)
        try:
            yield server
        finally:
            server.client.close()
