"""Compose Lua scripts from the files of the algorithms that a call needs."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from ..policies import LETTERS, PENALTY, Policy

SCRIPT_VERSION = "2"
"""Increased when the meaning of a stored value, an argument or the reply changes."""

_SECTION = re.compile(r"^ *--- (\w+)\n", re.MULTILINE)
_EXTRA_SECTION = re.compile(r"^ *--- ((?:lease|penalty)_\w+)\n", re.MULTILINE)


class Script(NamedTuple):
    """A composed Lua source, and the SHA1 by which Redis identifies it."""

    source: str
    sha: str


@cache
def script(evaluator: str, algorithms: tuple[str, ...], *, leases: bool = False) -> Script:
    """Return the script for some algorithms, in sorted order.

    `evaluator` is "evaluate" for checks or "refund". Each algorithm's file has sections, which
    begin with a line `--- name`. In the evaluator, the same line marks the place for that section
    of every algorithm. The code for leases is included only with `leases`, and the code for
    penalties only if they are among the algorithms.
    """
    penalties = PENALTY in algorithms
    sections = {name: _sections(name) for name in algorithms if name != PENALTY}
    added = [_sections(name, _EXTRA_SECTION) for name in ["lease"] * leases + [PENALTY] * penalties]
    comments = "".join([parts.pop("") for parts in added])
    extra = {name: code for parts in added for name, code in parts.items()}

    def block(place: re.Match[str]) -> str:
        bodies = [(LETTERS[name], parts[place[1]]) for name, parts in sections.items()]
        if len(bodies) == 1 and not penalties:
            return f"do\n{bodies[0][1]}end\n"
        return "".join(f"if letter == {ord(letter)} then\n{body}end\n" for letter, body in bodies)

    start, end = _read("prelude").split("--- usual\n")
    if evaluator == "evaluate" and len(algorithms) == 1 and not extra:
        start += sections[algorithms[0]].get("usual", "")
    source = (
        f"-- django_slidingwindow {evaluator}, version {SCRIPT_VERSION}: {', '.join(algorithms)}\n"
        + comments
        + start
        + end
        + "".join(parts[""] + parts["functions"] for parts in sections.values())
        + _SECTION.sub(
            block, _EXTRA_SECTION.sub(lambda place: extra.get(place[1], ""), _read(evaluator))
        )
    )
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def _sections(name: str, section: re.Pattern[str] = _SECTION) -> dict[str, str]:
    """Return a file's sections by name. The text before the first section has the name ""."""
    first, *rest = section.split(_read(name))
    return {"": first, **dict(zip(rest[::2], rest[1::2], strict=True))}


def in_use(policies: tuple[Policy, ...]) -> tuple[str, ...]:
    """Return the algorithms that policies use, sorted, as `script` expects them."""
    return tuple(sorted({policy.algorithm for policy in policies}))


def _read(name: str) -> str:
    return (files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")
