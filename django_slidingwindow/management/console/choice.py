"""Choose the output of a command."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TextIO

from .outputs import JsonOutput, Output, PlainOutput

FORMATS = AUTO, PLAIN, RICH, JSON = ("auto", "plain", "rich", "json")


def choose(name: str, stream: TextIO, *, color: bool) -> Output:
    """Return the output for a format. `auto` is rich on a terminal if installed, otherwise plain.

    Raise ModuleNotFoundError if the format is `rich` and rich is not installed.
    """
    if name == JSON:
        return JsonOutput(stream)
    if name == RICH or (name == AUTO and stream.isatty() and find_spec("rich")):
        from .rich_output import RichOutput

        return RichOutput(stream, color=color)
    return PlainOutput(stream)
