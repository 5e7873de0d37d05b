"""Export the list as CSV: streamed, bounded, and safe in a spreadsheet."""

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

MAX_ROWS = 100_000
CHUNK = 2_000
"""The number of rows that one query reads."""
COLUMNS = [
    field.name for field in Rejection._meta.concrete_fields if field.name not in ("id", "digest")
]
# Positions where a spreadsheet could start a formula: before = + - @ and their full-width forms.
# A cell starts at the beginning of a text. It also starts after ; tab and line breaks, because a
# spreadsheet may use them as separators. It then treats the quotes of the file as text, so
# quotes may come before the formula.
_FORMULA = re.compile(r"""(^|[;\t\r\n])(?=[\s"']*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])""")


class _Echo:
    """A file whose `write` returns the text, as `csv.writer` needs it for streaming."""

    def write(self, text: str) -> str:
        return text


def export(request: HttpRequest, rows: RejectionQuerySet) -> StreamingHttpResponse:
    """Return a response that streams the newest rows in their default order."""
    # Translate now: the language of the request may not be active while the lines are sent.
    lines = _lines(rows, _("Only the newest %(count)d rows are exported.") % {"count": MAX_ROWS})
    # Under ASGI, Django would read a plain iterator to its end before it sends the first byte.
    content: Any = _async_lines(lines) if isinstance(request, ASGIRequest) else lines
    return StreamingHttpResponse(
        content,
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="rejections.csv"'},
    )


async def _async_lines(lines: Iterator[str]) -> AsyncIterator[str]:
    next_lines = sync_to_async(lambda: next(lines, ""))
    while text := await next_lines():
        yield text


def _lines(rows: RejectionQuerySet, note: str) -> Iterator[str]:
    """Yield the lines in chunks, one query for each. End with `note` if rows are left out."""
    writer = csv.writer(_Echo())
    yield writer.writerow(COLUMNS)
    left, page = MAX_ROWS, rows
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
        yield writer.writerow([note])


def cell(value: Any) -> str:
    """Return a value as text that a spreadsheet does not run as a formula."""
    if value is None:
        return ""
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return _FORMULA.sub(r"\1'", value) if isinstance(value, str) else str(value)
