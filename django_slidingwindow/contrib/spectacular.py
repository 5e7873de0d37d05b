"""Describe limits in the schemas of drf-spectacular.

The app imports this module if drf-spectacular is in INSTALLED_APPS. drf-spectacular has extensions
for authentication, serializers and filters, but not for throttles. So this module wraps two of its
methods: one that knows the callback of a URL, and one that describes an operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import getclosurevars
from typing import Any

from drf_spectacular.drainage import warn
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from rest_framework.decorators import api_view
from rest_framework.views import exception_handler

from ..guard.requirements import Requirement, all_requirements
from . import openapi
from .drf import requirements_in

_CALLBACK = "_rate_limit_callback"
_create_view = SchemaGenerator.create_view
_get_operation = AutoSchema.get_operation


def _create_view_and_keep_callback(
    self: SchemaGenerator, callback: Any, method: str, request: Any = None
) -> Any:
    view = _create_view(self, callback, method, request)
    setattr(view, _CALLBACK, callback)
    return view


def _get_limited_operation(self: AutoSchema, *args: Any, **kwargs: Any) -> Any:
    operation = _get_operation(self, *args, **kwargs)
    if operation is not None:
        _describe(operation, self)
    return operation


def _describe(operation: dict[str, Any], schema: AutoSchema) -> None:
    view = schema.view
    body: openapi.Content = {}
    if view.get_exception_handler() is exception_handler:
        body = openapi.detail(schema.map_renderers("media_type"))
    refusals = [
        (_of_throttles(view), body),
        (_of_decorators(view, schema.method), openapi.problem()),
    ]
    for kind, name, described in openapi.describe(
        operation["responses"], "429", [schema.method], refusals
    ):
        component = ResolvedComponent(name=name, type=kind, schema=described, object=name)
        schema.registry.register_on_missing(component)


def _of_throttles(view: Any) -> Iterator[Requirement]:
    try:
        yield from requirements_in(view)
    except Exception as error:  # noqa: BLE001 -- the view's own code may need a real request
        warn(f"the rate limits of {type(view).__name__} are unknown: get_throttles failed: {error}")


def _of_decorators(view: Any, method: str) -> Iterator[Requirement]:
    """Yield the requirements of `rate_limit` on the URL, on `dispatch` and on the handler."""
    handler = getattr(view, getattr(view, "action", None) or method.lower(), None)
    for decorated in (getattr(view, _CALLBACK, None), view.dispatch, _function_in(handler)):
        yield from all_requirements(decorated)


def _function_in(handler: Any) -> Any:
    """Return the view function, if `api_view` of DRF has made this handler; else the handler."""
    if getattr(handler, "__module__", "") != api_view.__module__:
        return handler
    return getclosurevars(handler).nonlocals.get("func", handler)


SchemaGenerator.create_view = _create_view_and_keep_callback  # type: ignore[method-assign]
AutoSchema.get_operation = _get_limited_operation  # type: ignore[method-assign]
