"""Every module of the package has its tests where a reader looks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_layers import MODULES

TESTS = Path(__file__).parent
FOLDERS = {"admin_views": "admin", "management.commands": "command"}
# Modules without a test file of their name: where they are tested instead.
TESTED_IN = {
    "admin/test_admin.py": """
        admin admin_views.changelist admin_views.export admin_views.filters admin_views.key_rows
        admin_views.live admin_views.pages admin_views.profiles admin_views.searching
        admin_views.summary admin_views.times admin_views.wording""",
    "checks/test_static.py": """
        checks.axes checks.callables checks.catalog checks.edges checks.problem checks.profiles
        checks.leases checks.penalties checks.project checks.register checks.rules checks.values
        checks.views guard.installed""",
    "checks/test_deploy.py": "checks.aliases checks.rights checks.server checks.server_catalog",
    "command/test_drill.py": "management.console.values management.drilling",
    "command/test_load.py": "load.report management.loading",
    "command/test_explain.py": "management.explaining",
    "command/test_replay.py": """
        management.replaying replay.options replay.page replay.wording""",
    "command/test_slidingwindow.py": """
        inspection.profiles management.console.arguments management.console.choice
        management.console.exits management.console.layouts management.console.live
        management.console.outputs management.console.progress management.console.rich_output
        management.console.text""",
    "command/test_usage.py": "management.using",
    "contrib/test_metrics.py": "contrib.prometheus",
    "contrib/test_openapi.py": "contrib.spectacular",
    "core/test_lending.py": "core.held core.leases",
    "core/test_limiter.py": """
        core.fallback core.health core.listening core.outcomes core.release core.windows""",
    "core/test_deferred.py": "core.outbox",
    "core/test_penalizing.py": "core.penalties",
    "core/test_results.py": "core.ranking",
    "drill/test_exercise.py": "drill.observer drill.report",
    "guard/test_check.py": """
        guard.binding guard.exemptions guard.refunds guard.requirements guard.state guard.usages""",
    "guard/test_overriding.py": "guard.override",
    "http/test_headers.py": "http.policy_names",
    "inspection/test_explaining.py": "inspection.explanations inspection.foreseeing",
    "inspection/test_usage.py": "inspection.spans",
    "inspection/test_windows.py": "algorithms.decode inspection.reader",
    "rejections/test_recorder.py": """
        apps rejections.buffer rejections.testcase rejections.writer""",
    "replay/test_engine.py": """
        replay.candidates replay.fixed replay.lanes replay.report replay.suggest
        replay.timeline""",
    "replay/test_identify.py": "replay.logged",
    "replay/test_readers.py": "replay.filters replay.ordering",
    "stores/net/test_logins.py": "stores.net.async_settings stores.net.threads",
    "stores/net/test_pool.py": """
        stores.net.async_connection stores.net.server stores.net.settings stores.net.watching""",
    "stores/net/test_routing.py": "stores.net.topology",
    "stores/test_cluster.py": "cluster core.multi_slot stores.factory",
    "stores/test_redis.py": "stores.errors stores.protocol",
    "system/test_contract.py": "algorithms.in_memory",
    "system/test_penalties.py": "algorithms.penalties stores.watching",
    "test_limits.py": "guard.current_limiter guard.limiter_factory",
    "test_middleware.py": "guard.rules",
    "test_models.py": "rejections.fields",
    "test_policies.py": "rates",
    "profiles/test_keys.py": "profiles.reading profiles.values",
    "test_testing.py": "pytest_plugin",
    "test_views.py": "guard.looking",
}
PLACES = {module: place for place, modules in TESTED_IN.items() for module in modules.split()}


def own_test(module: str) -> Path:
    folder, _, name = module.rpartition(".")
    return TESTS / FOLDERS.get(folder, folder).replace(".", "/") / f"test_{name}.py"


@pytest.mark.parametrize("module", [name for name in MODULES if not name.startswith("migrations")])
def test_module_has_its_tests(module: str) -> None:
    if module in PLACES:
        assert not own_test(module).exists(), "it has a file of its own now: leave it out here"
        assert (TESTS / PLACES[module]).exists()
    else:
        assert own_test(module).exists()


def test_named_modules_exist() -> None:
    assert set(PLACES) <= set(MODULES)
