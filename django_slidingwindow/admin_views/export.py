"""The list as CSV: streamed, bounded, and harmless in a spreadsheet."""

from __future__ import annotations

import csv
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.translation import gettext as _

from ..models import Rejection, RejectionQuerySet

MOST_ROWS = 100_000
CHUNK = 2_000
COLUMNS = [
    field.name for field in Rejection._meta.concrete_fields if field.name not in ("id", "digest")
]
# What a spreadsheet takes for the start of a formula; of =, + - and @ the wide ones as well.
# A cell starts with the text, and inside it behind each character that separates cells where
# a spreadsheet is set so: the file's quotes mean nothing then, and may stand before a formula.
_FORMULA = re.compile(r"""(^|[;\t\r\n])(?=[\s"']*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])""")


class _Echo:
    """A file that gives back what is written to it."""

    def write(self, text: str) -> str:
        return text


def export(request: HttpRequest, rows: RejectionQuerySet) -> StreamingHttpResponse:
    """The newest of these rows, in their default order."""
    lines = _lines(rows)
    # Under ASGI a plain iterator would be read to its end before the first byte is sent.
    content: Any = _each(lines) if isinstance(request, ASGIRequest) else lines
    return StreamingHttpResponse(
        content,
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="rejections.csv"'},
    )


async def _each(lines: Iterator[str]) -> AsyncIterator[str]:
    def following() -> str:
        return next(lines, "")

    while text := await sync_to_async(following)():
        yield text


def _lines(rows: RejectionQuerySet) -> Iterator[str]:
    """A chunk of lines at a time, each with a query of its own that follows the index."""
    writer = csv.writer(_Echo())
    yield writer.writerow(COLUMNS)
    left, page = MOST_ROWS, rows
    while left > 0:
        found = list(page[: min(CHUNK, left)])
        if not found:
            return
        yield "".join(
            writer.writerow([cell(getattr(row, name)) for name in COLUMNS]) for row in found
        )
        left -= len(found)
        page = rows.before(found[-1].minute, found[-1].pk)
    if page.exists():
        yield writer.writerow([_("Only the newest %d rows are exported.") % MOST_ROWS])


def cell(value: Any) -> str:
    """A value as a spreadsheet shall show it, and not run it."""
    if value is None:
        return ""
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return _FORMULA.sub(r"\1'", value) if isinstance(value, str) else str(value)
