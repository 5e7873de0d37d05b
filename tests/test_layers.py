"""A folder is a layer, and a module imports only from its own layer and lower ones."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.package_modules import (
    EDGES,
    MODULES,
    PATHS,
    ROOT,
    dependencies,
    imports_of,
    layer,
)

# Modules that other edges may import: shared code, and DRF, whose views drf-spectacular describes.
SHARED_BY_EDGES = {"contrib.metrics", "contrib.openapi", "contrib.drf"}
MAX_MODULES_AT_THE_ROOT, MAX_LINES = 20, 300


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
    assert [module for module in MODULES if imports_of(PATHS[module]) & names] in ([], ["conf"])


def test_init_modules_of_folders_are_empty() -> None:
    inside = set(PATHS) - set(MODULES) - {""}
    assert not [package for package in inside if PATHS[package].read_text()]


def test_package_contains_only_the_version() -> None:
    (statement,) = ast.parse(PATHS[""].read_text()).body
    assert ast.unparse(statement).startswith("__version__ = ")
