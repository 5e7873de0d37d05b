"""A progress bar on a terminal, and nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from .text import bar, in_encoding

_WIDTH = 30


@contextmanager
def progress_bar(stream: TextIO, what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A function to tell (done, total), or None where there is no terminal."""
    if not stream.isatty():
        yield None
        return
    encoding = getattr(stream, "encoding", None)

    def tell(done: int, total: int) -> None:
        drawn = bar(min(1.0, done / total) if total else 1.0, _WIDTH)
        line = f"{drawn} {done:,} of about {max(done, total):,} {what}"
        stream.write("\r\x1b[2K" + in_encoding(line, encoding))
        stream.flush()

    try:
        yield tell
    finally:
        stream.write("\r\x1b[2K")
        stream.flush()
