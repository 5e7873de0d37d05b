"""Reads log files as a stream of (stamp, identifier), and counts what it cannot use."""

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
SHOWN = 3
"""The number of unreadable lines that a report shows."""
_CHUNK = 1 << 20
_LONGEST = 1 << 20
_KEPT_OF_A_LINE = 200
_GZIP = b"\x1f\x8b"

Entry: TypeAlias = "tuple[int, str]"
"""A request: its stamp in microseconds, and the identifier that it counts for."""
Identify: TypeAlias = "Callable[[str, Fields], str | None]"
"""Return the identifier of a line and its fields; None if there is none."""


class ReadError(Exception):
    """A file cannot be read."""


@dataclass(slots=True)
class Tally:
    """What became of the lines."""

    lines: int = 0
    unreadable: int = 0
    """Lines that do not have the format, or no stamp that can be read."""
    samples: list[tuple[str, int, str]] = field(default_factory=list)
    """File, number and text of the first unreadable lines."""
    filtered: int = 0
    """Requests that the filters left out."""
    unidentified: int = 0
    """Requests without an identifier, which no limit counts."""
    late: int = 0
    """Requests that came too late in the log to be sorted."""
    bytes: int = 0
    """Bytes read so far, compressed ones as they are."""

    def reject(self, name: str, number: int, line: str) -> None:
        self.unreadable += 1
        if len(self.samples) < SHOWN:
            self.samples.append((name, number, line[:_KEPT_OF_A_LINE]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the lines of a log are read."""

    log_format: str
    stamps: Stamps
    names: Names
    identify: Identify
    filters: tuple[Filter, ...] = ()


class LogFile:
    """One log, perhaps compressed by gzip, or the standard input."""

    def __init__(self, path: str) -> None:
        """Open the file; ReadError if that fails."""
        self._own = path != STDIN
        self.name = path if self._own else "stdin"
        try:
            self._raw = _open(path)
            self._gzipped = self._raw.peek(2)[:2] == _GZIP  # type: ignore[attr-defined]
        except OSError as error:
            raise ReadError(f"cannot read {path}: {error.strerror}.") from error
        self.size = Path(path).stat().st_size if self._own else 0
        """Bytes, compressed ones as they are; 0 for the standard input."""

    def close(self) -> None:
        """Close the file. The standard input stays open: it is not ours."""
        if self._own:
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
        before = header
        for batch in chain([first[header:]], batches):
            yield from self._batch(batch, before, parse, reading, tally)
            before += len(batch)

    def _batch(
        self,
        batch: list[str],
        before: int,
        parse: Callable[[str], Fields | None],
        reading: Reading,
        tally: Tally,
    ) -> Iterator[Entry]:
        stamps, find = reading.stamps, reading.names.find
        identify, filters = reading.identify, reading.filters
        for number, line in enumerate(batch, before + 1):
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
        """Yield complete lines in batches. Of a very long line only the first part is kept."""
        rest = b""
        for chunk in self._chunks(tally):
            done, newline, tail = chunk.rpartition(b"\n")
            if newline:
                yield _decoded(rest + done)
                rest = tail
            elif len(rest) < _LONGEST:
                rest += tail
        if rest:
            yield _decoded(rest)

    def _chunks(self, tally: Tally) -> Iterator[bytes]:
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=self._raw)) if self._gzipped else self._raw
        read = 0
        try:
            while chunk := stream.read(_CHUNK):
                at = self._raw.tell() if self.size else read + len(chunk)
                tally.bytes += at - read
                read = at
                yield chunk
        except (OSError, EOFError, zlib.error) as error:
            raise ReadError(f"{self.name} is damaged or cannot be read: {error}.") from error


def _open(path: str) -> BinaryIO:
    return sys.stdin.buffer if path == STDIN else Path(path).open("rb")


def _decoded(lines: bytes) -> list[str]:
    # Not splitlines: clients can write other separators into their user agents.
    text = lines.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    return text.removeprefix("\ufeff").removesuffix("\r").split("\n")
