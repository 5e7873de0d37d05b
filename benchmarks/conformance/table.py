"""The results of a comparison, kept as JSON and shown as a table in Markdown."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from ..facts import PACKAGES
from .model import ABSENT, BAD, GOOD, Cell
from .scenarios import SCENARIOS

MARKS = {GOOD: "✔", BAD: "✘", ABSENT: "–"}
JSON, PAGE = "conformance.json", "conformance.md"
MEASURED, AGAIN = "measured", "partly measured again"
HEAD = """\
# Conformance

Written by `tox -e conformance` (`python -m benchmarks.conformance`): this app and its peers in the
situations that rate limiters get wrong, on a real Redis. ✔ good, ✘ bad, – not offered.

- Each library is configured at its best, unless the row says "as installed".
- Django apps and DRF answer requests through Django's handlers. limits, throttled-py and
  pyrate-limiter are called directly, with the client's address as the key.
- Each library runs in processes of its own. A wrong clock is a process whose `time.time` is 66 s
  ahead or behind. A frozen Redis is stopped by SIGSTOP; a slow one by CLIENT PAUSE.
- In the rows about windows and Retry-After an answer counts against a library only if the times at
  which it was sent and received prove it.
"""


class Table:
    """Cells by scenario and contender, in the order of the scenarios."""

    def __init__(
        self,
        cells: dict[tuple[str, str], Cell] | None = None,
        facts: dict[str, str] | None = None,
    ) -> None:
        self.cells = dict(cells or {})
        self.facts = dict(facts or {})
        """When, where and with which versions."""

    @property
    def contenders(self) -> list[str]:
        return list(dict.fromkeys(name for _, name in self.cells))

    @property
    def scenarios(self) -> list[str]:
        return [slug for slug in SCENARIOS if any(found == slug for found, _ in self.cells)]

    def markdown(self) -> str:
        """Return the table."""
        head = ["", "good is", *self.contenders]
        lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for slug in self.scenarios:
            shown = [self.shown(slug, name) for name in self.contenders]
            scenario = SCENARIOS[slug]
            lines.append("| " + " | ".join([scenario.title, scenario.good, *shown]) + " |")
        return "\n".join(lines) + "\n"

    def shown(self, scenario: str, contender: str) -> str:
        """Return the mark and the words of one cell; nothing if it was not measured."""
        cell = self.cells.get((scenario, contender))
        return "" if cell is None else f"{MARKS[cell.mark]} {cell.text}"

    def page(self) -> str:
        """Return the whole page."""
        facts = self.facts
        versions = ", ".join(f"{name} {facts[name]}" for name in PACKAGES if name in facts)
        measured = [f"{name} {facts[name]}" for name in (MEASURED, AGAIN) if name in facts]
        where = f"{facts['machine']}, {facts['system']}, {facts['python']}"
        lines = [*measured, where, f"Redis {facts['redis server']}", versions]
        return f"{HEAD}\n{self.markdown()}\n" + "\n".join(f"- {line}" for line in lines) + "\n"

    def save(self, folder: Path) -> None:
        """Write both files."""
        folder.mkdir(parents=True, exist_ok=True)
        rows = [
            {"scenario": slug, "contender": name, **asdict(self.cells[slug, name])}
            for slug in self.scenarios
            for name in self.contenders
            if (slug, name) in self.cells
        ]
        text = json.dumps({"facts": self.facts, "cells": rows}, indent=1, ensure_ascii=False)
        (folder / JSON).write_text(text + "\n", encoding="utf-8")
        (folder / PAGE).write_text(self.page(), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Table:
        """Return what was saved; an empty table if nothing was."""
        path = folder / JSON
        if not path.exists():
            return cls()
        data = json.loads(path.read_text(encoding="utf-8"))
        cells = {
            (row["scenario"], row["contender"]): Cell(row["mark"], row["text"], row["values"])
            for row in data["cells"]
        }
        return cls(cells, data["facts"])
