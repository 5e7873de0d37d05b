"""Checks open as many connections as docs/scaling.md says."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.test import override_settings

from django_slidingwindow import limits
from tests.support.docs_pages import PATIENT
from tests.support.servers import RedisServer

THREADS = 8


@pytest.fixture(autouse=True)
def _server(fresh_server: RedisServer) -> Any:
    alias = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": f"{fresh_server.url}?client_name=limits",
    }
    with override_settings(CACHES={"default": alias}, SLIDING_WINDOW=PATIENT):
        yield


def count_connections(server: RedisServer) -> int:
    """Return how many connections have the client name of the page."""
    with server.client() as client:
        return sum(entry["name"] == "limits" for entry in client.client_list())


def test_threads_open_at_most_one_connection_each(fresh_server: RedisServer) -> None:
    start = threading.Barrier(THREADS)

    def work() -> None:
        start.wait()
        for _ in range(50):
            limits.check("ip_public", "203.0.113.9", cost=0)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= count_connections(fresh_server) <= THREADS


def test_consecutive_checks_share_a_connection(fresh_server: RedisServer) -> None:
    for number in range(20):
        limits.check("ip_public", f"203.0.113.{number}")
    assert count_connections(fresh_server) == 1


def test_tasks_of_an_event_loop_share_a_connection(fresh_server: RedisServer) -> None:
    async def work() -> int:
        checks = [limits.acheck("ip_public", f"203.0.113.{number}") for number in range(100)]
        await asyncio.gather(*checks)
        return await asyncio.to_thread(count_connections, fresh_server)

    assert asyncio.run(work()) == 1
