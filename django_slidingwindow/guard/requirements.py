"""What a view, a rule or a throttle requires: profiles, cost and methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import ref

from ..core.caching import BoundedCache

if TYPE_CHECKING:
    from django.http import HttpRequest

Choice: TypeAlias = "Callable[[HttpRequest], Any]"
"""Answers a profile's name, several, or None; or something to await that does."""

EXEMPT = "rate_limit_exempt"
_REQUIREMENTS = "_rate_limit_requirements"


class Requirement(NamedTuple):
    """What a decorator, a rule or a throttle requires of a request.

    The functions may be `async def`. In an async check, those that are not run in a
    thread, so they may use the database.
    """

    profiles: tuple[str, ...] | Choice
    """Names, or a function of the request that answers a name, several, or None."""
    cost: int | Callable[[HttpRequest], Any] = 1
    """Of each profile. A function that fails or answers nonsense is logged and costs 1."""
    methods: frozenset[str] | None = None
    """None for all; see `methods_from`."""
    origin: str = ""
    """Where it stands in the project, for people: "rate_limit at shop.views:12"."""

    def covers(self, request: HttpRequest) -> bool:
        """Whether the request's method is one of them."""
        return self.methods is None or request.method in self.methods


class Requirements(tuple[Requirement, ...]):
    """Requirements that many requests meet together, so that what they need is prepared once."""

    binding: Any = None
    """What is prepared of them; see `binding.bind`."""

    def __init__(self, requirements: Iterable[Requirement]) -> None:
        # By identity: two equal requirements may stand in different places.
        self.ids = frozenset(map(id, self))


# By the ids of requirements, which are kept so that the ids stay their own.
_joined: BoundedCache[tuple[int, ...], Requirements] = BoundedCache(4_096)


def joined(requirements: Iterable[Requirement]) -> Requirements:
    """Return requirements as one: the same object for the same requirements."""
    each = tuple(requirements)
    key = tuple(map(id, each))
    found = _joined.get(key)
    return _joined.keep(key, Requirements(each)) if found is None else found


def methods_from(methods: str | Iterable[str] | None) -> frozenset[str] | None:
    """Return the methods of a requirement; GET covers HEAD, which does the same work."""
    if methods is None:
        return None
    names = {name.upper() for name in ([methods] if isinstance(methods, str) else methods)}
    if not names:
        raise ValueError("methods must not be empty; leave it out to count all methods")
    return frozenset(names | {"HEAD"} if "GET" in names else names)


def requirements_from(
    profiles: Iterable[str | Choice],
    cost: int | Callable[[HttpRequest], Any] = 1,
    methods: str | Iterable[str] | None = None,
    origin: str = "",
) -> tuple[Requirement, ...]:
    """Return the requirements of names and choices: one for all names, one for each choice."""
    given = tuple(profiles)
    found: list[tuple[str, ...] | Choice] = [item for item in given if not isinstance(item, str)]
    names = tuple(item for item in given if isinstance(item, str))
    if names:
        found.insert(0, names)
    return tuple(Requirement(item, cost, methods_from(methods), origin) for item in found)


def set_requirements(view: Callable[..., Any], requirements: Iterable[Requirement]) -> Requirements:
    """Write on a view what it requires before any other code of it runs, and return that."""
    # A class-based view may be decorated again at every request.
    found = joined(requirements)
    # Other decorators copy the attribute to the functions that they wrap around this one; the
    # reference tells them apart. It is weak, so that no view keeps itself alive.
    setattr(view, _REQUIREMENTS, (ref(view), found))
    return found


def own_requirements(view: Callable[..., Any]) -> Requirements:
    """Return what `set_requirements` wrote on this view; nothing if another decorator wraps it."""
    written = getattr(view, "__dict__", {}).get(_REQUIREMENTS)
    if written is None or written[0]() is not view:
        return _NO_REQUIREMENTS
    found: Requirements = written[1]
    return found


_NO_REQUIREMENTS = Requirements(())


def all_requirements(view: Callable[..., Any] | None) -> tuple[Requirement, ...]:
    """Return what `rate_limit` requires anywhere in a view's decorators, to describe the view."""
    found: dict[int, Requirement] = {}
    layer = view
    while layer is not None:
        for each in getattr(layer, "__dict__", {}).get(_REQUIREMENTS, (None, ()))[1]:
            found[id(each)] = each
        layer = getattr(layer, "__wrapped__", None)
    return tuple(found.values())


def requirements_of(view: Callable[..., Any]) -> Requirements:
    """Return what the middleware charges for a view, together with its rules.

    These are the requirements that nothing stands in front of. A `rate_limit` inside of another
    decorator charges the requests that reach it: `login_required`, for example, sends
    strangers away, and they must not use up a window that all users share.
    """
    found = own_requirements(view) or joined(each for finder in _finders for each in finder(view))
    if not found and isinstance(view, partial):
        return requirements_of(view.func)
    return found


Finder: TypeAlias = "Callable[[Callable[..., Any]], Iterable[Requirement]]"
_finders: list[Finder] = []


def find_by(finder: Finder) -> None:
    """Let an adapter say what the views of its framework require, which it cannot write on."""
    _finders.append(finder)


def is_exempt(view: Callable[..., Any]) -> bool:
    """Whether the middleware's rules leave the view alone."""
    exempt: bool = getattr(view, EXEMPT, False)
    return exempt or (isinstance(view, partial) and is_exempt(view.func))
