"""The text, tables and code blocks of README and docs, and the project that a page's blocks make.

A Python block whose first line is a comment with a file name becomes that file of the page's
project. The blocks named `settings.py` are its settings. The other Python blocks run in the
project, in order.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from django.conf import settings
from django.core import checks
from django.test import override_settings

from django_slidingwindow.guard import usages

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
SETTINGS = "settings.py"
APP = "django_slidingwindow"

# A busy machine is not an outage.
PATIENT = {"LATENCY_BUDGET": 30.0}

_BLOCK = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w/]+\.py)\n")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block of a page."""

    page: str
    line: int
    language: str
    code: str

    @property
    def file(self) -> str | None:
        """The file name in the first line of the block, if any."""
        match = _FILE.match(self.code)
        return match[1] if match else None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def pages() -> dict[str, str]:
    """Return the text of each page by its path, README first."""
    paths = [ROOT / "README.md", *sorted(ROOT.glob("[A-Z]*.md")), *sorted(DOCS.glob("*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def blocks(page: str, language: str | None = None) -> list[Block]:
    """Return the code blocks of a page, in order."""
    text = pages()[page]
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2])
        for match in _BLOCK.finditer(text)
        if language in (None, match[1])
    ]


def prose(page: str) -> str:
    """Return the page without its code blocks."""
    return _BLOCK.sub("", pages()[page])


def table(page: str, heading: str, number: int = 1) -> list[list[str]]:
    """Return the rows of the n-th table below a heading as lists of cells, without its head."""
    after = re.split(rf"^#+ {re.escape(heading)}$", pages()[page], maxsplit=1, flags=re.MULTILINE)
    assert len(after) == 2, f"{page} has no heading {heading!r}"
    found = re.findall(r"^\|.*\n\|[-|]+\n((?:\|.*\n)+)", after[1], re.MULTILINE)
    assert len(found) >= number, f"{page} has no table under {heading!r}"
    rows = found[number - 1].splitlines()
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def code_in(cell: str) -> list[str]:
    """Return the code spans of a table cell."""
    return re.findall(r"`([^`]+)`", cell)


def set_by(block: Block, given: dict[str, Any]) -> dict[str, Any]:
    """Return the given settings updated with those that a block sets."""
    names: dict[str, Any] = {
        "INSTALLED_APPS": [app for app in settings.INSTALLED_APPS if app != APP],
        "MIDDLEWARE": list(settings.MIDDLEWARE),
    }
    exec(compile(block.code, str(block), "exec"), names)
    names["INSTALLED_APPS"] += [] if APP in names["INSTALLED_APPS"] else [APP]
    found = {name: value for name, value in names.items() if name.isupper()}
    if "CACHES" in found:
        # Django needs `default`; a page shows only the alias that it describes.
        found["CACHES"] = {"default": settings.CACHES["default"], **found["CACHES"]}
    return {**given, **found, "SLIDING_WINDOW": _merged(given, found)}


def _merged(given: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return SLIDING_WINDOW of both. Profiles and identities of earlier blocks stay."""
    before, after = given.get("SLIDING_WINDOW", {}), found.get("SLIDING_WINDOW", {})
    merged = {**before, **after}
    for key in ("PROFILES", "IDENTITIES"):
        if key in merged:
            merged[key] = {**before.get(key, {}), **after.get(key, {})}
    return merged


@contextmanager
def project(page: str, folder: Path) -> Iterator[dict[str, ModuleType]]:
    """Import the files of a page under the settings of the page, and yield the modules by file."""
    files: dict[str, str] = {}
    for block in blocks(page, "python"):
        if block.file is not None:
            files[block.file] = files.get(block.file, "") + block.code
    wanted: dict[str, Any] = {}
    for block in blocks(page, "python"):
        if block.file == SETTINGS:
            wanted = set_by(block, wanted)
    # The tests use their own server, not the addresses that the page shows.
    wanted = {name: value for name, value in wanted.items() if name != "CACHES"}
    wanted["SLIDING_WINDOW"] = {**wanted.get("SLIDING_WINDOW", {}), **PATIENT}
    wanted["SLIDING_WINDOW"].pop("CACHE", None)
    for file, code in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(code)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    known = set(sys.modules)
    # Views that other tests have decorated use profiles that this project does not have.
    before = dict(usages._usages)
    usages._usages.clear()
    try:
        with override_settings(**wanted):
            names = [file for file in files if file not in (SETTINGS, *RUN_ELSEWHERE)]
            yield {
                file: importlib.import_module(file.removesuffix(".py").replace("/", "."))
                for file in names
            }
    finally:
        usages._usages.clear()
        usages._usages.update(before)
        sys.path.remove(str(folder))
        for name in set(sys.modules) - known:
            if getattr(sys.modules[name], "__file__", None) is None or str(folder) in str(
                sys.modules[name].__file__
            ):
                del sys.modules[name]


# Files of pages that need a process or project of their own, and the tests that run them.
RUN_ELSEWHERE = {
    "crm/jobs.py": "docs/test_tasks.py",
    "crm/tasks.py": "docs/test_tasks.py",
    "gunicorn_conf.py": "system/test_web_servers.py",
    "hello.py": "docs/test_newcomer.py",
    "sentry_limits.py": "docs/test_observability.py",
    "test_shop.py": "docs/test_pages.py",
    "test_limits.py": "docs/test_pages.py",
    "test_fixtures.py": "docs/test_pages.py",
    "test_log.py": "docs/test_pages.py",
    "tenants/models.py": "docs/test_cookbook.py",
    "tenants/limits.py": "docs/test_cookbook.py",
    "tenants/views.py": "docs/test_cookbook.py",
    "mysite/settings.py": "docs/test_cookbook.py",
}


def run(block: Block, names: dict[str, Any]) -> None:
    """Run a block that is not a file. It may use `await` at the top level."""
    code = compile(block.code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


def errors() -> list[checks.CheckMessage]:
    """Return the messages of the system checks, without infos."""
    return [message for message in checks.run_checks() if message.level >= checks.WARNING]
