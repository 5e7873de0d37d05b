"""Limits on all requests, by the rules of the settings and the requirements of the views."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http.response import HttpResponseBase

from .conf import conf
from .core.caching import BoundedCache
from .guard import check as guard
from .guard.installed import require_installed
from .guard.requirements import Requirements, is_exempt, joined, requirements_of
from .guard.rules import requirements_for
from .http import headers
from .http import refusal as responses

if TYPE_CHECKING:
    from django.http import HttpRequest

_SEEN = "_rate_limit_seen"
_NOTHING = joined(())
# The requirements of rules and view together, by the ids of all of them; they are kept
# as well, so that the ids stay their own.
_joined: BoundedCache[tuple[int, ...], tuple[Callable[..., Any], Requirements]]
_joined = BoundedCache(4_096)


class RateLimitMiddleware:
    """Counts each request by all the rules that match it, and by what its view requires.

    It may stand anywhere in MIDDLEWARE: it decides when all the others have prepared
    the request, and before the view runs. Rules and the view's own `rate_limit` are
    charged together, in one call. A request that another answers before that (an unknown
    path, a failed CSRF check) is charged by the rules once its response is known.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        require_installed()
        self.get_response = get_response
        self.async_mode = iscoroutinefunction(get_response)
        if self.async_mode:
            markcoroutinefunction(self)
            # Django looks at the method itself to tell how to call it.
            self.process_view = self.aprocess_view  # type: ignore[assignment,method-assign]

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.async_mode:
            return self.__acall__(request)
        response: HttpResponseBase = self.get_response(request)
        requirements = _left(request, response)
        if requirements:
            decision = guard.check(request, requirements)
            if decision is not None and not decision.allowed:
                response = responses.refusal(request, decision)
        headers.show(response, request)
        return response

    async def __acall__(self, request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = await self.get_response(request)
        requirements = _left(request, response)
        if requirements:
            decision = await guard.acheck(request, requirements)
            if decision is not None and not decision.allowed:
                response = await responses.arefusal(request, decision)
        headers.show(response, request)
        return response

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        """Return the refusal, if there is one."""
        decision = guard.check(request, requirements_at(request, view))
        if decision is None or decision.allowed:
            return None
        return responses.refusal(request, decision)

    async def aprocess_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        """Do what `process_view` does, whose place it takes on an event loop."""
        decision = await guard.acheck(request, requirements_at(request, view))
        if decision is None or decision.allowed:
            return None
        return await responses.arefusal(request, decision)


def requirements_at(request: HttpRequest, view: Callable[..., Any]) -> Requirements:
    """Return what the rules and a view require before the view runs."""
    setattr(request, _SEEN, True)
    if not conf.enabled:
        return _NOTHING
    of_rules = () if is_exempt(view) else requirements_for(request)
    key = (id(view), *map(id, of_rules))
    found = _joined.get(key)
    if found is None:
        found = _joined.keep(key, (view, joined((*of_rules, *requirements_of(view)))))
    return found[1]


def _left(request: HttpRequest, response: HttpResponseBase) -> Requirements:
    """Return what the rules require of a request that was answered before its view."""
    # A stream has been opened already, a static file for example: nothing is saved.
    if hasattr(request, _SEEN) or response.streaming or not conf.enabled:
        return _NOTHING
    match = request.resolver_match
    if match is not None and is_exempt(match.func):
        return _NOTHING
    return joined(requirements_for(request))
