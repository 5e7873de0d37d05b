"""Check the keys of SLIDING_WINDOW and their values."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from django.core.checks import CheckMessage

from ..conf import Conf
from ..guard.proxies import HEADERS
from ..policies import FALLBACKS
from ..registry import near
from . import catalog

_MIN_HASH_KEY = 16
_MAX_NUMBER = sys.float_info.max


class Value(NamedTuple):
    """The valid values of a key: a test, and a description."""

    test: Callable[[Any], bool]
    wanted: str


def _whole(lowest: int, highest: float = math.inf) -> Value:
    wanted = f"from {lowest} to {highest}" if highest < math.inf else f"from {lowest}"
    return Value(
        lambda value: type(value) is int and lowest <= value <= highest,
        f"a whole number {wanted}",
    )


def _one_of(*choices: str) -> Value:
    return Value(
        lambda value: isinstance(value, str) and value in choices,
        "one of " + ", ".join(map(repr, choices)),
    )


def _some_of(*choices: str) -> Value:
    return Value(
        lambda value: isinstance(value, (list, tuple)) and all(item in choices for item in value),
        "a list with any of " + ", ".join(map(repr, choices)),
    )


def _is_number(value: object) -> bool:
    # A comparison, because `math.isfinite` raises an error for a whole number beyond all floats.
    return type(value) in (int, float) and -_MAX_NUMBER <= value <= _MAX_NUMBER  # type: ignore[operator]


def _is_secret(value: object) -> bool:
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            return False
    return isinstance(value, bytes) and bool(value)


_DICT = Value(lambda value: isinstance(value, Mapping), "a dict")
_LIST = Value(lambda value: isinstance(value, (list, tuple)), "a list")
_TEXT = Value(lambda value: isinstance(value, str) and bool(value), "a string")
_SECONDS = Value(lambda value: _is_number(value) and value > 0, "a number of seconds above 0")
_SWITCH = Value(lambda value: isinstance(value, bool), "True or False")

VALUES: Mapping[str, Value] = {
    "CACHE": _TEXT._replace(wanted="the name of a cache"),
    "TRANSPORT": _one_of("direct", "client"),
    "PROFILES": _DICT._replace(wanted="a dict of profiles by name"),
    "IDENTITIES": _DICT._replace(wanted="a dict of dotted paths by axis"),
    "RULES": _LIST._replace(wanted="a list of dicts"),
    "TRUSTED_PROXIES": _LIST._replace(wanted="a list of networks"),
    "FORWARDED_HEADER": Value(
        lambda value: isinstance(value, str) and value.lower() in HEADERS,
        "one of " + ", ".join(map(repr, HEADERS)),
    ),
    "IPV6_PREFIX": _whole(1, 128),
    "FALLBACK": _one_of(*FALLBACKS),
    "FALLBACK_PROCESSES": _whole(1),
    "FALLBACK_MAX_KEYS": _whole(1),
    "SHIELD_SECONDS": Value(
        lambda value: _is_number(value) and value >= 0, "a number of seconds, 0 for none"
    ),
    "DEFERRED_SECONDS": _SECONDS,
    "HEADERS": _some_of("draft", "legacy", "x"),
    "HEADERS_PARTITION_KEY": _SWITCH,
    "PREFIX": Value(
        lambda value: isinstance(value, str) and bool(re.fullmatch(r"[\w.:-]+", value, re.ASCII)),
        "letters, digits and any of . : _ -",
    ),
    "HASH_KEY": Value(lambda value: value is None or _is_secret(value), "a string, bytes or None"),
    "LATENCY_BUDGET": _SECONDS,
    "IDENTITY_ERROR": _one_of("deny", "allow"),
    "EXEMPT": _LIST._replace(wanted="a list of networks and dotted paths"),
    "RESPONSE": Value(
        lambda value: value is None or callable(value) or (isinstance(value, str) and bool(value)),
        "a dotted path or None",
    ),
    "LOG": _SWITCH,
    "LOG_DAYS": _whole(1),
    "LOG_CLIENT": _SWITCH,
    "LOG_ROWS_PER_MINUTE": _whole(1),
    "LOG_IDENTIFIERS": _one_of("plain", "hash"),
    "NEAR_SHARE": Value(
        lambda value: value is None or (_is_number(value) and 0 <= value <= 1),
        "a number from 0 to 1, or None; 0 and None for off",
    ),
    "TRACES": _SWITCH,
    "OVERRIDES_SECONDS": Value(
        lambda value: _is_number(value) and value >= 0, "a number of seconds, 0 for no overrides"
    ),
    "ENABLED": _SWITCH,
}


def known_keys() -> frozenset[str]:
    """Return the keys that the app reads: one for each cached property of `Conf`."""
    properties = (name for name, value in vars(Conf).items() if isinstance(value, cached_property))
    return frozenset(name.upper() for name in properties if name != "user")


def valid(user: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entries of SLIDING_WINDOW with a known key and a valid value."""
    return {key: value for key, value in user.items() if key in VALUES and VALUES[key].test(value)}


def check_keys(user: Mapping[str, Any]) -> Iterator[CheckMessage]:
    known = known_keys()
    for key in user:
        if key not in known:
            yield catalog.UNKNOWN_KEY(key=key, near=near(str(key), known))


def check_values(user: Mapping[str, Any]) -> Iterator[CheckMessage]:
    for key, (test, wanted) in VALUES.items():
        if key in user and not test(user[key]):
            # Never print a secret, not even a wrong one.
            value = "..." if key == "HASH_KEY" else user[key]
            yield catalog.WRONG_VALUE(key=key, value=value, wanted=wanted)


def check_hash_key(user: Mapping[str, Any]) -> Iterator[CheckMessage]:
    given = valid(user).get("HASH_KEY")
    if given is not None:
        length = len(given.encode() if isinstance(given, str) else given)
        if length < _MIN_HASH_KEY:
            yield catalog.SHORT_HASH_KEY(length=length)
