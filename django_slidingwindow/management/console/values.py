"""Types for argparse: numbers within bounds, and header fields."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

from django.core.management.base import CommandParser


def whole_to(most: int) -> Callable[[str], int]:
    """Return a type for whole numbers from 1 to `most`."""

    def parse(text: str) -> int:
        # Bounded, because int() refuses some thousand digits with an error of its own.
        if not text.isdecimal() or len(text) > len(str(most)) or not 1 <= int(text) <= most:
            raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most:,}")
        return int(text)

    return parse


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
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        type=_header,
        metavar="N:V",
        help="a header field of the requests; may be repeated",
    )


def _header(text: str) -> tuple[str, str]:
    """Return name and value of a header field, written as "Name: value"."""
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name.replace("-", "").isalnum() or not _is_plain(name + value):
        raise ArgumentTypeError(f"{text!r} is not a header field, such as 'X-API-Key: secret'")
    return name, value


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()
