"""The Lua scripts, composed of the files of the algorithms that a call needs."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from ..policies import LETTERS, PENALTY, Policy

SCRIPT_VERSION = "2"
"""Raised when the meaning of a stored value, an argument or the reply changes."""

_SECTION = re.compile(r"^ *--- (\w+)\n", re.MULTILINE)
_EXTRA_SECTION = re.compile(r"^ *--- ((?:lease|penalty)_\w+)\n", re.MULTILINE)


class Script(NamedTuple):
    """A composed Lua source and its SHA1, by which Redis knows it."""

    source: str
    sha: str


@cache
def script(evaluator: str, algorithms: tuple[str, ...], *, leases: bool = False) -> Script:
    """Return the source for a sorted set of algorithms, evaluated by `evaluate` or `refund`.

    An algorithm's file has sections, each under a line `--- name`. The evaluator names
    in such a line the section of the algorithms that belongs there. With `leases`, a check
    can take units ahead, and with penalties among the algorithms, refusals can block; without,
    nothing of that is in its source.
    """
    penalties = PENALTY in algorithms
    sections = {name: _sections(name) for name in algorithms if name != PENALTY}
    extra: dict[str, str] = {}
    for name in ["lease"] * leases + [PENALTY] * penalties:
        about = extra.get("", "")
        extra |= _sections(name, _EXTRA_SECTION)
        extra[""] = about + extra[""]

    def block(place: re.Match[str]) -> str:
        bodies = [(LETTERS[name], parts[place[1]]) for name, parts in sections.items()]
        if len(bodies) == 1 and not penalties:
            return f"do\n{bodies[0][1]}end\n"
        return "".join(f"if letter == {ord(at)} then\n{body}end\n" for at, body in bodies)

    start, end = _read("prelude").split("--- usual\n")
    if evaluator == "evaluate" and len(algorithms) == 1 and not extra:
        start += sections[algorithms[0]].get("usual", "")
    source = (
        f"-- django_slidingwindow {evaluator}, version {SCRIPT_VERSION}: {', '.join(algorithms)}\n"
        + extra.get("", "")
        + start
        + end
        + "".join(parts[""] + parts["functions"] for parts in sections.values())
        + _SECTION.sub(
            block, _EXTRA_SECTION.sub(lambda place: extra.get(place[1], ""), _read(evaluator))
        )
    )
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def _sections(name: str, section: re.Pattern[str] = _SECTION) -> dict[str, str]:
    """Return a file's sections by their names; what stands before the first has none."""
    first, *rest = section.split(_read(name))
    return {"": first, **dict(zip(rest[::2], rest[1::2], strict=True))}


def in_use(policies: tuple[Policy, ...]) -> tuple[str, ...]:
    """Return the algorithms in use, sorted: the name of a composed script."""
    return tuple(sorted({policy.algorithm for policy in policies}))


def _read(name: str) -> str:
    return (files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")
