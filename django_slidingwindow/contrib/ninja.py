"""Rate-limit profiles as throttles of django-ninja.

    api = NinjaAPI(throttle=[ProfileThrottle("ip_public")])
    api.add_decorator(throttled, mode="view")

ninja calls throttles synchronously even in an async operation, where a call to Redis would block
the event loop. So `throttled` charges async operations. It does so after ninja has authenticated
the request and before ninja calls the throttle. It also adds the headers to every response.

Without `throttled`, RateLimitMiddleware does both, but before ninja's authentication. Without
either, sync operations are charged by the throttle itself, and an async operation is an error,
which a system check reports.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any, cast

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver
from django.utils.translation import gettext
from ninja.errors import ConfigError
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation, PathView
from ninja.throttling import BaseThrottle

from ..decisions import Decision
from ..guard import check as guard
from ..guard.installation import MIDDLEWARE, has_middleware
from ..guard.requirements import (
    Choice,
    Requirement,
    Requirements,
    all_requirements,
    find_by,
    joined,
    requirements_from,
)
from ..guard.usages import calling_place, declare
from ..http import headers, refusal
from . import openapi

_CHARGED = "_rate_limit_ninja"
_REQUIREMENTS = "_rate_limit_requirements"
_THROTTLED = "_rate_limit_throttled"
_HOW = (
    'Add api.add_decorator(throttled, mode="view"), from django_slidingwindow.contrib.ninja, '
    f"or {MIDDLEWARE!r} to MIDDLEWARE."
)

# ninja calls `wait()` right after a refusal. It does not pass the request, and all requests share
# the throttle.
_wait: ContextVar[int | None] = ContextVar("wait", default=None)


class ProfileThrottle(BaseThrottle):
    """A throttle that charges profiles.

    The profiles of all ProfileThrottles of an operation are charged in one check: all or none.
    """

    def __init__(
        self,
        *profiles: str | Choice,
        cost: int | Callable[[HttpRequest], Any] = 1,
        methods: str | Iterable[str] | None = None,
    ) -> None:
        """`profiles`: names, or functions of the request that choose them."""
        if not profiles:
            raise TypeError('ProfileThrottle needs a profile: ProfileThrottle("ip_public")')
        place = calling_place()
        origin = f"ProfileThrottle at {place}"
        self.requirements = requirements_from(profiles, cost, methods, origin)
        declare(place, *self.requirements)

    def allow_request(self, request: HttpRequest) -> bool:
        decision = self._decision(request)
        if decision is None or decision.allowed:
            return True
        _wait.set(headers.client_seconds(decision))
        return False

    def wait(self) -> int | None:
        """Return the whole seconds until the refused request would pass; None for never."""
        return _wait.get()

    def _decision(self, request: HttpRequest) -> Decision | None:
        if hasattr(request, _CHARGED):
            return cast("Decision | None", getattr(request, _CHARGED))
        requirements = joined(self.requirements)
        match = request.resolver_match
        for operation in operations_of(match.func) if match is not None else ():
            if request.method in operation.methods and self in operation.throttle_objects:
                requirements = _requirements(operation)
        if _on_event_loop() and not guard.settled(request, requirements):
            raise ImproperlyConfigured(
                f"ProfileThrottle cannot charge the async operation at {request.path} by itself. "
                + _HOW
            )
        return guard.check(request, requirements)


def throttled(run: Callable[..., Any]) -> Callable[..., Any]:
    """Charge the ProfileThrottles of an async operation, and add the headers to every response.

    Use it with `add_decorator(throttled, mode="view")` of an API or a router, or with
    `decorate_view`.
    """
    operation = getattr(inspect.unwrap(run), "__self__", None)
    if not isinstance(operation, Operation):
        raise ConfigError('throttled is for whole views: add_decorator(throttled, mode="view")')
    setattr(operation, _THROTTLED, True)
    return _async_run(run, operation) if operation.is_async else _sync_run(run, operation)


def operations_of(view: Callable[..., Any]) -> Sequence[Operation]:
    """Return all operations at the path of a ninja view; () for other views."""
    for cell in getattr(view, "__closure__", None) or ():
        try:
            path_view = cell.cell_contents
        except ValueError:
            # The variable has no value yet.
            continue
        if isinstance(path_view, PathView):
            return path_view.operations
    return ()


def requirements_in(view: Callable[..., Any], method: str | None) -> Iterator[Requirements]:
    """Yield the requirements of the operations for a method: decorators first, then throttles."""
    for operation in operations_of(view):
        if method in operation.methods:
            yield joined(all_requirements(operation.run))
            yield _requirements(operation)


def uncharged_operations(patterns: Iterable[URLPattern | URLResolver]) -> Iterator[str]:
    """Yield the async operations with a ProfileThrottle that only the middleware can charge."""
    seen: dict[int, str] = {}
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from uncharged_operations(pattern.url_patterns)
            continue
        for operation in operations_of(pattern.callback):
            if _is_uncharged(operation) and _requirements(operation):
                view = operation.view_func
                seen[id(operation)] = f"{view.__module__}.{view.__qualname__}"
    yield from seen.values()


def _sync_run(
    run: Callable[..., HttpResponseBase], operation: Operation
) -> Callable[..., HttpResponseBase]:
    @wraps(run)
    def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return _finished(run(request, *args, **kwargs), request, operation)

    return limited


def _async_run(
    run: Callable[..., Awaitable[HttpResponseBase]], operation: Any
) -> Callable[..., Awaitable[HttpResponseBase]]:
    authenticate = operation._run_authentication

    async def charge(request: HttpRequest) -> None:
        setattr(request, _CHARGED, await guard.acheck(request, _requirements(operation)))

    async def authenticate_and_charge(request: HttpRequest) -> Any:
        error = await authenticate(request)
        if error is None:
            await charge(request)
        return error

    # Charge after the authentication, so that an identity may read request.auth, as it may in a
    # sync operation.
    operation._run_authentication = authenticate_and_charge

    @wraps(run)
    async def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not operation.auth_callbacks:
            await charge(request)
        return _finished(await run(request, *args, **kwargs), request, operation)

    return limited


def _finished(
    response: HttpResponseBase, request: HttpRequest, operation: Operation
) -> HttpResponseBase:
    """Return the response with the headers. A refusal gets the status of its decision."""
    decision: Decision | None = getattr(request, "rate_limit", None)
    if decision is not None and not decision.allowed and response.status_code == 429:
        status = refusal.status_of(decision)
        if status != response.status_code:
            detail = {"detail": gettext("Service unavailable.")}
            response = operation.api.create_response(request, detail, status=status)
        refusal.finish(response, decision)
    headers.show(response, request)
    return response


def _requirements(operation: Operation) -> Requirements:
    """Return the requirements of an operation's throttles, limited to the operation's methods.

    Operations with other methods may have the same throttle and path. Each call returns the same
    objects, so that the throttle recognizes the requirements that the middleware has charged.
    """
    throttles = [item for item in operation.throttle_objects if isinstance(item, ProfileThrottle)]
    cached: tuple[list[ProfileThrottle], Requirements] | None = getattr(
        operation, _REQUIREMENTS, None
    )
    if cached is None or cached[0] != throttles:
        methods = frozenset(operation.methods)
        requirements = joined(
            requirement._replace(
                methods=methods if requirement.methods is None else methods & requirement.methods
            )
            for throttle in throttles
            for requirement in throttle.requirements
        )
        cached = throttles, requirements
        setattr(operation, _REQUIREMENTS, cached)
    return cached[1]


def _is_uncharged(operation: Operation) -> bool:
    """Whether neither `throttled` nor the throttle itself charges the operation."""
    return operation.is_async and not hasattr(operation, _THROTTLED)


def _requirements_of_view(view: Callable[..., Any]) -> Iterator[Requirement]:
    """Yield the requirements that the middleware has to charge."""
    for operation in operations_of(view):
        if _is_uncharged(operation):
            yield from _requirements(operation)


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


find_by(_requirements_of_view)


# ninja has no hook by which throttles could extend the schema, so two of its methods are wrapped.
_COMPONENTS = "_rate_limit_components"
_responses, _components = OpenAPISchema.responses, OpenAPISchema.get_components


def _limited_responses(self: OpenAPISchema, operation: Operation) -> dict[int, Any]:
    """Return ninja's responses of an operation, with 429 and the rate-limit fields."""
    found: dict[int, Any] = _responses(self, operation)
    decorated = all_requirements(operation.run)
    body = openapi.detail([operation.api.renderer.media_type or "application/json"])
    refusals = [
        (_requirements(operation), openapi.problem() if _is_uncharged(operation) else body),
        (decorated, openapi.problem()),
    ]
    fields = decorated or hasattr(operation, _THROTTLED) or has_middleware()
    status, methods = refusal.TOO_MANY_REQUESTS, operation.methods
    added = openapi.describe(found, status, methods, refusals, fields=bool(fields))
    vars(self).setdefault(_COMPONENTS, []).extend(added)
    return found


def _limited_components(self: OpenAPISchema) -> dict[str, Any]:
    found: dict[str, Any] = _components(self)
    for kind, name, schema in vars(self).get(_COMPONENTS, ()):
        found.setdefault(kind, {}).setdefault(name, schema)
    return found


OpenAPISchema.responses = _limited_responses  # type: ignore[method-assign]
OpenAPISchema.get_components = _limited_components  # type: ignore[method-assign]
