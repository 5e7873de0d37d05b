"""The benchmarks in their smallest size: every section runs, and the report shows the results."""

from __future__ import annotations

import importlib
import math
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest

from benchmarks import compare, fallback, pictures, replay, report
from benchmarks.bench import SIZES
from benchmarks.chapters import CHAPTERS
from benchmarks.contenders.base import (
    FLOOR,
    LEAST_VIEW,
    LEAST_WINDOWS,
    OURS,
    OURS_DRF,
    OURS_NINJA,
)
from benchmarks.goals import GOALS
from benchmarks.measure import Probe, middle, numbers, percentiles
from benchmarks.progress import Progress
from benchmarks.results import Results, Row
from tests.support.suite.needs import REDIS_BENCHMARK, WRK, require

ROOT = Path(__file__).parent.parent.parent
# Sections that need a load generator. Without it, the report says so instead.
OPTIONAL = {"articles": REDIS_BENCHMARK, "endtoend": WRK}
FACTS = {
    "machine": "2 cores",
    "system": "Linux",
    "python": "CPython 3.12",
    "redis server": "7.0.15",
    "measured library": "2026-01-02 03:04 UTC, size 'tiny', load average 0.1 0.1 0.1",
    "django": "6.1",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the output of a run of all sections."""
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "benchmarks", "--size", "tiny", "--output", str(folder)]
    environment = {**os.environ}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for name, chapter in CHAPTERS.items():
        measured = name not in OPTIONAL or not OPTIONAL[name].missing()
        if measured and "set-up" not in chapter.title:
            assert chapter.title.split(",")[0] in done.stderr
    return folder


@pytest.fixture(scope="module")
def results(written: Path) -> Results:
    return Results.load(written / "benchmarks" / "results.json")


@pytest.mark.parametrize("section", CHAPTERS)
def test_section_measures_this_app_in_every_case(results: Results, section: str) -> None:
    if section in OPTIONAL:
        require(OPTIONAL[section])
    assert results.cases(section)
    for case in results.cases(section):
        rows = results.of(section, case)
        assert [row.note for row in rows if row.note] == []
        ours = [row for row in rows if "ours" in row.contender]
        assert ours
        for row in ours:
            assert all(math.isfinite(value) for value in row.values.values())


@pytest.mark.parametrize(
    ("section", "program"), [("articles", "redis-benchmark"), ("endtoend", "wrk")]
)
def test_section_reports_a_missing_load_generator(
    section: str, program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    module = importlib.import_module(f"benchmarks.sections.{section}")
    (row,) = module.run(None)
    assert program in row.note


def test_check_is_compared_with_the_floor(results: Results) -> None:
    assert results.cases("library") == ["allowed", "refused", "big"]
    assert results.value("library", "allowed", FLOOR, "ratio") == 1.0
    assert (results.value("library", "allowed", OURS, "ratio") or 0) > 0
    assert results.value("library", "allowed", OURS, "commands") == 1
    assert results.value("library", "refused", OURS, "commands") == 0
    assert (results.value("views", "allowed", "ours, decorator, three profiles", "commands")) == 1


@pytest.mark.parametrize("throttle", [OURS_DRF, OURS_NINJA])
def test_throttles_of_frameworks_charge_and_refuse(results: Results, throttle: str) -> None:
    assert results.value("views", "allowed", throttle, "commands") == 1
    # The shield refuses, without a command.
    assert results.value("views", "refused", throttle, "commands") == 0


@pytest.mark.parametrize(("ratio", "shown"), [(0.7, False), (0.71, True)])
def test_missed_goal_shows_where_the_time_goes(tmp_path: Path, ratio: float, shown: bool) -> None:
    (goal,) = [goal for goal in GOALS if goal.case == "Django, allowed, decorator"]
    facts = {**FACTS, "measured views": FACTS["measured library"]}
    values = dict.fromkeys(("ratio", "ratio_low", "ratio_high"), ratio)
    page = tmp_path / "page.md"
    least = dict.fromkeys(("ratio", "ratio_low", "ratio_high"), 0.58)
    rows = [
        Row("views", "allowed", "**ours, decorator**", values),
        Row("views", "allowed", LEAST_VIEW, least),
    ]
    report.write(Results(rows, facts), tmp_path / "pictures", page, {})
    text = report.goals_page(page).read_text(encoding="utf-8")
    assert (f"\n**{goal.case}**: An exchange with Redis" in text) == shown
    assert ("With all left out that can be, it is 0.58." in text) == shown
    # The least possible work is in the table, but not in the picture, because it is not a limiter.
    assert f"| {LEAST_VIEW} |" in page.read_text(encoding="utf-8")
    picture = (tmp_path / "pictures" / "views-allowed.svg").read_text(encoding="utf-8")
    assert "ours, decorator" in picture
    assert LEAST_VIEW not in picture


def test_least_possible_work_is_measured_beside_this_app(results: Results) -> None:
    for goal in GOALS:
        if goal.spent:
            # It may be 0: on a busy machine, such a short run may measure no time at all.
            assert goal.possible(results) is not None
    (case,) = [
        row.case for row in results.of("views") if row.contender == LEAST_VIEW and row.values
    ]
    assert case == "allowed"
    least = results.value("growth", "policies: server", LEAST_WINDOWS, "8")
    assert least is not None
    assert least > 0


def test_memory_and_growth_have_their_columns(results: Results) -> None:
    (case, many) = results.cases("memory")
    assert (results.value("memory", case, OURS, "10") or 0) > 50
    assert (results.value("memory", many, OURS, "bytes each") or 0) > 50
    assert len(results.cases("growth")) == 8
    assert (results.value("growth", "policies: server", OURS, "8") or 0) > 0


def test_keys_are_filled_by_checks_and_expire(results: Results) -> None:
    filled, checked, expired = results.cases("keys")
    size = SIZES["tiny"]
    assert [row.contender for row in results.of("keys", filled)] == [
        f"ours, {count:,} keys" for count in (40, 400, size.filled_keys)
    ]
    most = f"ours, {size.filled_keys:,} keys"
    assert (results.value("keys", filled, most, "bytes each") or 0) > 50
    assert (results.value("keys", checked, most, "99 %, µs") or 0) > 0
    (row,) = results.of("keys", expired)
    assert 0 <= row.values["left after 0 s"] <= size.expiring_keys


def test_huge_size_has_as_many_keys_as_the_articles() -> None:
    assert SIZES["huge"].filled_keys == 10_000_000


def test_windows_of_one_slot_take_one_call_and_leases_of_several_none(results: Results) -> None:
    one, three = results.cases("cluster")

    def commands(case: str, contender: str) -> float | None:
        return results.value("cluster", case, contender, "commands")

    assert commands(one, "ours, three windows") == 1
    # A peek at each window, then a charge of each.
    assert commands(three, "**ours, three windows**") == 6
    assert commands(three, "ours, all with lease 100") < 1  # type: ignore[operator]


def test_latency_of_the_articles_requests_is_measured(results: Results) -> None:
    require(REDIS_BENCHMARK)
    (case,) = results.cases("articles")
    found = [results.value("articles", case, OURS, name) for name in ("p50_ms", "p95_ms", "p99_ms")]
    assert None not in found
    assert found == sorted(found, key=float)  # type: ignore[arg-type]


def test_column_without_a_number_is_left_out(written: Path) -> None:
    page = (written / "benchmarks.md").read_text(encoding="utf-8")
    _, leases = page.split("### Leases: library")
    assert "checks a second" not in leases.split("###")[0]


def test_report_has_every_section_and_its_pictures(written: Path) -> None:
    page = (written / "benchmarks.md").read_text(encoding="utf-8")
    for chapter in CHAPTERS.values():
        assert f"\n## {chapter.title}\n" in page
    goals = report.goals_page(written / "benchmarks.md").read_text(encoding="utf-8")
    for goal in GOALS:
        assert f"| {goal.case} | {goal.aim} |" in goals
    shown = [line.split("](")[1].rstrip(")") for line in page.splitlines() if line[:2] == "!["]
    assert len(shown) >= 12
    for picture in shown:
        assert ElementTree.parse(written / picture).getroot().tag.endswith("svg")


def test_report_names_no_machine(written: Path) -> None:
    page = (written / "benchmarks.md").read_text(encoding="utf-8")
    assert os.uname().nodename not in page
    assert str(Path.home()) not in page


def test_unknown_section_is_refused() -> None:
    command = [sys.executable, "-m", "benchmarks", "nonsense"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no section nonsense" in done.stderr


def measured(ratio: float, **values: float) -> Results:
    spread = {"ratio": ratio, "ratio_low": ratio, "ratio_high": ratio, **values}
    peers = {"ratio": 1.5, "ratio_low": 1.4, "ratio_high": 1.6}
    floor = {"ratio": 1.0, "ratio_low": 1.0, "ratio_high": 1.0}
    rows = [
        Row("library", "allowed", FLOOR, floor),
        Row("library", "allowed", "a peer", peers),
        Row("library", "allowed", OURS, spread),
    ]
    return Results(rows, FACTS)


@pytest.mark.parametrize(("ratio", "verdict"), [(0.9, "yes"), (0.91, "**no**")])
def test_goal_shows_whether_it_is_reached(tmp_path: Path, ratio: float, verdict: str) -> None:
    page = tmp_path / "page.md"
    report.write(measured(ratio), tmp_path / "pictures", page, {"peer": "is not installed"})
    goals = report.goals_page(page).read_text(encoding="utf-8")
    assert f"| {GOALS[0].case} | {GOALS[0].aim} | {ratio:.2f} | {verdict} | 1.50 |" in goals
    assert f"| {GOALS[1].case} | {GOALS[1].aim} |  | not measured |" in goals
    text = page.read_text(encoding="utf-8")
    assert "Not measured: `peer` (is not installed)." in text
    assert "2 cores" in text
    assert "Measured 2026-01-02 03:04 UTC, size 'tiny', load average 0.1 0.1 0.1." in text
    assert "django 6.1." in text


def test_goal_with_a_minimum_is_reached_from_that_value_on() -> None:
    goals = [goal for goal in GOALS if goal.least]
    assert goals
    for goal in goals:
        assert goal.reached(goal.bound)
        assert not goal.reached(goal.bound - 0.01)


def test_new_measurement_replaces_only_its_section(tmp_path: Path) -> None:
    results = measured(0.9)
    results.replace("memory", [Row("memory", "case", OURS, {"10": 120.0})])
    results.replace("library", [Row("library", "allowed", OURS, note="failed")])
    results.save(tmp_path / "results.json")
    loaded = Results.load(tmp_path / "results.json")
    assert loaded.rows == results.rows
    assert loaded.facts == FACTS
    assert loaded.value("memory", "case", OURS, "10") == 120.0
    assert loaded.value("library", "allowed", FLOOR, "ratio") is None
    assert Results.load(tmp_path / "nothing.json").rows == []


def test_ratio_is_taken_within_each_round() -> None:
    # The machine is ten times slower in the second round, for both of them.
    floor = Probe("floor", print, wall=[1.0, 10.0, 1.0], client=[0.6, 6.0, 0.6])
    ours = Probe("ours", print, wall=[0.5, 5.0, 0.5], client=[0.3, 3.0, 0.3])
    floor.server, ours.server = [0.4, 4.0, 0.4], [0.2, 2.0, 0.2]
    shown = numbers(ours, floor, {})
    assert shown["ratio"] == shown["ratio_low"] == shown["ratio_high"] == pytest.approx(0.5)
    assert shown["wall_ratio"] == pytest.approx(0.5)
    assert shown["busy_us"] == pytest.approx(500_000)


def test_added_time_is_less_than_the_whole() -> None:
    bare = Probe("bare", print, wall=[1.0], client=[1.0], server=[0.0])
    floor = Probe("floor", print, base="bare", wall=[2.0], client=[1.5], server=[0.5])
    ours = Probe("ours", print, base="bare", wall=[1.5], client=[1.25], server=[0.25])
    shown = numbers(ours, floor, {"bare": bare})
    assert shown["ratio"] == shown["wall_ratio"] == pytest.approx(0.5)


def test_middle_half_has_a_median() -> None:
    assert middle([5.0]) == (5.0, 5.0, 5.0)
    assert middle([1.0, 2.0, 3.0, 4.0, 100.0]) == (3.0, 2.0, 4.0)


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentiles([float(n) for n in range(1, 201)]) == {50: 100, 95: 190, 99: 198}
    assert percentiles([3.0]) == {50: 3.0, 95: 3.0, 99: 3.0}


def test_pictures_escape_what_they_show() -> None:
    drawn = pictures.bars("a < b & c", "times", [("**ours** <x>", 1, 0.5, 1.5), ("none", 0, 0, 0)])
    texts = [element.text for element in ElementTree.fromstring(drawn).iter()]
    assert "a < b & c" in texts
    assert "ours <x>" in texts


def test_lines_that_end_together_have_labels_apart() -> None:
    flat = [(1.0, 5.0), (100.0, 5.0)]
    drawn = pictures.lines("title", "hits", "bytes", {"one": flat, "two": flat, "three": flat})
    labels = [
        float(element.get("y") or 0)
        for element in ElementTree.fromstring(drawn).iter()
        if element.text in ("one", "two", "three")
    ]
    assert len(labels) == 3
    first, second, third = sorted(labels)
    assert min(second - first, third - second) >= 12
    assert ElementTree.fromstring(pictures.lines("none", "x", "y", {})).tag.endswith("svg")


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_grows_on_a_terminal_and_is_one_line_elsewhere() -> None:
    shown = []
    for stream in (Terminal(), StringIO()):
        progress = Progress(stream)
        progress.begin("Library", 2)
        progress.step("ours")
        progress.end()
        progress.end()
        shown.append(stream.getvalue())
    assert "50% Library ours" in shown[0]
    assert "%" not in shown[1]
    assert shown[1].startswith("Library: ")
    assert shown[1].count("\n") == 1


def test_replay_is_measured_beside_awk(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["replay", "--lines", "2000", "--clients", "50"])
    replay.main()
    printed = capsys.readouterr().out
    assert "2,000 lines" in printed
    # awk and the replay see the same requests and clients.
    assert "2000 50\n" in printed
    assert re.search(r"^60/m +2,000 .* 50 ", printed, re.MULTILINE)
    assert len(re.findall(r"^(awk|replay): .* lines a second, peak", printed, re.MULTILINE)) == 2


def test_memory_of_the_fallback_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback, "CASES", ((50, 100, 2),))
    fallback.main()
    assert "FALLBACK_MAX_KEYS 50: 100 identifiers of 2 hits each" in capsys.readouterr().out


def test_two_checkouts_are_compared_case_by_case(capsys: pytest.CaptureFixture[str]) -> None:
    compare.main([str(ROOT), "--starts", "1", "--turns", "2"])
    _, bare, floor, *lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"bare view +[\d.]+ ± 0\.0", bare), bare
    assert re.fullmatch(r"floor +-?[\d.]+ ± 0\.0", floor), floor
    assert len(lines) == 8
    for line in lines:
        # Two turns on a busy machine may be quicker than the bare view.
        numbers = r"( +-?[\d.]+ ± 0\.0){2} +[+-][\d.]+ ± 0\.0 %( +-?[\d.]+ x){2}"
        if line.startswith("check"):
            numbers = numbers.removesuffix(r"( +-?[\d.]+ x){2}")
        assert re.fullmatch(rf"[a-z, ]+{numbers}", line), line


def test_difference_is_to_the_first_checkout_of_the_same_start() -> None:
    references = {"bare view": 50.0, "floor": 200.0}
    starts = [
        (references, [{"check": 100.0}, {"check": 110.0}]),
        (references, [{"check": 120.0}, {"check": 132.0}]),
    ]
    *_, line = compare.table(starts)
    measured = ["110.0", "±", "10.0", "121.0", "±", "11.0"]
    assert line.split() == ["check", *measured, "+10.0", "±", "0.0", "%"]


def test_view_is_compared_with_the_floor_as_well() -> None:
    starts = [({"bare view": 50.0, "floor": 200.0}, [{"decorator": 100.0}, {"decorator": 150.0}])]
    bare, floor, line = compare.table(starts)
    assert bare.split() == ["bare", "view", "50.0", "±", "0.0"]
    assert floor.split() == ["floor", "200.0", "±", "0.0"]
    assert line.split()[-6:] == ["0.0", "%", "0.50", "x", "0.75", "x"]


def test_view_shows_its_time_beyond_the_bare_view(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    takes = {"bare view": 7.0, "floor": 27.0, "decorator, allowed": 20.0, "check, allowed": 4.0}

    class Known(compare.Side):
        def __init__(self, process: object) -> None:
            self.cases = [*takes]

        def ask(self, case: str, calls: int) -> float:
            return takes[case]

    monkeypatch.setattr(compare, "Side", Known)
    monkeypatch.setattr(compare, "process", lambda *_: nullcontext())
    found = compare.measure([ROOT], None, 3, Random(1))
    assert found == (
        {"bare view": 7.0, "floor": 20.0},
        [{"decorator, allowed": 13.0, "check, allowed": 4.0}],
    )


def test_checkout_that_cannot_be_measured_is_an_error(tmp_path: Path) -> None:
    package = tmp_path / "django_slidingwindow"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('broken')")
    with pytest.raises(SystemExit, match="could not be measured"):
        compare.main([str(tmp_path), "--starts", "1", "--turns", "1"])
