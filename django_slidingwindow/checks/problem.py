"""One kind of problem that a check can report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core import checks

from ..installed import APP

_LEVELS = {"E": checks.ERROR, "W": checks.WARNING, "I": checks.INFO}


@dataclass(frozen=True, slots=True)
class Problem:
    """Return the message for Django when called with the facts."""

    number: str
    text: str
    """What is wrong, with the facts to fill in between braces."""
    hint: str

    @property
    def id(self) -> str:
        return f"{APP}.{self.number}"

    def __call__(self, **facts: Any) -> checks.CheckMessage:
        return checks.CheckMessage(
            _LEVELS[self.number[0]], self.text.format(**facts), hint=self.hint, id=self.id
        )
