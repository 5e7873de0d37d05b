"""Read log files as a stream of (stamp, identifier), and count the lines that cannot be used."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

from .filters import Filter
from .formats import Fields, FormatError, Names, parser
from .times import Stamps

STDIN = "-"
_MAX_SAMPLES = 3
_MAX_SAMPLE_CHARS = 200
_CHUNK_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"

Entry: TypeAlias = "tuple[int, str]"
"""A request: its stamp in microseconds, and the identifier that it counts for."""
Identify: TypeAlias = "Callable[[str, Fields], str | None]"
"""Return the identifier of a line with these fields; None if it has none."""


class ReadError(Exception):
    """A file cannot be read."""


@dataclass(slots=True)
class Tally:
    """Counts of lines and requests, by what became of them."""

    lines: int = 0
    unreadable: int = 0
    """Lines that do not match the format, or whose stamp cannot be read."""
    samples: list[tuple[str, int, str]] = field(default_factory=list)
    """File, line number and text of the first unreadable lines."""
    filtered: int = 0
    """Requests that the filters left out."""
    unidentified: int = 0
    """Requests without an identifier. No limit counts them."""
    late: int = 0
    """Requests that came too late in the log to be sorted."""
    bytes: int = 0
    """Bytes read so far, before decompression."""

    def reject(self, file: str, number: int, line: str) -> None:
        """Count an unreadable line."""
        self.unreadable += 1
        if len(self.samples) < _MAX_SAMPLES:
            self.samples.append((file, number, line[:_MAX_SAMPLE_CHARS]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the lines of a log are read."""

    log_format: str
    stamps: Stamps
    names: Names
    identify: Identify
    filters: tuple[Filter, ...] = ()


class LogFile:
    """One log: a file or the standard input, plain or compressed by gzip."""

    def __init__(self, path: str) -> None:
        """Open the file; raise ReadError if that fails."""
        self._is_file = path != STDIN
        self.name = path if self._is_file else "stdin"
        try:
            self._raw = _open(path)
            self._gzipped = self._raw.peek(2)[:2] == _GZIP_MAGIC  # type: ignore[attr-defined]
        except OSError as error:
            raise ReadError(f"cannot read {path}: {error.strerror}.") from error
        self.size = Path(path).stat().st_size if self._is_file else 0
        """Bytes, before decompression; 0 for the standard input."""

    def close(self) -> None:
        """Close the file. The standard input stays open, because others may use it."""
        if self._is_file:
            self._raw.close()

    def entries(self, reading: Reading, tally: Tally) -> Iterator[Entry]:
        """Yield the requests in the order of the lines."""
        batches = self._lines(tally)
        first = next(batches, [])
        if not first:
            return
        try:
            parse, header = parser(reading.log_format, first)
        except FormatError as error:
            raise FormatError(f"{self.name}: {error}") from error
        number = 1 + header
        for batch in chain([first[header:]], batches):
            yield from self._batch(batch, number, parse, reading, tally)
            number += len(batch)

    def _batch(
        self,
        batch: list[str],
        first_number: int,
        parse: Callable[[str], Fields | None],
        reading: Reading,
        tally: Tally,
    ) -> Iterator[Entry]:
        """Yield the requests of some lines; `first_number` is the number of the first line."""
        stamps, find = reading.stamps, reading.names.find
        identify, filters = reading.identify, reading.filters
        for number, line in enumerate(batch, first_number):
            if not line:
                continue
            tally.lines += 1
            fields = parse(line)
            text = None if fields is None else find(fields, "time")
            if fields is None or text is None:
                tally.reject(self.name, number, line)
                continue
            try:
                stamp = stamps(text)
            except ValueError:
                tally.reject(self.name, number, line)
                continue
            if filters and not all(keeps(stamp, fields) for keeps in filters):
                tally.filtered += 1
                continue
            identifier = identify(line, fields)
            if identifier is None:
                tally.unidentified += 1
            else:
                yield stamp, identifier

    def _lines(self, tally: Tally) -> Iterator[list[str]]:
        """Yield complete lines in batches. A very long line is cut."""
        rest = b""
        for chunk in self._chunks(tally):
            done, newline, tail = chunk.rpartition(b"\n")
            if newline:
                yield _decoded(rest + done)
                rest = tail
            elif len(rest) < _MAX_LINE_BYTES:
                rest += tail
        if rest:
            yield _decoded(rest)

    def _chunks(self, tally: Tally) -> Iterator[bytes]:
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=self._raw)) if self._gzipped else self._raw
        read = 0
        try:
            while chunk := stream.read(_CHUNK_BYTES):
                at = self._raw.tell() if self.size else read + len(chunk)
                tally.bytes += at - read
                read = at
                yield chunk
        except (OSError, EOFError, zlib.error) as error:
            raise ReadError(f"{self.name} is damaged or cannot be read: {error}.") from error


def _open(path: str) -> BinaryIO:
    return sys.stdin.buffer if path == STDIN else Path(path).open("rb")


def _decoded(lines: bytes) -> list[str]:
    # A crash, or a rotation with copytruncate, leaves NULs in front of the next line.
    text = lines.replace(b"\0", b"").decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    # Not splitlines(), which knows more separators: clients can put those into their user agents.
    return text.removeprefix("\ufeff").removesuffix("\r").split("\n")
