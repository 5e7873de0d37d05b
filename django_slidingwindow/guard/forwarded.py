"""Parse the header `Forwarded` (RFC 7239) from the right.

A proxy appends its element to what the client sent, so only the end of the header is known to be
well-formed. Parsing from the right finds that end whatever stands before it: a quote that a client
leaves open cannot hide what a proxy appended. A well-formed header gives the same elements from
both sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANK = " \t"
_MARKS = r'[",;]'
_QUOTED = r'(?s)"((?:[^"\\]|\\.)*)"'
_ESCAPED = r"(?s)\\(.)"


def forwarded_for(header: str) -> Iterator[str]:
    """Yield the parameter `for` of each element, the last element first.

    Yield "" for an element without `for`, with several, or one that is not well-formed. The time is
    proportional to the length of the header.
    """
    nodes: list[str] = []
    well_formed = True
    for pair, is_first in _pairs(header):
        if pair.strip(_BLANK):
            name, equals, text = pair.partition("=")
            value = _value(text.strip(_BLANK))
            if not equals or value is None or '"' in name:
                well_formed = False
            elif name.strip(_BLANK).lower() == "for":
                nodes.append(value)
        if is_first:
            yield nodes[0] if well_formed and len(nodes) == 1 else ""
            nodes, well_formed = [], True


def _pairs(header: str) -> Iterator[tuple[str, bool]]:
    """Yield the text of each pair from the right, and whether it is the first of its element."""
    quoted = False
    end = len(header)
    for at in reversed([mark.start() for mark in re.finditer(_MARKS, header)]):
        if header[at] == '"':
            # The first quote from the right ends a string. The next one without a backslash
            # before it begins that string.
            quoted = not quoted or header[at - 1 : at] == "\\"
        elif not quoted:
            yield header[at + 1 : end], header[at] == ","
            end = at
    yield header[:end], True


def _value(text: str) -> str | None:
    """Return the value of a pair without quotes and escapes; None if it is not well-formed."""
    if '"' not in text:
        return text
    quoted = re.fullmatch(_QUOTED, text)
    return None if quoted is None else re.sub(_ESCAPED, r"\1", quoted[1])
