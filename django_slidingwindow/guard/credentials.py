"""Headers that identify a client: their keys in `request.META`, and one spelling of each value."""

from __future__ import annotations

from binascii import a2b_base64
from string import ascii_letters, digits

_TOKEN = frozenset(ascii_letters + digits + "!#$%&'*+-.^_`|~")
_WITH_SCHEME = ("HTTP_AUTHORIZATION", "HTTP_PROXY_AUTHORIZATION")


def is_token(text: str) -> bool:
    """Return whether a text can be the name of a header or of a method (RFC 9110, 5.6.2)."""
    return bool(text) and _TOKEN.issuperset(text)


def meta_key(header: str) -> str:
    """Return the key of `request.META` that holds the header."""
    name = header.strip().upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"


def one_spelling(key: str, value: str) -> str:
    """Return the same text for all values of a header that mean the same.

    White space around a value means nothing (RFC 9110, 5.5). In `Authorization`, the scheme is
    case-insensitive, and any white space separates it from the credentials. The scheme Basic has
    its credentials in base64, whose decoders skip characters that are not base64; some need no
    padding.
    """
    if key not in _WITH_SCHEME:
        return value.strip()
    scheme, *words = value.split() or [""]
    credentials = " ".join(words)
    if scheme.lower() == "basic":
        try:
            decoded = a2b_base64(credentials.encode("ascii", "replace") + b"==")
        except ValueError:
            pass
        else:
            credentials = decoded.decode("latin-1")
    return f"{scheme.lower()} {credentials}".strip()
