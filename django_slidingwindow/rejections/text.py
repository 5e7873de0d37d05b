"""Text of strangers made harmless for tables, terminals and logs."""

from __future__ import annotations

import re
from urllib.parse import quote

# A "%" that could be taken for an escape is one itself, so that unquoting gives the text back.
_TAKEN_FOR_ESCAPE = re.compile(r"%(?=[0-9A-Fa-f]{2})")


def printable(text: str) -> str:
    """The text with what cannot be seen, or turns the direction of reading, as %xx.

    `urllib.parse.unquote` gives the text back.
    """
    if "%" in text:
        text = _TAKEN_FOR_ESCAPE.sub("%25", text)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else quote(char, safe="", errors="surrogatepass")
        for char in text
    )
