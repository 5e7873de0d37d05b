"""The places on the way of a request that require profiles, in the order in which it meets them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..checks.project import middleware_like
from ..conf import conf
from ..guard.requirements import (
    Requirements,
    all_requirements,
    joined,
    own_requirements,
)
from ..guard.rules import requirements_for
from ..middleware import RateLimitMiddleware, requirements_at

if TYPE_CHECKING:
    from django.http import HttpRequest

MIDDLEWARE, VIEW, INSIDE, THROTTLE = "middleware", "view", "inside the view", "throttle"
_PATH = f"{RateLimitMiddleware.__module__}.{RateLimitMiddleware.__qualname__}"


class Place(NamedTuple):
    """A place that checks requirements together."""

    name: str
    """INSIDE and THROTTLE are met only by requests that get through what stands before them."""
    requirements: Requirements


class UnknownThrottlesError(Exception):
    """A view of Django REST framework does not tell its throttles without a real request."""


def has_middleware() -> bool:
    """Whether MIDDLEWARE has ours, or one derived from it."""
    return bool(middleware_like(conf.middleware, _PATH))


def places(request: HttpRequest) -> Iterator[Place]:
    """Yield all places that a request to its view may meet; one may repeat another's requirements.

    Raise UnknownThrottlesError at the end if a view hides its throttles.
    """
    match = request.resolver_match
    if has_middleware():
        if match is None:
            # Charged once the response is known.
            yield Place(MIDDLEWARE, joined(requirements_for(request)))
        else:
            yield Place(MIDDLEWARE, requirements_at(request, match.func))
    if match is not None:
        yield from _of_view(request, match.func)


def _of_view(request: HttpRequest, view: Callable[..., Any]) -> Iterator[Place]:
    for number, layer in enumerate(_layers(view)):
        own = own_requirements(layer)
        if own:
            yield Place(INSIDE if number else VIEW, own)
    # A method of a class is decorated anew at each request, so it has no layers yet.
    yield Place(INSIDE, joined(all_requirements(_unwrapped_partial(view))))
    instance = _instance(request, view)
    if instance is not None:
        yield from _of_class(request, instance)
    ninja = sys.modules.get("django_slidingwindow.contrib.ninja")
    if ninja is not None:
        for requirements in ninja.requirements_in(view, request.method):
            yield Place(THROTTLE, requirements)


def _layers(view: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    layer: Any = _unwrapped_partial(view)
    while layer is not None:
        yield layer
        layer = getattr(layer, "__wrapped__", None)


def _unwrapped_partial(view: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(view, partial):
        view = view.func
    return view


def _instance(request: HttpRequest, view: Any) -> Any:
    """Return the object of a class-based view that would answer the request; None for others."""
    made_by = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if made_by is None:
        return None
    instance = made_by(**getattr(view, "view_initkwargs", getattr(view, "initkwargs", {})))
    # Views of Django REST framework may look at these.
    instance.request, instance.args, instance.kwargs = request, (), {}
    if hasattr(view, "actions"):
        instance.action = (view.actions or {}).get((request.method or "").lower())
    return instance


def _of_class(request: HttpRequest, instance: Any) -> Iterator[Place]:
    inside = getattr(instance, "_rate_limit_inside", None)
    if inside is not None:
        # A partial, as `dispatch` decorates: a function would count as a view of the project.
        yield Place(INSIDE, own_requirements(inside(partial(instance.http_method_not_allowed))))
    throttled: Requirements | None = None
    drf = sys.modules.get("django_slidingwindow.contrib.drf")
    if drf is not None and hasattr(instance, "get_throttles"):
        try:
            throttled = drf.requirements_in(instance)
        except Exception as error:
            raise UnknownThrottlesError(f"get_throttles failed: {error}") from error
        yield Place(THROTTLE, throttled)
    yield Place(INSIDE, joined(all_requirements(_handler(request, instance))))


def _handler(request: HttpRequest, instance: Any) -> Any:
    """Return the method that answers; Django lets `get` answer HEAD."""
    name = getattr(instance, "action", None) or (request.method or "").lower()
    handler = getattr(instance, name, None)
    return getattr(instance, "get", None) if handler is None and name == "head" else handler
