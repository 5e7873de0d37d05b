"""The requirements of a view, a rule or a throttle: profiles, cost and methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import ref

from ..core.caching import BoundedCache
from ..policies import parse_cost
from ..profiles.user_code import synchronous
from .credentials import is_token

if TYPE_CHECKING:
    from django.http import HttpRequest

Choice: TypeAlias = "Callable[[HttpRequest], Any]"
"""Returns a profile's name, several names, or None; or an awaitable of these."""

EXEMPT = "rate_limit_exempt"
_REQUIREMENTS = "_rate_limit_requirements"


class Requirement(NamedTuple):
    """The profiles that count the requests of a view, a rule or a throttle.

    The functions are for sync code, as `synchronous` returns them. In an async check, they run in a
    thread, because they may use the database.
    """

    profiles: tuple[str, ...] | Choice
    """Names, or a function of the request that returns a name, several names, or None."""
    cost: int | Callable[[HttpRequest], Any] = 1
    """The hits that a request takes of each profile. If the function fails or does not return a
    cost, that is logged, and the cost is 1."""
    methods: frozenset[str] | None = None
    """The methods that are counted, as `methods_from` returns them; None for all."""
    origin: str = ""
    """The place in the project, for people: "rate_limit at shop.views:12"."""

    def covers(self, request: HttpRequest) -> bool:
        """Whether the request's method is counted."""
        return self.methods is None or request.method in self.methods


class Requirements(tuple[Requirement, ...]):
    """Requirements that are checked together. They are prepared once for many requests."""

    binding: Any = None
    """The prepared requirements; see `binding.bind`."""

    def __init__(self, requirements: Iterable[Requirement]) -> None:
        # By identity: two equal requirements may stand in different places.
        self.ids = frozenset(map(id, self))


# By the ids of the requirements. The values keep these objects alive, so that no id is reused.
_by_ids: BoundedCache[tuple[int, ...], Requirements] = BoundedCache(4_096)


def joined(requirements: Iterable[Requirement]) -> Requirements:
    """Return requirements as one object: the same one for the same requirements."""
    each = tuple(requirements)
    key = tuple(map(id, each))
    found = _by_ids.get(key)
    return _by_ids.keep(key, Requirements(each)) if found is None else found


def methods_from(methods: str | Iterable[str] | None) -> frozenset[str] | None:
    """Return the methods of a requirement. GET includes HEAD, which does the same work."""
    if methods is None:
        return None
    given = [methods] if isinstance(methods, str) else [*methods]
    if not given:
        raise ValueError("methods must not be empty; leave it out to count all methods")
    for name in given:
        if not is_token(name):
            raise ValueError(f"{name!r} is not a method: several are a list, ['GET', 'POST']")
    names = {name.upper() for name in given}
    return frozenset(names | {"HEAD"} if "GET" in names else names)


def cost_from(cost: Any) -> int | Callable[[HttpRequest], Any]:
    """Return the cost of a requirement, a number or a function. Raise ValueError if it is wrong."""
    return synchronous(cost) if callable(cost) else parse_cost(cost)


def requirements_from(
    profiles: Iterable[str | Choice],
    cost: int | Callable[[HttpRequest], Any] = 1,
    methods: str | Iterable[str] | None = None,
    origin: str = "",
) -> tuple[Requirement, ...]:
    """Return one requirement for all names, and one for each function that chooses profiles."""
    given = tuple(profiles)
    for item in given:
        if not isinstance(item, str) and not callable(item):
            raise TypeError(
                f"a limit needs names of profiles, or functions that choose them, not {item!r}"
            )
    cost = cost_from(cost)
    found: list[tuple[str, ...] | Choice] = [
        synchronous(item) for item in given if not isinstance(item, str)
    ]
    names = tuple(item for item in given if isinstance(item, str))
    if names:
        found.insert(0, names)
    return tuple(Requirement(item, cost, methods_from(methods), origin) for item in found)


def set_requirements(view: Callable[..., Any], requirements: Iterable[Requirement]) -> Requirements:
    """Store the requirements of a view as its attribute, and return them as one object."""
    # Joined, because a class-based view may be decorated again at every request.
    found = joined(requirements)
    # Other decorators copy the attribute to their wrappers; the reference tells for which function
    # it was set. It is weak, so that the view does not keep itself alive.
    setattr(view, _REQUIREMENTS, (ref(view), found))
    return found


def own_requirements(view: Callable[..., Any]) -> Requirements:
    """Return the requirements that were set on this view, and not copied to it by a decorator."""
    stored = getattr(view, "__dict__", {}).get(_REQUIREMENTS)
    if stored is None or stored[0]() is not view:
        return _NO_REQUIREMENTS
    found: Requirements = stored[1]
    return found


_NO_REQUIREMENTS = Requirements(())


def all_requirements(view: Callable[..., Any] | None) -> tuple[Requirement, ...]:
    """Return the requirements of every `rate_limit` among a view's decorators, for descriptions."""
    found: dict[int, Requirement] = {}
    layer = view
    while layer is not None:
        for each in getattr(layer, "__dict__", {}).get(_REQUIREMENTS, (None, ()))[1]:
            found[id(each)] = each
        layer = getattr(layer, "__wrapped__", None)
    return tuple(found.values())


def requirements_of(view: Callable[..., Any]) -> Requirements:
    """Return the requirements of a view that the middleware checks together with its rules.

    These are the requirements of a `rate_limit` that is the outermost decorator. Inside another
    decorator, it counts only the requests that reach it: `login_required`, for example, turns
    anonymous users away, and they must not use up a window that all users share.
    """
    found = own_requirements(view) or joined(each for finder in _finders for each in finder(view))
    if not found and isinstance(view, partial):
        return requirements_of(view.func)
    return found


Finder: TypeAlias = "Callable[[Callable[..., Any]], Iterable[Requirement]]"
_finders: list[Finder] = []


def find_by(finder: Finder) -> None:
    """Register a function that finds the requirements of a framework's views.

    It is for frameworks whose views cannot have the attribute of `set_requirements`.
    """
    _finders.append(finder)


def is_exempt(view: Callable[..., Any]) -> bool:
    """Whether the view is exempt from the middleware's rules."""
    exempt: bool = getattr(view, EXEMPT, False)
    return exempt or (isinstance(view, partial) and is_exempt(view.func))
