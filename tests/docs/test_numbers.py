"""The numbers in the docs are those of the stored benchmark results."""

from __future__ import annotations

from pathlib import Path

from benchmarks import readme, report
from benchmarks.conformance.__main__ import CONTENDERS
from benchmarks.conformance.table import MARKS, Table
from benchmarks.contenders.base import BY_CLIENT, BY_DECORATOR, BY_MIDDLEWARE, CHECK, OURS
from benchmarks.results import Results
from tests.support.docs_pages import DOCS, pages, table

STORED = Results.load(DOCS / "benchmarks" / "results.json")


def flat(page: str) -> str:
    """Return the text of a page in one line."""
    return " ".join(pages()[page].split())


def test_benchmark_pages_are_made_from_the_stored_results(tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks"
    report.write(STORED, folder, tmp_path / report.PAGE, {})
    written = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert {Path("benchmarks.md"), Path("benchmarks-goals.md")} <= written
    for name in written:
        made, shown = (tmp_path / name).read_text(), (DOCS / name).read_text()
        assert made == shown, f"docs/{name}: run python -m benchmarks.report"


def test_comparison_in_the_readme_is_made_from_the_stored_results() -> None:
    text = pages()["README.md"]
    before, rest = text.split(readme.BEGIN)
    _, after = rest.split(readme.END)
    emptied = f"{before}{readme.BEGIN}{readme.END}{after}"
    assert readme.rewritten(emptied) == text, "README.md: run python -m benchmarks.report"


def test_every_cell_of_the_comparison_has_a_mark_and_words() -> None:
    rows = table("README.md", "Comparison")
    assert len(rows) == 12
    for title, *cells in rows:
        assert len(cells) == len(CONTENDERS), title
        for cell in cells:
            mark, _, words = cell.partition(" ")
            assert mark in MARKS.values(), title
            assert words, title


def test_comparison_names_its_commands_and_where_others_are_as_good() -> None:
    for words in ("`tox -e conformance`", "`tox -e bench`", "Where others are as good or better"):
        assert words in flat("README.md")


def test_both_results_of_the_comparison_are_of_the_same_releases() -> None:
    conformance = Table.load(readme.STORED).facts
    assert [STORED.facts[name] for name in readme.LIBRARIES] == [
        conformance[name] for name in readme.LIBRARIES
    ]


def test_scaling_page_has_the_measured_time_of_redis() -> None:
    measured = STORED.value("library", "allowed", OURS, "server_us")
    assert measured is not None
    assert f"about {measured:.0f} µs of CPU" in flat("docs/scaling.md")


def test_scaling_page_has_the_measured_time_of_the_other_transport() -> None:
    times = [STORED.value("library", "allowed", name, "ratio") for name in (BY_CLIENT, OURS)]
    client, direct = times
    assert client is not None
    assert direct is not None
    assert f"takes about {client / direct:.1f} times as long" in flat("docs/scaling.md")


def test_scaling_page_has_the_measured_memory_of_an_identity() -> None:
    each = STORED.value("memory", report.MANY_KEYS, OURS, "bytes each")
    assert each is not None
    page = flat("docs/scaling.md")
    assert f"about {each:.0f} bytes with one or two hits" in page
    assert f"600,000 keys and {600_000 * each / 1e6:.0f} MB" in page


def test_scaling_example_adds_up() -> None:
    """The bytes per key are those of docs/algorithms.md."""
    page = flat("docs/scaling.md")
    rows = table("docs/algorithms.md", "In numbers", number=2)
    (cells,) = [row[1:] for row in rows if row[0] == "`compact`"]
    ten, hundred, thousand, _ = cells
    assert f"takes {ten} bytes" in page
    for each, total in ((hundred, "32 MB"), (thousand, "214 MB")):
        megabytes = int(each.replace(",", "")) * 50_000 / 1e6
        assert f"{each} bytes" in page
        assert total == f"{megabytes:.0f} MB"
        assert total in page


def test_failure_modes_page_has_the_measured_shares_of_an_outage() -> None:
    page = flat("docs/failure-modes.md")
    rows = STORED.of("outage")
    checks = [row.values["ratio"] for row in rows if row.contender == CHECK]
    ways = (BY_DECORATOR, BY_MIDDLEWARE)
    added = [row.values["ratio"] for row in rows if row.contender in ways]
    assert f"takes {min(checks):.2f} to {max(checks):.2f} of its usual time" in page
    assert f"add {min(added):.2f} to {max(added):.2f} of what they usually add" in page
