"""Make untrusted text safe to show in tables, terminals and logs."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

# A "%" before two hex digits is escaped as well, so that unquoting returns the original text.
_LOOKS_LIKE_ESCAPE = re.compile(r"%(?=[0-9A-Fa-f]{2})")


def printable(text: str) -> str:
    """Return the text with every unprintable character, such as a bidi control, as %xx.

    `restored` returns the original text.
    """
    if "%" in text:
        text = _LOOKS_LIKE_ESCAPE.sub("%25", text)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else quote(char, safe="", errors="surrogatepass")
        for char in text
    )


def restored(text: str) -> str:
    """Undo `printable`. Return any text that it cannot have made as it is."""
    try:
        found = unquote(text, errors="surrogatepass")
    except UnicodeDecodeError:
        return text
    return found if printable(found) == text else text
