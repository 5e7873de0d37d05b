"""The modules of the package, their layers, and the imports of a file."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = "django_slidingwindow"
ROOT = Path(__file__).parent.parent.parent / PACKAGE

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


def imports_of(path: Path) -> set[str]:
    """Return the full names of all imports in a file, inside of functions too."""
    package = path.relative_to(ROOT.parent).parent.parts
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else ()
            origin = ".".join([*start, *filter(None, [node.module])])
            names |= {f"{origin}.{alias.name}" for alias in node.names}
    return names


def dependencies(module: str) -> set[str]:
    """Return the modules of the package that a module imports."""
    found = set()
    for name in imports_of(PATHS[module]):
        parts = name.split(".")
        if parts[0] == PACKAGE:
            # The longest prefix that is a module. The rest is a name inside it.
            starts = (".".join(parts[1:end]) for end in range(len(parts), 0, -1))
            found.add(next(start for start in starts if start in PATHS))
    return found - {""}
