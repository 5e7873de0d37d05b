"""The functions that a call runs, counted with a profiler."""

from __future__ import annotations

import builtins
import re
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

# The tests too, so that the counters themselves can be tested.
COUNTED = ("django_slidingwindow.", "tests.")
# Calls that depend on the machine: a check that is delayed by a millisecond sets the time-out of
# its socket again, and one that comes ten milliseconds after the last one looks at its connection.
HELD_UP = {
    f"django_slidingwindow.stores.net.{name}"
    for name in ("channel.bound", "channel.left", "pool._look")
}


class Calls:
    """Records the functions that this thread calls inside a `with` block."""

    def __init__(self) -> None:
        self.python: list[str] = []
        self.imports: list[str] = []
        self.matches = 0
        """How often this app, or a test, used a regular expression."""

    def __enter__(self) -> Self:
        self._import = builtins.__import__
        builtins.__import__ = self._note_import
        self._before = sys.getprofile()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)
        builtins.__import__ = self._import

    def _note_import(self, name: str, *arguments: Any) -> Any:
        self.imports.append(name)
        return self._import(name, *arguments)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call":
            self.python.append(f"{module}.{frame.f_code.co_name}")
        elif event == "c_call" and module.startswith(COUNTED):
            self.matches += isinstance(getattr(argument, "__self__", None), re.Pattern)

    def of(self, *modules: str) -> Counter[str]:
        """Return how often each Python function of the modules was called."""
        return Counter(name for name in self.python if name.startswith(modules))


def calls_of(ask: Callable[[], object]) -> Calls:
    with Calls() as calls:
        ask()
    return calls


def functions_of(ask: Callable[[], object]) -> list[str]:
    """Return the Python functions of this app that a call runs, in order."""
    for _ in range(3):
        ask()
    # The fewest, because the first refusal with a new number of seconds makes more calls.
    counts = [calls_of(ask).python for _ in range(5)]
    return min((_without_hold_ups(names) for names in counts), key=len)


def _without_hold_ups(names: list[str]) -> list[str]:
    return [
        name for name in names if name.startswith("django_slidingwindow.") and name not in HELD_UP
    ]
