"""The kinds of problems that checks report: each has an id, a text and a hint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core import checks

from ..guard.installation import APP

_LEVELS = {"E": checks.ERROR, "W": checks.WARNING, "I": checks.INFO}


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of problem. Call it with the facts to get the message for Django."""

    number: str
    text: str
    """What is wrong, as a format string for the facts."""
    hint: str

    @property
    def id(self) -> str:
        return f"{APP}.{self.number}"

    def __call__(self, **facts: Any) -> checks.CheckMessage:
        return checks.CheckMessage(
            _LEVELS[self.number[0]], self.text.format(**facts), hint=self.hint, id=self.id
        )


CATALOG: dict[str, Problem] = {}
"""All kinds of problems by number. `catalog` and `server_catalog` fill it."""


def add(number: str, text: str, hint: str) -> Problem:
    """Put a kind of problem into the catalog, and return it."""
    assert number not in CATALOG, f"{number} is taken"
    problem = CATALOG[number] = Problem(number, text, hint)
    return problem
