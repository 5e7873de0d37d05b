"""Formats of access logs: from a line to named fields."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

AUTO, COMMON, COMBINED, JSON, CSV = NAMED = ("auto", "common", "combined", "json", "csv")

Fields: TypeAlias = "Mapping[str, Any]"
Parse: TypeAlias = "Callable[[str], Fields | None]"
"""Return the fields of a line; None if the line does not have the format."""

# The fields that a replay needs, and their usual names. The first name that a line has is used.
ALIASES: Mapping[str, tuple[str, ...]] = {
    # Stamps with fractions of a second come first.
    "time": ("time", "timestamp", "@timestamp", "ts", "msec", "time_iso8601", "time_local"),
    "ip": ("ip", "remote_addr", "client_ip", "remote_ip", "clientip"),
    "request": ("request",),
    "method": ("method", "request_method"),
    "path": ("path", "request_uri", "uri", "url"),
    "status": ("status", "status_code"),
    "user": ("user", "remote_user"),
    "forwarded": ("forwarded", "http_x_forwarded_for", "http_forwarded"),
}

# A text between quotes, with escapes such as \" inside.
_QUOTED = r'[^"\\]*(?:\\.[^"\\]*)*'
# The virtual host and its port, which Apache's vhost_combined writes in front of the address.
_VHOST = r"(?:[^\s:]+:\d+ (?=[0-9A-Fa-f.:]+ ))?"
_COMMON = (
    rf"{_VHOST}(?P<ip>\S+) \S+ (?P<user>[^\[]*) \[(?P<time>[^\]]+)\] "
    rf'"(?P<request>{_QUOTED})" (?P<status>\d{{3}}|-) (?P<bytes>\d+|-)'
)
_COMBINED = rf'{_COMMON}(?: "(?P<referer>{_QUOTED})" "(?P<agent>{_QUOTED})")?(?: .*)?'
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
# Variables that have a space inside, even without brackets or quotes around them.
_WITH_SPACES = {"time_local": r"\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}"}
_DETECTION_LINES = 50


class FormatError(ValueError):
    """A format cannot be used, or was not recognised."""


def parser(name: str, first_lines: Sequence[str]) -> tuple[Parse, int]:
    """Return the parser of a format, and the number of lines of its header.

    The name is one of NAMED, or a text with nginx's $variables.
    """
    if name == AUTO:
        name = detect(first_lines)
    if name == CSV:
        return _csv(first_lines[0]), 1
    if name == JSON:
        return parse_json, 0
    patterns = {COMMON: _COMMON, COMBINED: _COMBINED}
    return _by_pattern(patterns.get(name) or nginx_pattern(name)), 0


def detect(first_lines: Sequence[str]) -> str:
    """Return the name of the format of these lines; raise FormatError if it is unknown."""
    combined = re.compile(_COMBINED)
    for line in first_lines[:_DETECTION_LINES]:
        if combined.fullmatch(line):
            return COMBINED
        if parse_json(line) is not None:
            return JSON
    header = first_lines[0]
    if {*ALIASES["time"]} & {*_cells(header, _delimiter(header))}:
        return CSV
    raise FormatError(
        "the format is not recognised: choose it with --log-format, which is one of "
        f"{', '.join(NAMED[1:])}, or the text of nginx's log_format."
    )


def parse_json(line: str) -> Fields | None:
    """Return the JSON object of a line. Numbers stay text, so that no digit of a stamp is lost."""
    try:
        found = json.loads(line, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _by_pattern(pattern: str) -> Parse:
    match = re.compile(pattern).fullmatch

    def parse(line: str) -> Fields | None:
        found = match(line)
        return None if found is None else found.groupdict()

    return parse


def nginx_pattern(text: str) -> str:
    """Return the regular expression of a format such as '$remote_addr [$time_local] $status'."""
    parts = _VARIABLE.split(text)
    # The parts are a literal, then for each variable the two groups of _VARIABLE (one of them has
    # its name, the other one is None) and the literal after it.
    pattern, names = re.escape(parts[0]), set()
    for at in range(1, len(parts), 3):
        name, before, after = parts[at] or parts[at + 1], parts[at - 1], parts[at + 2]
        if not after and at + 3 < len(parts):
            raise FormatError(f"nothing stands between ${name} and the next variable.")
        value = _value_pattern(name, before, after)
        # A group needs a new name, and $1 has none that a group can have.
        is_new = name not in names and name.isidentifier()
        pattern += (f"(?P<{name}>{value})" if is_new else f"({value})") + re.escape(after)
        names.add(name)
    if not names & {*ALIASES["time"]}:
        raise FormatError("the log_format has no $time_local, $time_iso8601 or $msec.")
    return pattern


def _value_pattern(name: str, before: str, after: str) -> str:
    """Return the regular expression of a variable's value, which ends where `after` begins."""
    if before.endswith('"'):
        return _QUOTED
    if before.endswith("["):
        return r"[^\]]*"
    return _WITH_SPACES.get(name, f"[^{re.escape(after[0])}]*" if after else ".*")


def nginx_format(conf: str, name: str) -> str:
    """Return the text of the log_format with this name in nginx's configuration."""
    quoted = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
    found = re.search(
        rf"^\s*log_format\s+{re.escape(name)}\s+(?:escape=\w+\s+)?((?:(?:{quoted})\s*)+);",
        conf,
        re.MULTILINE,
    )
    if found is None:
        known = re.findall(r"^\s*log_format\s+(\S+)", conf, re.MULTILINE)
        raise FormatError(
            f"there is no log_format {name!r} in the nginx configuration; "
            f"known are: {', '.join(known) or 'none'}."
        )
    return "".join(text[1:-1].replace("\\", "") for text in re.findall(quoted, found[1]))


def _csv(header: str) -> Parse:
    delimiter = _delimiter(header)
    names = _cells(header, delimiter)

    def parse(line: str) -> Fields | None:
        cells = _cells(line, delimiter)
        return dict(zip(names, cells, strict=True)) if len(cells) == len(names) else None

    return parse


def _delimiter(header: str) -> str:
    return max(",\t;", key=header.count)


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []


class Names:
    """Finds the fields that a replay needs, by their names in this log."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        """`given` has names that replace the usual ones: {"ip": "client"}."""
        self._names = {**ALIASES, **{what: (name,) for what, name in (given or {}).items()}}

    def find(self, fields: Fields, what: str) -> str | None:
        """Return the text of a field, which is a key of ALIASES; None if the line has no value."""
        for name in self._names[what]:
            if fields.get(name) is not None:
                return value_of(fields, name)
        return None

    def request_line(self, fields: Fields) -> tuple[str | None, str | None]:
        """Return method and path, from their own fields or else from the request line."""
        method, path = self.find(fields, "method"), self.find(fields, "path")
        if method is None or path is None:
            words = (self.find(fields, "request") or "").split(" ")
            if len(words) > 1:
                method, path = method or words[0], path or words[1]
        return method, path


def value_of(fields: Fields, name: str) -> str | None:
    """Return the text of a field by its name in the log; None if it is missing, empty or a dash."""
    value = fields.get(name)
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return text if text not in ("", "-") else None
