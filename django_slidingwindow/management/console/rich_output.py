"""The output for terminals with rich."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .outputs import BAD, DIM, GOOD, WARN, Cell, Layout, Record
from .text import in_encoding

_STYLES = {GOOD: "green", WARN: "yellow", BAD: "bold red", DIM: "dim"}
# The most rows of one table. To bound memory, a longer list continues in another table.
_ROWS = 500


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
            table = Table(box=SIMPLE_HEAD, pad_edge=False)
            for column in layout.columns:
                table.add_column(
                    column.title,
                    justify="right" if column.right else "left",
                    overflow="fold",
                    no_wrap=column.right or column.graphic,
                )
            for record in rows:
                table.add_row(*(self._text(column.cell(record)) for column in layout.columns))
            self._console.print(table)
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
