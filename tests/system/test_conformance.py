"""Every scenario of the conformance benchmark distinguishes a correct limiter from a faulty one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.conformance.__main__ import CONTENDERS, FOLDER
from benchmarks.conformance.lab import Lab
from benchmarks.conformance.model import ABSENT, ADMITTED, BAD, GOOD, REFUSED, Answer, Cell
from benchmarks.conformance.scenarios import SCENARIOS, measured
from benchmarks.conformance.scenarios.windows import most_in
from benchmarks.conformance.table import Table
from benchmarks.conformance.worker import load
from benchmarks.server import Server
from tests.support.servers import RedisServer

ROOT = Path(__file__).parent.parent.parent

# One xdist worker measures everything: the scenarios wait more than they compute.
pytestmark = pytest.mark.xdist_group("conformance")
AT_ONCE = 4

OURS = CONTENDERS["ours"]
NAIVE, STUBBORN, MISSING, FAILING = (
    f"tests.support.faulty_limiters:{name}" for name in ("NAIVE", "STUBBORN", "MISSING", "FAILING")
)
WRONG = {**dict.fromkeys(SCENARIOS, NAIVE), "readmission": STUBBORN}
Cells = dict[tuple[str, str], "Future[Cell]"]


def measure(path: str, scenario: str) -> Cell:
    """Measure a contender on a new server."""
    with RedisServer() as started:
        server = Server(started.url)
        with closing(server.client):
            return measured(Lab(server, path, quick=True), scenario)


@pytest.fixture(scope="module")
def cells(request: pytest.FixtureRequest) -> Iterator[Cells]:
    """The cells of the selected tests, by contender and scenario."""
    selected = [getattr(item, "callspec", None) for item in request.session.items]
    scenarios = {spec.params.get("scenario") for spec in selected if spec}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            (path, scenario): pool.submit(measure, path, scenario)
            for scenario in SCENARIOS
            if scenario in scenarios
            for path in (OURS, WRONG[scenario])
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_this_app_passes_every_scenario(cells: Cells, scenario: str) -> None:
    cell = cells[OURS, scenario].result()
    assert cell.mark == GOOD, cell


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_faulty_limiter_is_found(cells: Cells, scenario: str) -> None:
    cell = cells[WRONG[scenario], scenario].result()
    assert cell.mark == BAD, cell
    # The fault that the scenario tests, not any other failure.
    assert ("error" in cell.text) == (scenario in ("frozen", "frozen-tuned", "scripts"))


def test_equally_good_peer_gets_the_same_mark() -> None:
    drf = CONTENDERS["drf"]
    assert measure(drf, "spoofed") == Cell(BAD, "5 of 5", {"passed": 5})
    assert measure(drf, "proxy") == Cell(GOOD, "0 of 5", {"passed": 0})
    assert measure(drf, "async") == Cell(ABSENT, "no async views")


def test_limiter_that_cannot_run_is_named() -> None:
    assert measure(MISSING, "memory") == Cell(ABSENT, "not installed")
    cell = measure(FAILING, "memory")
    assert cell.mark == BAD
    assert "_no_such_thing" in cell.text


def test_most_in_a_window_counts_only_certain_requests() -> None:
    at = [0.0, 0.1, 0.9, 1.05, 1.95]
    answers = [Answer(ADMITTED, sent=second, received=second + 0.01) for second in at]
    answers.insert(2, Answer(REFUSED, sent=0.5, received=0.5))
    assert most_in(answers, 1.0) == 3
    assert most_in([], 1.0) == 0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.conformance", *arguments]
    environment = {**os.environ}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_results_are_stored_and_kept(tmp_path: Path) -> None:
    output = ["--quick", "--output", str(tmp_path)]
    done = run(*output, "--contender", "ours", "--contender", NAIVE, "mapped")
    assert done.returncode == 0, done.stderr
    cells = "| ✔ one window per client | ✘ two windows per client |"
    assert re.search(
        rf"^\| IPv4-mapped addresses \|.+{re.escape(cells)}$", done.stdout, re.MULTILINE
    )
    assert done.stdout.strip() in (tmp_path / "conformance.md").read_text(encoding="utf-8")
    again = run(*output, "--contender", STUBBORN, "subnet")
    assert again.returncode == 0, again.stderr
    table = Table.load(tmp_path)
    assert table.contenders == ["**django_slidingwindow**", "naive", "stubborn"]
    assert table.scenarios == ["mapped", "subnet"]
    assert table.shown("subnet", "naive") == ""
    assert table.facts["redis server"]


def test_unknown_scenario_is_refused() -> None:
    done = run("nonsense")
    assert done.returncode == 2
    assert "there is no scenario nonsense" in done.stderr


def test_stored_results_are_complete() -> None:
    table = Table.load(FOLDER)
    names = [load(path).name for path in CONTENDERS.values()]
    assert table.contenders == names
    assert set(table.cells) == {(slug, name) for slug in SCENARIOS for name in names}
    assert (FOLDER / "conformance.md").read_text(encoding="utf-8") == table.page()
    assert "not installed" not in table.page()
