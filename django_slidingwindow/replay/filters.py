"""Which requests of a log are replayed: by path, method, status and time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from .formats import Fields, Names

Filter: TypeAlias = "Callable[[int, Fields], bool]"
"""Return whether a request is replayed, by its stamp and its fields."""


def by_path(pattern: str, names: Names) -> Filter:
    """Keep paths that a regular expression is found in; ValueError if it is none."""
    search = _compiled(pattern).search

    def keeps(stamp: int, fields: Fields) -> bool:
        path = names.request_line(fields)[1]
        return path is not None and search(path) is not None

    return keeps


def by_method(methods: Iterable[str], names: Names) -> Filter:
    wanted = frozenset(method.upper() for method in methods)
    return lambda stamp, fields: (names.request_line(fields)[0] or "").upper() in wanted


def by_status(texts: Iterable[str], names: Names) -> Filter:
    """Keep statuses such as 200 or 4xx, or with "!" before them all others."""
    wanted: list[str] = []
    unwanted: list[str] = []
    for text in texts:
        if not re.fullmatch(r"!?\d(\d\d|xx)", text, re.ASCII):
            raise ValueError(f"{text!r} is not a status such as 200, 4xx or !429")
        pattern = text.lstrip("!").replace("x", r"\d")
        (unwanted if text.startswith("!") else wanted).append(pattern)
    accept = re.compile("|".join(wanted) or ".*").fullmatch
    refuse = re.compile("|".join(unwanted) or "(?!)").fullmatch

    def keeps(stamp: int, fields: Fields) -> bool:
        status = names.find(fields, "status") or ""
        return accept(status) is not None and refuse(status) is None

    return keeps


def since(start: int) -> Filter:
    return lambda stamp, fields: stamp >= start


def until(end: int) -> Filter:
    return lambda stamp, fields: stamp < end


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
