"""Tests that run without coverage: they are slow under it, and other tests cover the same code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

UNMEASURED_FOLDERS = {"docs"}
UNMEASURED = {
    "test_benchmarks",
    "test_browser",
    "test_browser_demo",
    "test_concurrency",
    "test_conformance",
    "test_demo",
    "test_example_project",
    "test_footprint",
    "test_gunicorn",
    "test_hot_path",
    "test_import_cost",
    "test_lease_machine",
    "test_many_keys",
    "test_near",
    "test_override_processes",
    "test_packaging",
    "test_penalty_machine",
    "test_penalty_processes",
    "test_request_times",
    "test_scripts",
    "test_statemachine",
    "test_themes",
    "test_usual_check",
    "test_web_servers",
}
UNMEASURED_TESTS = {
    "test_disconnecting_clients_of_a_web_server_leave_no_slot_taken",
    "test_concurrent_writers_lose_no_hits",
    "test_disconnecting_clients_leave_no_slot_taken",
    "test_eight_processes_write_every_refusal",
    "test_higher_limit_refuses_no_more",
    "test_no_damaged_value_holds_up_the_server",
    "test_no_query_string_causes_an_error",
    "test_pages_use_indexes_when_the_log_is_large",
    "test_queries_use_an_index_when_the_log_is_large",
    "test_server_logs_every_429",
    "test_stream_holds_its_slot_until_it_is_read_or_abandoned",
}
# This variable makes coverage.py measure the processes that a test starts.
_CONFIG = "COVERAGE_PROCESS_CONFIG"


def is_unmeasured(item: pytest.Item) -> bool:
    """Whether a test runs without coverage."""
    return (
        item.path.stem in UNMEASURED
        or item.path.parent.name in UNMEASURED_FOLDERS
        or getattr(item, "originalname", "") in UNMEASURED_TESTS
        or _is_contract_on_redis(item)
    )


def _is_contract_on_redis(item: pytest.Item) -> bool:
    """Whether it is a contract test on Redis. Those in memory cover the same algorithms."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return item.path.stem == "test_contract" and parameters.get("kind") != "memory"


@contextmanager
def unmeasured() -> Iterator[None]:
    """Turn coverage off inside the block, for this thread and for processes that it starts.

    Other threads stay measured: they outlive the test, and coverage.py cannot resume in them.
    """
    config = os.environ.pop(_CONFIG, None)
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
        if config is not None:
            os.environ[_CONFIG] = config
