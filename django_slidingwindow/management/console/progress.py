"""A progress bar for terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from .text import bar, in_encoding

_WIDTH = 30


@contextmanager
def progress_bar(stream: TextIO, what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that draws (done, total), or None if the stream is not a terminal."""
    if not stream.isatty():
        yield None
        return
    encoding = getattr(stream, "encoding", None)

    def draw(done: int, total: int) -> None:
        drawn = bar(min(1.0, done / total) if total else 1.0, _WIDTH)
        line = f"{drawn} {done:,} of about {max(done, total):,} {what}"
        stream.write("\r\x1b[2K" + in_encoding(line, encoding))
        stream.flush()

    try:
        yield draw
    finally:
        stream.write("\r\x1b[2K")
        stream.flush()
