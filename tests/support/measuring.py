"""Leaves tests out of the coverage that take long under it and reach nothing that others do not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNMEASURED_FOLDERS = {"docs"}
UNMEASURED = {
    "test_benchmarks",
    "test_browser_demo",
    "test_conformance",
    "test_damaged_values",
    "test_demo",
    "test_example_project",
    "test_footprint",
    "test_hot_path",
    "test_import_cost",
    "test_many_keys",
    "test_packaging",
    "test_scripts",
    "test_statemachine",
    "test_themes",
    "test_usual_check",
}
# By this coverage.py measures what a test starts.
_CONFIG = "COVERAGE_PROCESS_CONFIG"


def is_unmeasured(path: Path) -> bool:
    """Return whether the tests of a module are left out."""
    return path.stem in UNMEASURED or path.parent.name in UNMEASURED_FOLDERS


@contextmanager
def unmeasured() -> Iterator[None]:
    """Measure no coverage within it, neither here nor in processes that are started."""
    config = os.environ.pop(_CONFIG, None)
    if config is None:
        yield
        return
    from coverage import Coverage

    coverage = Coverage.current()
    assert coverage is not None
    coverage.stop()
    try:
        yield
    finally:
        coverage.start()
        os.environ[_CONFIG] = config
