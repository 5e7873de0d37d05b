"""Parts of the suite: `--quick` leaves out slow tests, `--servers` keeps what starts servers."""

from __future__ import annotations

import pytest

# Fixtures and modules that start servers, browsers, load generators or whole sites.
STARTING_FIXTURES = {"cluster", "sentinels", "log_database", "chromium", "fresh_server"}
STARTING_MODULES = {
    "test_benchmarks",
    "test_browser",
    "test_browser_demo",
    "test_channel",
    "test_concurrency",
    "test_conformance",
    "test_demo",
    "test_example_project",
    "test_footprint",
    "test_fork",
    "test_gunicorn",
    "test_interruptions",
    "test_logins",
    "test_many_keys",
    "test_newcomer",
    "test_outages",
    "test_packaging",
    "test_penalty_processes",
    "test_pool",
    "test_redis",
    "test_request_times",
    "test_scripts",
    "test_servers",
    "test_tasks",
    "test_web_servers",
}
# Other slow modules: many random steps, builds, whole projects.
SLOW_MODULES = {
    "test_admin",
    "test_cluster",
    "test_damaged_values",
    "test_exercise",
    "test_forwarded",
    "test_handlers",
    "test_hostile_requests",
    "test_import_cost",
    "test_inflight",
    "test_lease_machine",
    "test_leases",
    "test_limits",
    "test_load",
    "test_lua",
    "test_migrating",
    "test_named_twice",
    "test_pages",
    "test_penalty_machine",
    "test_plans",
    "test_recorder",
    "test_suite",
    "test_shared_windows",
    "test_statemachine",
    "test_testing",
    "test_usage",
    "test_usual_check",
    "test_waiting_lines",
    "test_what_if",
}


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that `--quick` or `--servers` leaves out."""
    if config.option.quick:
        kept = [item for item in items if not (_starts(item) or item.path.stem in SLOW_MODULES)]
    elif config.option.servers:
        kept = [item for item in items if _starts(item)]
    else:
        return
    left = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in left])
    items[:] = kept


def _starts(item: pytest.Item) -> bool:
    if item.path.stem in STARTING_MODULES:
        return True
    fixtures = STARTING_FIXTURES.intersection(getattr(item, "fixturenames", ()))
    if fixtures == {"log_database"}:
        # SQLite needs no server.
        return item.callspec.params["log_database"] != "sqlite"  # type: ignore[attr-defined]
    return bool(fixtures)
