"""The results: rows of named numbers, kept as JSON beside the report."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """The numbers of one contender in one case."""

    section: str
    case: str
    contender: str
    values: dict[str, float] = field(default_factory=dict)
    note: str = ""
    """Why there are no numbers."""


class Results:
    """Rows in the order in which they were measured."""

    def __init__(self, rows: Iterable[Row] = (), facts: dict[str, str] | None = None) -> None:
        self.rows = list(rows)
        self.facts = dict(facts or {})
        """When, where and with which versions the rows were measured."""

    def replace(self, section: str, rows: Iterable[Row]) -> None:
        """Replace the rows of a section."""
        self.rows = [row for row in self.rows if row.section != section] + list(rows)

    def of(self, section: str, case: str | None = None) -> list[Row]:
        """Return the rows of a section, or of one of its cases."""
        return [row for row in self.rows if row.section == section and case in (None, row.case)]

    def cases(self, section: str) -> list[str]:
        return list(dict.fromkeys(row.case for row in self.of(section)))

    def value(self, section: str, case: str, contender: str, name: str) -> float | None:
        """Return one number; None if it was not measured."""
        for row in self.of(section, case):
            if row.contender == contender:
                return row.values.get(name)
        return None

    def save(self, path: Path) -> None:
        data = {"facts": self.facts, "rows": [asdict(row) for row in self.rows]}
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Return the saved results; empty ones if there is no such file."""
        if not path.exists():
            return cls()
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls([Row(**row) for row in data["rows"]], data["facts"])
