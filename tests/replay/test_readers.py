"""From files to requests: compression, order, filters, and lines that cannot be used."""

from __future__ import annotations

import gzip
import io
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidingwindow.replay import filters, readers
from django_slidingwindow.replay.formats import Names
from django_slidingwindow.replay.identify import identify_by
from django_slidingwindow.replay.ordering import in_order
from django_slidingwindow.replay.readers import Entry, LogFile, ReadError, Reading, Tally
from django_slidingwindow.replay.times import SECOND, Stamps

NAMES = Names()
GOOD = b'{"time": 5, "ip": "192.0.2.1"}'


def reading(*kept: filters.Filter, log_format: str = "json") -> Reading:
    return Reading(
        log_format=log_format,
        stamps=Stamps(),
        names=NAMES,
        identify=identify_by("ip", NAMES),
        filters=kept,
    )


def read(path: Path | str, how: Reading | None = None) -> tuple[list[Entry], Tally]:
    tally = Tally()
    with closing(LogFile(str(path))) as log:
        return list(log.entries(how or reading(), tally)), tally


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "access.log"


ENTRY = (5 * SECOND, "192.0.2.1")


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_plain_and_gzipped_files_have_the_same_requests(log: Path, end: bytes) -> None:
    lines = GOOD + b"\r\n\n" + GOOD + end
    for data in (lines, gzip.compress(lines), b"\xef\xbb\xbf" + lines):
        log.write_bytes(data)
        found, tally = read(log)
        assert found == [ENTRY, ENTRY]
        assert (tally.lines, tally.unreadable, tally.bytes) == (2, 0, len(data))


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for data in (GOOD, gzip.compress(GOOD)):
        stream = io.BufferedReader(io.BytesIO(data))
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
        found, tally = read("-")
        assert found == [ENTRY]
        assert tally.bytes == len(GOOD)


def test_empty_file_has_no_requests(log: Path) -> None:
    log.write_bytes(b"")
    assert read(log, reading(log_format="auto")) == ([], Tally())


def test_unreadable_lines_are_counted_and_the_first_three_are_kept(log: Path) -> None:
    bad = [b"rubbish", b'{"ip": "192.0.2.1"}', b'{"time": "noon"}', b"\xff\xfe" * 500]
    log.write_bytes(b"\n".join([GOOD, *bad, GOOD]))
    found, tally = read(log)
    assert found == [ENTRY, ENTRY]
    assert (tally.lines, tally.unreadable) == (6, 4)
    assert tally.samples == [
        (str(log), 2, "rubbish"),
        (str(log), 3, '{"ip": "192.0.2.1"}'),
        (str(log), 4, '{"time": "noon"}'),
    ]


def test_line_numbers_count_the_header_and_earlier_batches(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_CHUNK_BYTES", 16)
    log.write_bytes(b"time,ip\n5,192.0.2.1\n\n5,192.0.2.1\nrubbish\n")
    found, tally = read(log, reading(log_format="csv"))
    assert found == [ENTRY, ENTRY]
    assert tally.samples == [(str(log), 5, "rubbish")]


def test_nuls_in_front_of_a_line_are_left_out(log: Path) -> None:
    line = b'192.0.2.1 - - [01/Jan/1970:00:00:05 +0000] "GET / HTTP/1.1" 200 1\n'
    log.write_bytes(b"\0" * 3_000_000 + line + b"\0" * 5 + line)
    found, tally = read(log, reading(log_format="auto"))
    assert found == [ENTRY, ENTRY]
    assert (tally.lines, tally.unreadable) == (2, 0)


def test_very_long_line_takes_bounded_memory(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_CHUNK_BYTES", 64)
    monkeypatch.setattr(readers, "_MAX_LINE_BYTES", 64)
    log.write_bytes(b"x" * 10_000 + b"\n" + GOOD)
    found, tally = read(log)
    assert found == [ENTRY]
    ((_, _, text),) = tally.samples
    assert len(text) <= 200


def test_requests_without_an_identifier_are_counted(log: Path) -> None:
    log.write_bytes(b'{"time": 5, "ip": "-"}\n{"time": 5}\n' + GOOD)
    found, tally = read(log)
    assert (found, tally.unidentified, tally.unreadable) == ([ENTRY], 2, 0)


def test_read_error_is_raised_when_a_file_cannot_be_read(tmp_path: Path, log: Path) -> None:
    for path in (tmp_path / "gone", tmp_path):
        with pytest.raises(ReadError, match="cannot read"):
            read(path)
    log.write_bytes(gzip.compress(GOOD * 1000)[:-20])
    with pytest.raises(ReadError, match="is damaged"):
        read(log)


@pytest.mark.parametrize(
    ("keeps", "expected"),
    [
        (filters.by_path("^/a", NAMES), ["1", "3"]),
        (filters.by_method(["get"], NAMES), ["1", "2"]),
        (filters.by_status(["2xx"], NAMES), ["1", "2"]),
        (filters.by_status(["200", "429"], NAMES), ["1", "3"]),
        (filters.by_status(["!429"], NAMES), ["1", "2", "4"]),
        (filters.by_status(["!2xx", "!429"], NAMES), ["4"]),
        (filters.since(2 * SECOND), ["2", "3", "4"]),
        (filters.until(2 * SECOND), ["1"]),
    ],
)
def test_filters_keep_matching_requests(
    log: Path, keeps: filters.Filter, expected: list[str]
) -> None:
    log.write_text(
        '{"time": 1, "ip": "1", "request": "GET /a HTTP/1.1", "status": 200}\n'
        '{"time": 2, "ip": "2", "request": "GET /b HTTP/1.1", "status": 204}\n'
        '{"time": 3, "ip": "3", "method": "POST", "path": "/a", "status": 429}\n'
        '{"time": 4, "ip": "4"}\n'
    )
    found, tally = read(log, reading(keeps))
    assert [identifier for _, identifier in found] == expected
    assert tally.filtered == 4 - len(expected)


def test_filters_raise_for_wrong_values() -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        filters.by_path("(", NAMES)
    with pytest.raises(ValueError, match="is not a status"):
        filters.by_status(["20"], NAMES)


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=30), min_size=1, max_size=3), st.integers(1, 40)
)
def test_in_order_sorts_stamps_and_loses_nothing(logs: list[list[int]], buffer: int) -> None:
    tally = Tally()
    entries = [[(stamp, f"{i}-{j}") for j, stamp in enumerate(log)] for i, log in enumerate(logs)]
    found = list(in_order(entries, tally, buffer=buffer))
    stamps = [stamp for stamp, _ in found]
    assert stamps == sorted(stamps)
    assert {name for _, name in found} == {name for log in entries for _, name in log}
    moved = {name: stamp for log in entries for stamp, name in log}
    assert tally.late == sum(moved[name] != stamp for stamp, name in found)
    # Lines that are too late by no more than the buffer are sorted.
    if all(
        sum(other > stamp for other in log[:at]) <= buffer
        for log in logs
        for at, stamp in enumerate(log)
    ):
        assert tally.late == 0
