"""A folder is a layer, and a module imports only from its own layer and lower ones."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = "django_slidingwindow"
ROOT = Path(__file__).parent.parent / PACKAGE

EDGES = {"decorators", "middleware", "views", "contrib"}
# From the lowest to the highest: folders, and modules at the root of the package, which are
# Django's conventions and the public names.
LAYERS = [
    {"exceptions", "durations", "rates", "policies", "decisions"},
    {"algorithms"},
    {"stores", "cluster"},
    {"core"},
    {"conf", "profiles", "registry", "signals"},
    {"guard", "limits", "testing", "pytest_plugin"},
    {"http"},
    EDGES,
    {"models", "rejections", "overrides"},
    {"checks"},
    {"inspection"},
    {"admin_views", "admin", "replay", "drill", "load", "management", "apps", "migrations"},
]
# Modules that other edges may import: shared code, and DRF, whose views drf-spectacular describes.
SHARED_BY_EDGES = {"contrib.metrics", "contrib.openapi", "contrib.drf"}
MAX_MODULES_AT_THE_ROOT, MAX_LINES = 20, 300


def module_name(path: Path) -> str:
    """Return `stores.redis` for django_slidingwindow/stores/redis.py, and "" for the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
MODULES = [name for name, path in PATHS.items() if path.name != "__init__.py"]


def layer(module: str) -> int:
    """Return the index of a module's layer."""
    found = [number for number, names in enumerate(LAYERS) if module.split(".")[0] in names]
    assert found, f"{module} is in no layer: add it to LAYERS and to docs/architecture.md"
    return found[0]


def imported(module: str) -> set[str]:
    """Return the full names of all imports of a module, inside of functions too."""
    path = PATHS[module]
    package = [PACKAGE, *module.split(".")[:-1]]
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else []
            origin = ".".join([*start, *filter(None, [node.module])])
            names |= {f"{origin}.{alias.name}" for alias in node.names}
    return names


def dependencies(module: str) -> set[str]:
    """Return the modules of the package that a module imports."""
    found = set()
    for name in imported(module):
        parts = name.split(".")
        if parts[0] == PACKAGE:
            # The longest prefix that is a module. The rest is a name inside it.
            starts = (".".join(parts[1:end]) for end in range(len(parts), 0, -1))
            found.add(next(start for start in starts if start in PATHS))
    return found - {""}


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_only_from_its_own_and_lower_layers(module: str) -> None:
    wrong = {other for other in dependencies(module) if layer(other) > layer(module)}
    assert not wrong, f"{module} imports from a higher layer"


@pytest.mark.parametrize("module", [name for name in MODULES if name.split(".")[0] in EDGES])
def test_edge_imports_no_other_edge(module: str) -> None:
    edges = {other for other in dependencies(module) if other.split(".")[0] in EDGES}
    assert edges <= SHARED_BY_EDGES


def test_package_has_no_import_cycle() -> None:
    graph = {module: dependencies(module) for module in MODULES}
    assert list(TopologicalSorter(graph).static_order())


def test_root_has_few_modules() -> None:
    assert len([module for module in MODULES if "." not in module]) <= MAX_MODULES_AT_THE_ROOT


@pytest.mark.parametrize(
    "path",
    sorted([*ROOT.rglob("*.py"), *ROOT.rglob("*.lua")]),
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_module_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_only_conf_reads_the_settings() -> None:
    names = {"django.conf", "django.conf.settings"}
    assert [module for module in MODULES if imported(module) & names] in ([], ["conf"])


def test_init_modules_of_folders_are_empty() -> None:
    inside = set(PATHS) - set(MODULES) - {""}
    assert not [package for package in inside if PATHS[package].read_text()]


def test_package_contains_only_the_version() -> None:
    (statement,) = ast.parse(PATHS[""].read_text()).body
    assert ast.unparse(statement).startswith("__version__ = ")
