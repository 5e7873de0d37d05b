"""What views demand to be counted by, and where in the code they say so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import ref

if TYPE_CHECKING:
    from django.http import HttpRequest

Choice: TypeAlias = "Callable[[HttpRequest], Any]"
"""Answers a profile's name, several, or None; or something to await that does."""

EXEMPT = "rate_limit_exempt"
_DEMANDS = "_rate_limit_demands"


class Demand(NamedTuple):
    """What a decorator, a rule or a throttle wants a request to be counted by.

    The functions may be `async def`. In an async check, those that are not run in a
    thread, so they may use the database.
    """

    profiles: tuple[str, ...] | Choice
    """Names, or a function of the request that answers a name, several, or None."""
    cost: int | Callable[[HttpRequest], Any] = 1
    """Of each profile. A function that fails or answers nonsense is logged and costs 1."""
    methods: frozenset[str] | None = None
    """None for all; see `methods_from`."""

    def covers(self, request: HttpRequest) -> bool:
        """Whether the request's method is one of them."""
        return self.methods is None or request.method in self.methods


class Demands(tuple[Demand, ...]):
    """Demands that many requests meet together, so that what they need is prepared once."""

    # Of `claiming`.
    ready: Any = None

    def __init__(self, demands: Iterable[Demand]) -> None:
        self.ids = frozenset(map(id, self))
        """The ids of the demands: two demands that are equal may stand in different places."""


def methods_from(methods: str | Iterable[str] | None) -> frozenset[str] | None:
    """The methods of a demand; GET covers HEAD, which does the same work."""
    if methods is None:
        return None
    names = {name.upper() for name in ([methods] if isinstance(methods, str) else methods)}
    if not names:
        raise ValueError("methods must name at least one, or be left out for all")
    return frozenset(names | {"HEAD"} if "GET" in names else names)


def demands_from(
    profiles: Iterable[str | Choice],
    cost: int | Callable[[HttpRequest], Any] = 1,
    methods: str | Iterable[str] | None = None,
) -> tuple[Demand, ...]:
    """The demands of names and choices together: one for all names, one for each choice."""
    given = tuple(profiles)
    found: list[tuple[str, ...] | Choice] = [item for item in given if not isinstance(item, str)]
    names = tuple(item for item in given if isinstance(item, str))
    if names:
        found.insert(0, names)
    return tuple(Demand(item, cost, methods_from(methods)) for item in found)


def set_demands(view: Callable[..., Any], demands: Iterable[Demand]) -> Demands:
    """Write on a view what it demands before any other code of it runs, and return that."""
    found = Demands(demands)
    # Other decorators copy the attribute to the functions that they wrap around this one; the
    # reference tells them apart. It is weak, so that no view keeps itself alive.
    setattr(view, _DEMANDS, (ref(view), found))
    return found


def own_demands(view: Callable[..., Any]) -> Demands:
    """Return what `set_demands` wrote on this view; nothing if another decorator wraps it."""
    written = getattr(view, "__dict__", {}).get(_DEMANDS)
    if written is None or written[0]() is not view:
        return _NO_DEMANDS
    found: Demands = written[1]
    return found


_NO_DEMANDS = Demands(())


def demands_of(view: Callable[..., Any]) -> Demands:
    """Return what the middleware charges for a view, together with its rules.

    These are the demands that nothing stands in front of. A `rate_limit` inside of another
    decorator charges the requests that reach it: `login_required`, for example, sends
    strangers away, and they must not use up a window that all users share.
    """
    found = own_demands(view) or Demands([demand for finder in _finders for demand in finder(view)])
    if not found and isinstance(view, partial):
        return demands_of(view.func)
    return found


Finder: TypeAlias = "Callable[[Callable[..., Any]], Iterable[Demand]]"
_finders: list[Finder] = []


def find_by(finder: Finder) -> None:
    """Lets an adapter say what the views of its framework demand, which it cannot write on."""
    _finders.append(finder)


def is_exempt(view: Callable[..., Any]) -> bool:
    """Whether the middleware's rules leave the view alone."""
    exempt: bool = getattr(view, EXEMPT, False)
    return exempt or (isinstance(view, partial) and is_exempt(view.func))


class Usage:
    """A place in the code that demands profiles."""

    __slots__ = ("profiles", "view")

    def __init__(self, view: str, profiles: tuple[str, ...] | Choice) -> None:
        self.view = view  # its dotted name, or the module and line of what decorates a class
        self.profiles = profiles


_usages: dict[tuple[str, object], Usage] = {}


def declare(place: str, demand: Demand) -> None:
    """Remembers a place that demands; one that declares again is the same place."""
    profiles = demand.profiles
    # By name: a view may be decorated, or a choice be made, anew at each request.
    what = profiles if isinstance(profiles, tuple) else getattr(profiles, "__qualname__", None)
    _usages[place, what] = Usage(place, profiles)


def usages() -> list[Usage]:
    """Every place that has demanded profiles since the process started."""
    return list(_usages.values())
