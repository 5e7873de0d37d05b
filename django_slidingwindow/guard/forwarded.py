"""The header `Forwarded` (RFC 7239), read from the right.

A proxy appends its element to what the client sent, so only the end of the header is known to be
well-formed. Reading from the right finds that end whatever stands before it: a quote that a client
leaves open cannot hide what a proxy appended. A well-formed header reads the same from both sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANK = " \t"
_MARKS = r'[",;]'
_QUOTED = r'(?s)"((?:[^"\\]|\\.)*)"'
_ESCAPED = r"(?s)\\(.)"


def forwarded_for(header: str) -> Iterator[str]:
    """Yield the `for` of each element, the last element first.

    Yields "" for an element that names no node, names two, or is not well-formed. Takes time in
    proportion to the length of the header.
    """
    nodes: list[str] = []
    readable = True
    for pair, begins in _pairs(header):
        if pair.strip(_BLANK):
            name, equals, text = pair.partition("=")
            value = _value(text.strip(_BLANK))
            if not equals or value is None or '"' in name:
                readable = False
            elif name.strip(_BLANK).lower() == "for":
                nodes.append(value)
        if begins:
            yield nodes[0] if readable and len(nodes) == 1 else ""
            nodes, readable = [], True


def _pairs(header: str) -> Iterator[tuple[str, bool]]:
    """Yield the text of each pair, the last one first, and whether it begins an element."""
    quoted = False
    end = len(header)
    for at in reversed([mark.start() for mark in re.finditer(_MARKS, header)]):
        if header[at] == '"':
            # Inside a string a backslash stands before every quote, and none before the first.
            quoted = not quoted or header[at - 1 : at] == "\\"
        elif not quoted:
            yield header[at + 1 : end], header[at] == ","
            end = at
    yield header[:end], True


def _value(text: str) -> str | None:
    """Return a value without its quotes and escapes; None if it is not well-formed."""
    if '"' not in text:
        return text
    quoted = re.fullmatch(_QUOTED, text)
    return None if quoted is None else re.sub(_ESCAPED, r"\1", quoted[1])
