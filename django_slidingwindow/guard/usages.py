"""Where in the code profiles are required: for the checks, the admin and the command."""

from __future__ import annotations

import sys

from .requirements import Choice, Requirement


class Usage:
    """A place in the code that requires profiles."""

    __slots__ = ("profiles", "view")

    def __init__(self, view: str, profiles: tuple[str, ...] | Choice) -> None:
        self.view = view  # its dotted name, or the module and line of what decorates a class
        self.profiles = profiles


_usages: dict[tuple[str, object], Usage] = {}


def calling_place(above: int = 1) -> str:
    """Return the module and line of the code that has called the caller of this function.

    `above`: how many calls are between the caller of this function and that code.
    """
    frame = sys._getframe(1 + above)
    return f"{frame.f_globals.get('__name__')}:{frame.f_lineno}"


def declare(place: str, *requirements: Requirement) -> None:
    """Remember a place that requires profiles; one that declares again is the same place."""
    for requirement in requirements:
        profiles = requirement.profiles
        # By name, because a view may be decorated again at each request.
        what = profiles if isinstance(profiles, tuple) else getattr(profiles, "__qualname__", None)
        _usages[place, what] = Usage(place, profiles)


def usages() -> list[Usage]:
    """Return every place that has required profiles since the process started."""
    return list(_usages.values())
