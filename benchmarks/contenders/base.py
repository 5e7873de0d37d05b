"""The types of contenders. Each other module of this folder has those of one library."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

Check: TypeAlias = "Callable[[str], bool]"
"""Charge one hit to an identifier; return whether it was admitted."""
AsyncCheck: TypeAlias = "Callable[[str], Awaitable[bool]]"

FLOOR = "floor: redis-py's EVALSHA of `return 1`"
BARE = "the bare view"
OURS = "**ours, compact**"
UNSHIELDED = "ours, compact, without the shield"
BY_CLIENT = "ours, TRANSPORT client"
UNLEASED, LEASED = "ours, without a lease", "**ours, lease 100**"
WAITING, DEFERRED = "ours, waiting for Redis", "**ours, deferred**"
SORTED_SET_NAME = "article's sorted set"
UNIQUE_NAME = "sorted set, unique members"
HASH_NAME = "article's hash"
LEAST_VIEW = "the least of ours: an exchange and the fields"
LEAST_WINDOWS = "the least of ours: windows read and written"
DJANGO_REDIS = "django-redis"
DRF = "Django REST framework's throttling"
DRF_FLOOR = f"{FLOOR}, in a view of Django REST framework"
OURS_DRF, OURS_NINJA = "ours, DRF throttle", "ours, ninja"
CHECK, BY_DECORATOR, BY_MIDDLEWARE = "ours, a check", "ours, decorator", "ours, middleware"
IMPORTED = "**ours**, with its model, decorator, middleware and limits"


@dataclass(frozen=True, slots=True)
class Case:
    """A limit that all contenders apply."""

    name: str
    limit: int
    window: int
    """Seconds: 60 or 86,400."""


ALLOWED = Case("allowed", 100, 60)
REFUSED = Case("refused", 100, 60)
BIG = Case("big", 10_000, 86_400)
ENDLESS = Case("endless", 1_000_000, 60)
CASES = (ALLOWED, REFUSED, BIG, ENDLESS)
# Only for the sections `leases` and `deferred`.
TENANT = Case("tenant", 10_000, 86_400)
HOT = Case("hot", 50_000_000, 60)


@dataclass(frozen=True, slots=True)
class Contender:
    """A limiter that is called directly."""

    name: str
    make: Callable[[Case], Check]
    make_async: Callable[[Case], AsyncCheck] | None = None
    fill: Callable[[Case, str, int], None] | None = None
    """Write live hits of an identifier directly, if calls would take too long, or would count
    several hits of one millisecond as one."""
    stores: bool = True
    """Whether it stores anything in Redis."""


@dataclass(frozen=True, slots=True)
class ViewContender:
    """A limiter of views. `limit` decorates a view that is called `name`."""

    slug: str
    name: str
    limit: Callable[[Case, Callable[..., Any]], Callable[..., Any]]
    middleware: tuple[str, ...] = ()
    settings: Callable[[Case], dict[str, Any]] = lambda case: {}
    """Settings that its handler needs when it is made."""
    base: str | None = None
    """The slug of the view without a limit; None for the bare view itself."""
    is_async: bool = False
    cases: tuple[Case, ...] = CASES
    """The cases that it has a view for."""


def modules() -> Iterator[tuple[str, ModuleType | ImportError]]:
    """Yield the names and modules of all contenders; an ImportError if one is not installed."""
    package = importlib.import_module("benchmarks.contenders")
    for found in pkgutil.iter_modules(package.__path__):
        if found.name != "base":
            try:
                yield found.name, importlib.import_module(f"{package.__name__}.{found.name}")
            except ImportError as error:
                yield found.name, error


def missing() -> dict[str, str]:
    """Return the modules that cannot be imported here, and why."""
    return {name: str(found) for name, found in modules() if isinstance(found, ImportError)}


def contenders() -> list[Contender]:
    """Return all limiters, the floor first and ours last."""
    return sorted(_all("CONTENDERS"), key=lambda found: (found.name != FLOOR, "ours" in found.name))


def view_contenders() -> list[ViewContender]:
    """Return all limiters of views: the bare view first, then the floor, and ours last."""
    return sorted(
        _all("VIEWS"),
        key=lambda found: (found.base is not None, found.name != FLOOR, "ours" in found.name),
    )


def _all(name: str) -> list[Any]:
    return [
        contender
        for _, found in modules()
        if not isinstance(found, ImportError)
        for contender in getattr(found, name, [])
    ]
