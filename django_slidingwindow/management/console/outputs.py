"""Outputs that print records as JSON or plain text. The output for rich has its own module."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Protocol, TextIO, TypeAlias

from .text import in_encoding

Record: TypeAlias = "Mapping[str, Any]"
GOOD, WARN, BAD, DIM = TONES = ("good", "warn", "bad", "dim")


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
    """The width in plain text. It is fixed, because rows are printed before all are known."""
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


class PlainOutput:
    """Aligned columns, for a pipe or a terminal without rich."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def table(self, layout: Layout, records: Iterable[Record]) -> None:
        columns = [column for column in layout.columns if not column.graphic]
        rest = iter(records)
        # Read the first record before the header is printed. If this fails, only the error is
        # printed.
        first = list(islice(rest, 1))
        self._row(columns, [column.title.upper() for column in columns])
        for record in chain(first, rest):
            self._row(columns, [column.cell(record).text for column in columns])

    def _row(self, columns: Sequence[Column], texts: Sequence[str]) -> None:
        padded = [
            text.rjust(column.width) if column.right else text.ljust(column.width)
            for column, text in zip(columns, texts, strict=True)
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
