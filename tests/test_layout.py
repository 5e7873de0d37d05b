"""Tests are where a reader looks for them, and what they share is in tests/support."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.package_modules import MODULES, imports_of

TESTS = Path(__file__).parent
FOLDERS = {
    "admin_views": "admin",
    "management.commands": "command",
    "management.subcommands": "command",
}
# Modules without a test file of their own name, by the file that tests them.
TESTED_IN = {
    "admin/test_admin.py": """
        admin admin_views.changelist admin_views.export admin_views.filters admin_views.key_rows
        admin_views.live admin_views.pages admin_views.profiles admin_views.search
        admin_views.summary admin_views.times admin_views.formatting""",
    "checks/test_static.py": """
        checks.axes checks.callables checks.catalog checks.edges checks.problem checks.profiles
        checks.leases checks.penalties checks.project checks.register checks.rules checks.values
        checks.views guard.installation""",
    "checks/test_deploy.py": "checks.aliases checks.rights checks.server checks.server_catalog",
    "command/test_drill.py": "management.console.values",
    "command/test_load.py": "load.report",
    "command/test_replay.py": """
        replay.options replay.page replay.texts""",
    "command/test_slidingwindow.py": """
        inspection.profiles management.console.arguments management.console.choice
        management.console.exits management.console.layouts management.console.live
        management.console.outputs management.console.progress management.console.rich_output
        management.console.text""",
    "contrib/test_metrics.py": "contrib.prometheus",
    "contrib/test_openapi.py": "contrib.spectacular",
    "core/test_lender.py": "core.taken_units core.leases",
    "core/test_limiter.py": """
        core.callbacks core.fallback core.health core.listeners core.outcomes core.release
        core.windows""",
    "core/test_deferred.py": "core.outbox",
    "core/test_penalizer.py": "core.penalty_decisions",
    "core/test_results.py": "core.ranking",
    "drill/test_exercise.py": "drill.observer drill.report",
    "guard/test_check.py": """
        guard.binding guard.exemptions guard.refunds guard.requirements guard.state guard.usages""",
    "guard/test_override_snapshot.py": "guard.override",
    "http/test_headers.py": "http.policy_names",
    "inspection/test_explain.py": "inspection.explanation inspection.forecast",
    "inspection/test_usage.py": "inspection.spans",
    "inspection/test_windows.py": "algorithms.decode inspection.reader",
    "rejections/test_recorder.py": """
        apps rejections.buffer rejections.testcase rejections.writer""",
    "replay/test_engine.py": """
        replay.candidates replay.fixed replay.store replay.report replay.suggest
        replay.timeline""",
    "replay/test_identify.py": "replay.log_requests",
    "replay/test_readers.py": "replay.filters replay.ordering",
    "stores/net/test_logins.py": "stores.net.async_settings stores.net.threads",
    "stores/net/test_pool.py": """
        stores.net.async_connection stores.net.pending_call stores.net.server stores.net.settings
        stores.net.readiness""",
    "stores/net/test_routing.py": "stores.net.topology",
    "stores/test_cluster.py": "cluster core.multi_slot stores.factory",
    "stores/test_redis.py": "stores.errors stores.protocol",
    "system/test_contract.py": "algorithms.in_memory",
    "system/test_penalties.py": "algorithms.penalties stores.memory_penalties",
    "test_limits.py": "guard.current_limiter guard.limiter_factory",
    "test_middleware.py": "guard.rules",
    "test_models.py": "rejections.fields",
    "test_policies.py": "rates",
    "profiles/test_keys.py": "profiles.parsing profiles.values",
    "test_testing.py": "pytest_plugin",
    "test_views.py": "guard.peek",
}
# Files that import from a test module. Nothing may be added.
IMPORT_TESTS = {"core/test_penalizer.py"}
TESTS_OF = {module: file for file, modules in TESTED_IN.items() for module in modules.split()}


def own_test(module: str) -> Path:
    """Return the test file that has the name of a module."""
    folder, _, name = module.rpartition(".")
    return TESTS / FOLDERS.get(folder, folder).replace(".", "/") / f"test_{name}.py"


@pytest.mark.parametrize("module", [name for name in MODULES if not name.startswith("migrations")])
def test_module_has_its_tests(module: str) -> None:
    if module in TESTS_OF:
        assert not own_test(module).exists(), (
            "the module has its own test file: remove it from TESTED_IN"
        )
        assert (TESTS / TESTS_OF[module]).exists()
    else:
        assert own_test(module).exists()


def test_modules_of_tested_in_exist() -> None:
    assert set(TESTS_OF) <= set(MODULES)


def imported_tests(path: Path) -> set[str]:
    """Return the names that a file imports from test modules."""
    return {name for name in imports_of(path) if name.startswith("tests.") and ".test_" in name}


def test_test_modules_are_not_imported() -> None:
    paths = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("*.py")}
    found = {name for name, path in paths.items() if imported_tests(path)}
    assert found == IMPORT_TESTS, "move what test modules share to tests/support"
