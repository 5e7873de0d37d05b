"""Filters that choose the requests to replay: by path, method, status and time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from .formats import Fields, Names

Filter: TypeAlias = "Callable[[int, Fields], bool]"
"""Whether to replay the request with this stamp and these fields."""


def by_path(pattern: str, names: Names) -> Filter:
    """Keep requests whose path contains a match of the regular expression."""
    search = compiled(pattern).search

    def keeps(stamp: int, fields: Fields) -> bool:
        path = names.request_line(fields)[1]
        return path is not None and search(path) is not None

    return keeps


def by_method(methods: Iterable[str], names: Names) -> Filter:
    """Keep requests with one of these methods."""
    wanted = frozenset(method.upper() for method in methods)
    return lambda stamp, fields: (names.request_line(fields)[0] or "").upper() in wanted


def by_status(texts: Iterable[str], names: Names) -> Filter:
    """Keep requests with these statuses, such as 200 or 4xx, and leave out those with "!"."""
    wanted: list[str] = []
    unwanted: list[str] = []
    for text in texts:
        if not re.fullmatch(r"!?\d(\d\d|xx)", text, re.ASCII):
            raise ValueError(f"{text!r} is not a status such as 200, 4xx or !429")
        pattern = text.lstrip("!").replace("x", r"\d")
        (unwanted if text.startswith("!") else wanted).append(pattern)
    is_wanted = re.compile("|".join(wanted) or ".*").fullmatch
    is_unwanted = re.compile("|".join(unwanted) or "(?!)").fullmatch

    def keeps(stamp: int, fields: Fields) -> bool:
        status = names.find(fields, "status") or ""
        return is_wanted(status) is not None and is_unwanted(status) is None

    return keeps


def since(start: int) -> Filter:
    """Keep requests from this stamp on."""
    return lambda stamp, fields: stamp >= start


def until(end: int) -> Filter:
    """Keep requests before this stamp."""
    return lambda stamp, fields: stamp < end


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression; raise ValueError if it is not one."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
