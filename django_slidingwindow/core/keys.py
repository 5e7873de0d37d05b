"""Names of windows in the store: <prefix>:<axis>:{<identifier>}:<scope>:<letter><window>.

The braces are a hash tag of Redis Cluster, so all windows of an identifier are in one slot. The
parts are escaped without loss, so two identifiers never share a key.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import quote, unquote

from ..policies import LETTERS, Policy, Profile

MAX_IDENTIFIER = 128
"""Characters of an escaped identifier; a longer one is shortened by a hash."""

# Not escaped: printable ASCII without a meaning in a key ("{", "}", "%", "#"), in a SCAN pattern or
# in quotes.
_PLAIN = "!$&()+,-./:;<=>@_|~"
_EMPTY = "%"
_HASHED = "#"
_KEPT_OF_LONG = 64

_NAMES = {letter: name for name, letter in LETTERS.items()}
_SUFFIX = rf"([{''.join(_NAMES)}])(\d+(?:\.\d+)?)"
_PARTS = r"([^:{}]+):{([^{}]+)}:([^:{}]+)"


is_plain = re.compile(rf"[A-Za-z0-9{re.escape(_PLAIN)}]{{1,{MAX_IDENTIFIER}}}").fullmatch
"""Return None if `escape` would change the text."""


def escape(text: str) -> str:
    """Return a text as keys contain it. Never empty; different texts stay different."""
    if not text:
        return _EMPTY
    head = text[:MAX_IDENTIFIER]
    escaped = _quote(head)
    if len(text) <= MAX_IDENTIFIER and len(escaped) <= MAX_IDENTIFIER:
        return escaped
    while len(escaped) > _KEPT_OF_LONG:
        head = head[: len(head) // 2]
        escaped = _quote(head)
    return f"{escaped}{_HASHED}{_digest(text)}"


def _quote(text: str) -> str:
    return quote(text, safe=_PLAIN, errors="surrogatepass")


def escape_shortened(text: str) -> str | None:
    """Return the key's text for a shortened identifier as `unescape` returns it, or None."""
    head, mark, digest = text.rpartition(_HASHED)
    if not mark or _is_digest(digest) is None:
        return None
    return f"{_quote(head)}{_HASHED}{digest}"


def unescape(text: str) -> str:
    """Return the identifier for its text in a key; a shortened one stays shortened."""
    if text == _EMPTY:
        return ""
    return unquote(text, errors="surrogatepass")


_is_digest = re.compile(r"[0-9a-f]{40}").fullmatch


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


def join_identifiers(parts: list[str]) -> str:
    """Return one identifier for several, without ambiguity, for an axis such as ip+endpoint."""
    return "+".join(part.replace("%", "%25").replace("+", "%2B") for part in parts)


def _escape_part(text: str) -> str:
    """Return an axis or a scope as keys contain it: without colons."""
    return quote(text, safe=_PLAIN.replace(":", ""), errors="surrogatepass")


def key_ends(prefix: str, axis: str, scope: str) -> tuple[str, str]:
    """Return the parts of a key before and after the identifier, without the policy's suffix."""
    return f"{prefix}:{_escape_part(axis)}:{{", f"}}:{_escape_part(scope)}:"


def suffix(policy: Policy) -> str:
    """Return the policy's part of a key: algorithm and window, but not the limit."""
    return LETTERS[policy.algorithm] + policy.window_text


def make_key(prefix: str, axis: str, identifier: str, scope: str, policy: Policy) -> str:
    """Return the key of one window."""
    before, after = key_ends(prefix, axis, scope)
    return before + escape(identifier) + after + suffix(policy)


def identifier_in(key: str) -> str:
    """Return the identifier in a key; a shortened one stays shortened."""
    return unescape(_tag(key))


def is_shortened(key: str) -> bool:
    """Return whether the identifier in a key is only its beginning and a hash.

    Another identifier may have the same text, but then the key has it escaped.
    """
    return _HASHED in _tag(key)


def _tag(key: str) -> str:
    """Return the text between the braces of a key."""
    return key.partition("{")[2].partition("}")[0]


def any_key(prefix: str, profile: Profile, identifier: str) -> str:
    """Return the key of a window of the identifier, for the log of a request without windows."""
    policies = profile.policies or (Policy(limit=0, window=1, algorithm=profile.algorithm),)
    return make_key(prefix, profile.axis, identifier, profile.scope, policies[0])


def key_beside(key: str, policy: Policy) -> str:
    """Return the key of the same identifier and scope under another policy."""
    return f"{key.rpartition(':')[0]}:{suffix(policy)}"


class KeyParts(NamedTuple):
    """The parts of a key."""

    axis: str
    identifier: str
    scope: str
    algorithm: str
    window: float
    """Seconds."""
    shortened: bool
    """Whether the identifier is only its beginning and a hash."""


def parse_key(key: str, prefix: str) -> KeyParts | None:
    """Return the parts of a key; None if this app did not make it."""
    match = _key_pattern(prefix).fullmatch(key)
    if match is None:
        return None
    axis, identifier, scope, letter, window = match.groups()
    shortened = _HASHED in identifier
    try:
        axis, identifier, scope = map(unescape, (axis, identifier, scope))
    except UnicodeDecodeError:
        return None
    return KeyParts(axis, identifier, scope, _NAMES[letter], float(window), shortened)


# A search parses a million keys one by one.
@lru_cache(maxsize=8)
def _key_pattern(prefix: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(prefix)}:{_PARTS}:{_SUFFIX}")
