"""The report: tables in Markdown, and pictures beside it.

`python -m benchmarks.report` writes the pages, and the README's comparison, again from the stored
results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from . import readme
from .chapters import CHAPTERS, GOALS_HEAD, HEAD, Column, tenth, times, whole
from .contenders.base import BARE, LEAST_VIEW, LEAST_WINDOWS
from .facts import PACKAGES
from .goals import GOALS, Goal
from .overview import ADDED, added_picture, overview
from .pictures import bars, lines
from .results import Results, Row
from .tables import flat, table

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = "benchmarks.md"
MANY_KEYS = "many keys of two hits"


def write(results: Results, folder: Path, page: Path, missing: dict[str, str]) -> None:
    """Write the page for users, the page with our goals, and pictures and data in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    results.save(folder / "results.json")
    pictures = _pictures(results)
    if results.of("views", "allowed"):
        pictures[ADDED] = added_picture(results)
    for name, picture in pictures.items():
        (folder / f"{name}.svg").write_text(picture, encoding="utf-8")
    parts = ["# Benchmarks\n", overview(results, folder.name), _method(results, missing)]
    for section in CHAPTERS:
        if results.of(section):
            shown = [name for name in pictures if name.split("-")[0] == section]
            parts.append(
                _section(results, section, [f"{folder.name}/{name}.svg" for name in shown])
            )
    page.write_text("\n".join(parts), encoding="utf-8")
    goals_page(page).write_text(_goals(results, page.name), encoding="utf-8")


def goals_page(page: Path) -> Path:
    """Return the path of the maintainers' page beside the users' page."""
    return page.with_name(f"{page.stem}-goals.md")


def _method(results: Results, missing: dict[str, str]) -> str:
    facts = results.facts
    versions = ", ".join(f"{name} {facts[name]}" for name in PACKAGES if name in facts)
    measured = (
        f"Measured on {facts['machine']}, {facts['system']}, {facts['python']}, "
        f"Redis {facts['redis server']}. {versions}."
    )
    parts = ["## Method and machine", flat(HEAD), measured]
    parts += [f"Not measured: `{name}` ({reason})." for name, reason in missing.items()]
    return "\n\n".join(parts) + "\n"


def _goals(results: Results, page: str) -> str:
    rows, missed = [], []
    for goal in GOALS:
        value, peers = goal.measure(results), goal.peers(results)
        if value is None:
            measured, verdict = "", "not measured"
        else:
            measured, verdict = f"{value:.2f}", "yes" if goal.reached(value) else "**no**"
            if goal.spent and not goal.reached(value):
                missed.append(f"**{goal.case}**: {flat(goal.spent)}{_possible(goal, results)}\n")
        best = "" if peers is None else f"{peers:.2f}"
        rows.append([goal.case, goal.aim, measured, verdict, best])
    head = ["case", "goal", "measured", "reached", "best peer"]
    intro = flat(GOALS_HEAD.format(page=page))
    return "\n".join(["# Benchmark goals\n", f"{intro}\n", table(head, rows), *missed])


def _possible(goal: Goal, results: Results) -> str:
    value = goal.possible(results)
    return "" if value is None else f" With all left out that can be, it is {value:.2f}."


def _section(results: Results, section: str, pictures: Iterable[str]) -> str:
    chapter = CHAPTERS[section]
    parts = [f"## {chapter.title}\n", flat(chapter.intro) + "\n"]
    parts.append(f"Measured {results.facts[f'measured {section}']}.\n")
    parts += [f"![{chapter.title}]({picture})\n" for picture in pictures]
    for case in results.cases(section):
        rows = results.of(section, case)
        parts.append(f"### {chapter.title}: {case}\n")
        columns = [
            column
            for column in chapter.columns or _named_columns(rows)
            if any(column.name in row.values for row in rows)
        ]
        parts.append(_case_table(rows, columns))
        if case == MANY_KEYS:
            parts.append(_outlook(rows))
    return "\n".join(parts)


def _named_columns(rows: list[Row]) -> list[Column]:
    names = next((row.values for row in rows if row.values), {})
    return [
        Column(f"{int(name):,}" if name.isdigit() else name, name, _form(name, rows))
        for name in names
    ]


def _form(name: str, rows: list[Row]) -> Callable[[float], str]:
    values = [row.values[name] for row in rows if name in row.values]
    return whole if all(value == int(value) for value in values) else tenth


def _case_table(rows: list[Row], columns: list[Column]) -> str:
    cells = []
    for row in rows:
        if row.note:
            cells.append([row.contender, row.note, *[""] * (len(columns) - 1)])
        else:
            cells.append([row.contender, *(_cell(row, column) for column in columns)])
    return table(["", *(column.title for column in columns)], cells)


def _cell(row: Row, column: Column) -> str:
    value = row.values.get(column.name)
    text = "" if value is None else column.form(value)
    if column.name == "ratio" and text:
        text += f" ({times(row.values['ratio_low'])} to {times(row.values['ratio_high'])})"
    return text


def _outlook(rows: list[Row]) -> str:
    """Return the memory of tens of millions of keys, computed from the bytes of each."""
    millions = (1, 10, 20, 50)
    cells = [
        [
            row.contender,
            *(f"{row.values['bytes each'] * number / 1_000:.2f}" for number in millions),
        ]
        for row in rows
        if row.values
    ]
    head = ["GB at two hits each", *(f"{number} million" for number in millions)]
    return table(head, cells)


def _pictures(results: Results) -> dict[str, str]:
    # Contenders that are not limiters are only in the tables.
    drawn = [row for row in results.rows if row.contender not in (LEAST_VIEW, LEAST_WINDOWS)]
    results = Results(drawn, results.facts)
    found = {}
    for section, unit in (
        ("library", "× floor"),
        ("views", "added, × floor"),
        ("leases", "× floor"),
    ):
        for case in results.cases(section):
            rows = [row for row in results.of(section, case) if not row.contender.startswith(BARE)]
            if not any("ratio" in row.values for row in rows):
                continue
            found[f"{section}-{case}"] = _ratio_bars(
                f"{CHAPTERS[section].title}: {case}", unit, rows
            )
    for section, name, unit in (
        ("asynchronous", "per_second", "a second"),
        ("articles", "server_us", "server CPU, µs a request"),
        ("flood", "commands", "Redis commands a second"),
        ("leases", "per_second", "checks a second"),
        ("endtoend", "per_second", "requests a second"),
    ):
        for case in results.cases(section):
            rows = [row for row in results.of(section, case) if name in row.values]
            if not rows:
                continue
            slug = f"{section}-{case.replace(' ', '-').replace(',', '')}"
            title = f"{CHAPTERS[section].title}: {case}"
            flat = [(row.contender, row.values[name], 0.0, 0.0) for row in rows]
            found[slug] = bars(title, unit, flat)
    if results.of("memory"):
        case = results.cases("memory")[0]
        found["memory-hits"] = _lines("Bytes of a key", "hits", "bytes", results.of("memory", case))
    for case in results.cases("growth"):
        what, _, kind = case.partition(": ")
        if kind == "server":
            title = f"Server CPU of a check against {what}"
            found[f"growth-{what}"] = _lines(title, what, "µs", results.of("growth", case))
    return found


def _ratio_bars(title: str, unit: str, rows: list[Row]) -> str:
    # A bar far above the others would make them too short to compare. The table has its number.
    measured = sorted((row for row in rows if row.values), key=lambda row: row.values["ratio"])
    shown = [row for row in measured if row.values["ratio"] <= 6]
    return bars(
        title,
        unit,
        [
            (row.contender, values["ratio"], values["ratio_low"], values["ratio_high"])
            for row in shown
            for values in [row.values]
        ],
    )


def _lines(title: str, across: str, up: str, rows: list[Row]) -> str:
    series = {
        row.contender: [(float(x), y) for x, y in row.values.items() if y > 0]
        for row in rows
        if row.values
    }
    return lines(title, across, up, {name: line for name, line in series.items() if line})


if __name__ == "__main__":
    stored = Results.load(DOCS / "benchmarks" / "results.json")
    write(stored, DOCS / "benchmarks", DOCS / PAGE, {})
    readme.write()
