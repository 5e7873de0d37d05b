"""The places that check a request, in the order in which the request reaches them.

A place is the middleware, a decorator, a class-based view or a throttle.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..guard.installation import has_middleware
from ..guard.requirements import (
    Requirements,
    all_requirements,
    joined,
    own_requirements,
)
from ..guard.rules import requirements_for
from ..middleware import requirements_at

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.urls import ResolverMatch

MIDDLEWARE, VIEW, INSIDE, THROTTLE = "middleware", "view", "inside the view", "throttle"


class Place(NamedTuple):
    """A place that makes one check of all its requirements."""

    name: str
    """MIDDLEWARE, VIEW, INSIDE or THROTTLE.

    A request reaches INSIDE and THROTTLE only if the code before them lets it through.
    """
    requirements: Requirements


class UnknownPlacesError(Exception):
    """The places inside a class-based view cannot be found without a real request."""


def places(request: HttpRequest) -> Iterator[Place]:
    """Yield the places that may check a request. Several places may have the same requirements.

    Raise UnknownPlacesError if a class-based view needs a real request.
    """
    match = request.resolver_match
    if has_middleware():
        if match is None:
            # The middleware charges its rules after the response.
            yield Place(MIDDLEWARE, joined(requirements_for(request)))
        else:
            yield Place(MIDDLEWARE, requirements_at(request, match.func))
    if match is not None:
        yield from _places_of_view(request, match)


def _places_of_view(request: HttpRequest, match: ResolverMatch) -> Iterator[Place]:
    view = match.func
    for number, layer in enumerate(_layers(view)):
        own = own_requirements(layer)
        if own:
            yield Place(INSIDE if number else VIEW, own)
    # Decorators on a method of a class wrap it again for each request. They are not among the
    # layers, but the view has their requirements.
    yield Place(INSIDE, joined(all_requirements(_unwrapped_partial(view))))
    instance = _instance(request, match)
    if instance is not None:
        yield from _places_of_class(request, instance)
    ninja = sys.modules.get("django_slidingwindow.contrib.ninja")
    if ninja is not None:
        for requirements in ninja.requirements_in(view, request.method):
            yield Place(THROTTLE, requirements)


def _layers(view: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield a view, the function that it wraps, and so on inwards."""
    layer: Any = _unwrapped_partial(view)
    while layer is not None:
        yield layer
        layer = getattr(layer, "__wrapped__", None)


def _unwrapped_partial(view: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(view, partial):
        view = view.func
    return view


def _instance(request: HttpRequest, match: ResolverMatch) -> Any:
    """Return an instance of a class-based view, set up for the request; None for other views."""
    view: Any = match.func
    view_class = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if view_class is None:
        return None
    options = getattr(view, "view_initkwargs", getattr(view, "initkwargs", {}))
    try:
        instance = view_class(**options)
    except Exception as error:
        raise UnknownPlacesError(f"the view could not be created: {error}") from error
    # `get_throttles` of a Django REST framework view may read these.
    instance.request, instance.args, instance.kwargs = request, match.args, match.kwargs
    if hasattr(view, "actions"):
        instance.action = (view.actions or {}).get((request.method or "").lower())
    return instance


def _places_of_class(request: HttpRequest, instance: Any) -> Iterator[Place]:
    inside = getattr(instance, "_rate_limit_inside", None)
    if inside is not None:
        # The decorator would register a function as a view of the project, but not a partial.
        yield Place(INSIDE, own_requirements(inside(partial(instance.http_method_not_allowed))))
    drf = sys.modules.get("django_slidingwindow.contrib.drf")
    if drf is not None and hasattr(instance, "get_throttles"):
        try:
            throttled = drf.requirements_in(instance)
        except Exception as error:
            raise UnknownPlacesError(f"get_throttles failed: {error}") from error
        yield Place(THROTTLE, throttled)
    yield Place(INSIDE, joined(all_requirements(_handler(request, instance))))


def _handler(request: HttpRequest, instance: Any) -> Any:
    """Return the method that handles the request. Django lets `get` handle HEAD."""
    name = getattr(instance, "action", None) or (request.method or "").lower()
    handler = getattr(instance, name, None)
    return getattr(instance, "get", None) if handler is None and name == "head" else handler
