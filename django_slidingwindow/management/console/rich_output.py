"""The output for terminals with rich."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .outputs import BAD, DIM, GOOD, WARN, Cell, Column, Layout, Record
from .text import in_encoding

_STYLES = {GOOD: "green", WARN: "yellow", BAD: "bold red", DIM: "dim"}
# The most rows of one table. To bound memory, a longer list continues in another table.
_ROWS = 500
# The least width to which long texts are folded.
_FOLDED = 16
# The width between two columns of the box. It also has one at each edge of the table.
_BETWEEN = 3


class RichOutput:
    """Tables with colours and bars. Text is never interpreted as markup."""

    def __init__(self, stream: TextIO, *, color: bool = True) -> None:
        self._encoding = getattr(stream, "encoding", None)
        self._console = Console(
            file=stream, force_terminal=True, no_color=not color, highlight=False
        )

    def table(self, layout: Layout, records: Iterable[Record]) -> None:
        rest = iter(records)
        rows = list(islice(rest, _ROWS))
        while True:
            cells = [[self._text(column.cell(row)) for row in rows] for column in layout.columns]
            table = Table(box=SIMPLE_HEAD, pad_edge=False)
            for column in layout.columns:
                table.add_column(
                    column.title,
                    justify="right" if column.right else "left",
                    overflow="fold",
                    no_wrap=_is_uncut(column),
                )
            for texts in zip(*cells, strict=True):
                table.add_row(*texts)
            if _width(layout.columns, cells, most=_FOLDED) > self._console.width:
                # The terminal wraps the rows. Rich would cut numbers and leave out columns.
                table.width = _width(layout.columns, cells)
            self._console.print(table, crop=False)
            rows = list(islice(rest, _ROWS))
            if not rows:
                return

    def facts(self, layout: Layout, record: Record, *below: str) -> None:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for column in layout.columns:
            table.add_row(column.title, self._text(column.cell(record)))
        self._console.print(table)
        for line in below:
            self.note(line)

    def note(self, text: str) -> None:
        self._console.print(self._text(Cell(text)))

    def _text(self, cell: Cell) -> Text:
        return Text(in_encoding(cell.text, self._encoding), style=_STYLES.get(cell.tone, ""))


def _is_uncut(column: Column) -> bool:
    """Return whether all of a cell must be on one line, because it is a number or a drawing."""
    return column.right or column.graphic


def _width(
    columns: Sequence[Column], cells: Sequence[Sequence[Text]], *, most: int | None = None
) -> int:
    """Return the width of a table, with other columns than numbers folded to `most`."""
    width = 2 - _BETWEEN
    for column, texts in zip(columns, cells, strict=True):
        longest = max([cell_len(column.title), *(text.cell_len for text in texts)])
        width += _BETWEEN + (longest if most is None or _is_uncut(column) else min(longest, most))
    return width
