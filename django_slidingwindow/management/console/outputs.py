"""Outputs that print records as JSON or plain text. The output for rich has its own module."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Protocol, TextIO, TypeAlias

from .text import in_encoding

Record: TypeAlias = "Mapping[str, Any]"
# The longest text that widens its column.
_MAX_WIDTH = 60
GOOD, WARN, BAD, DIM = ("good", "warn", "bad", "dim")


@dataclass(frozen=True, slots=True)
class Cell:
    """Text that is safe for a terminal, and a tone for outputs with colours."""

    text: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table of records."""

    title: str
    cell: Callable[[Record], Cell]
    width: int = 0
    """The width in plain text. Longer texts widen the column only if all rows are known."""
    right: bool = False
    """Whether to align the text to the right."""
    graphic: bool = False
    """Whether the column is a drawing, which plain text leaves out."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table of records, or the lines of a list of facts."""

    columns: Sequence[Column]


class Output(Protocol):
    """The interface by which the command prints."""

    def table(self, layout: Layout, records: Iterable[Record]) -> None:
        """Print one row for each record, as soon as `records` yields it."""

    def facts(self, layout: Layout, record: Record, *below: str) -> None:
        """Print one record with a line for each column, and lines of text below."""

    def note(self, text: str) -> None:
        """Print a sentence for people. It is not part of the data."""


class JsonOutput:
    """One JSON object on each line, in ASCII."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def table(self, layout: Layout, records: Iterable[Record]) -> None:
        for record in records:
            self._stream.write(json.dumps(record) + "\n")

    def facts(self, layout: Layout, record: Record, *below: str) -> None:
        self.table(layout, [record])

    def note(self, text: str) -> None:
        """Print nothing: JSON output has only data."""


def _width(width: int, *texts: str) -> int:
    """Return the width of a column for these texts."""
    return max([width, *(len(text) for text in texts if len(text) <= _MAX_WIDTH)])


class PlainOutput:
    """Aligned columns, for a pipe or a terminal without rich."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def table(self, layout: Layout, records: Iterable[Record]) -> None:
        columns = [column for column in layout.columns if not column.graphic]
        rows = ([column.cell(record).text for column in columns] for record in records)
        # Read the first record before the header is printed, or all records if they are a list. If
        # this fails, only the error is printed.
        known = list(rows if isinstance(records, list) else islice(rows, 1))
        widths = [column.width for column in columns]
        if isinstance(records, list):
            widths = [_width(*texts) for texts in zip(widths, *known, strict=True)]
        titles = [column.title.upper() for column in columns]
        for texts in chain([titles], known, rows):
            padded = [
                text.rjust(width) if column.right else text.ljust(width)
                for column, width, text in zip(columns, widths, texts, strict=True)
            ]
            self.note("  ".join(padded).rstrip())

    def facts(self, layout: Layout, record: Record, *below: str) -> None:
        columns = [column for column in layout.columns if not column.graphic]
        width = max(len(column.title) for column in columns)
        for column in columns:
            self.note(f"{column.title:<{width}}  {column.cell(record).text}")
        for line in below:
            self.note(line)

    def note(self, text: str) -> None:
        self._stream.write(in_encoding(text, getattr(self._stream, "encoding", None)) + "\n")
