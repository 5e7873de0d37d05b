"""The places in the code that require profiles, for the system checks and the admin."""

from __future__ import annotations

import sys

from .requirements import Choice, Requirement


class Usage:
    """A place in the code that requires profiles."""

    __slots__ = ("profiles", "view")

    def __init__(self, view: str, profiles: tuple[str, ...] | Choice) -> None:
        self.view = view
        """The dotted name of a view, or the module and line of its decorator."""
        self.profiles = profiles


_usages: dict[tuple[str, object], Usage] = {}


def calling_place(above: int = 1) -> str:
    """Return the module and line of the code that called the caller of this function.

    `above`: how many frames that code is above the caller.
    """
    frame = sys._getframe(1 + above)
    return f"{frame.f_globals.get('__name__')}:{frame.f_lineno}"


def declare(place: str, *requirements: Requirement) -> None:
    """Remember a place that requires profiles, once even if it is declared again."""
    for requirement in requirements:
        profiles = requirement.profiles
        # By name, because a view may be decorated again at each request.
        name = profiles if isinstance(profiles, tuple) else getattr(profiles, "__qualname__", None)
        _usages[place, name] = Usage(place, profiles)


def usages() -> list[Usage]:
    """Return every place that has required profiles since the process started."""
    return list(_usages.values())
