"""Types for argparse: numbers within bounds, and header fields."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

from django.core.management.base import CommandParser

Value = TypeVar("Value")
# WSGI turns hyphens into underscores, so servers drop headers whose name has an underscore.
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^`|~-]+")


def checked(read: Callable[[str], Value]) -> Callable[[str], Value]:
    """Return a type that shows users the text of a ValueError, which argparse would replace."""

    def read_checked(text: str) -> Value:
        try:
            return read(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from error

    return read_checked


def not_empty(text: str) -> str:
    """Return the text. An empty one is an error: a variable of a script may be unset."""
    if not text:
        raise ArgumentTypeError("the value is empty: leave the option out if that is meant")
    return text


def whole_to(most: int) -> Callable[[str], int]:
    """Return a type for whole numbers from 1 to `most`."""

    def parse(text: str) -> int:
        # Check the length first: int() raises an error of its own for thousands of digits.
        if not text.isdecimal() or len(text) > len(str(most)) or not 1 <= int(text) <= most:
            raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most:,}")
        return int(text)

    return parse


whole_number = whole_to(1_000_000_000)


def number_to(most: float) -> Callable[[str], float]:
    """Return a type for numbers above 0, up to `most`."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = 0.0
        if not 0 < number <= most:
            raise ArgumentTypeError(f"{text!r} is not a number above 0 and up to {most:g}")
        return number

    return parse


def add_header(parser: CommandParser) -> None:
    """Add the option --header, which has the same syntax in every action."""
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        type=_header,
        metavar="N:V",
        help="a header field of each request; may be repeated",
    )


def _header(text: str) -> tuple[str, str]:
    """Return name and value of a header field, written as "Name: value"."""
    name, colon, value = text.partition(":")
    value = value.strip()
    plain = value.isascii() and value.isprintable()
    if not colon or not _HEADER_NAME.fullmatch(name) or not plain:
        raise ArgumentTypeError(f"{text!r} is not a header field, such as 'X-API-Key: secret'")
    return name, value
