"""The numbers in the docs are those of the stored benchmark results."""

from __future__ import annotations

from pathlib import Path

from benchmarks import report
from benchmarks.results import Results
from tests.support.docs_pages import DOCS

STORED = Results.load(DOCS / "benchmarks" / "results.json")


def test_benchmark_pages_are_made_from_the_stored_results(tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks"
    report.write(STORED, folder, tmp_path / report.PAGE, {})
    written = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert {Path("benchmarks.md"), Path("benchmarks-goals.md")} <= written
    for name in written:
        made, shown = (tmp_path / name).read_text(), (DOCS / name).read_text()
        assert made == shown, f"docs/{name}: run python -m benchmarks.report"
