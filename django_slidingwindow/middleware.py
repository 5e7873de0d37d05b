"""Limit all requests, by the rules of the settings and the requirements of the views."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeGuard

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http.response import HttpResponseBase

from .conf import conf
from .core.caching import BoundedCache
from .guard import check as guard
from .guard.installation import require_installed
from .guard.requirements import Requirements, is_exempt, joined, requirements_of
from .guard.rules import requirements_for
from .http import headers
from .http import refusal as responses
from .profiles.user_code import in_thread

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.template.response import SimpleTemplateResponse

_REACHED_VIEW = "_rate_limit_reached_view"
_NO_REQUIREMENTS = joined(())
# The requirements of the rules and the view together, by the ids of the view and of the rules'
# requirements. The values keep these objects alive, so that no id is reused.
_rules_and_view: BoundedCache[tuple[int, ...], tuple[Callable[..., Any], Requirements]]
_rules_and_view = BoundedCache(4_096)


class RateLimitMiddleware:
    """Middleware that counts requests by all rules that match, and by their views' requirements.

    Wherever it stands in MIDDLEWARE, it decides after all other middleware have prepared the
    request, and before the view runs. Rules and the view's own `rate_limit` are charged together,
    in one call. A request that never reaches its view (an unknown path, a failed CSRF check) is
    charged by the rules after its response was made.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        require_installed()
        self.get_response = get_response
        self.async_mode = iscoroutinefunction(get_response)
        if self.async_mode:
            markcoroutinefunction(self)
            # Django inspects the method itself to find out whether it is async. It runs a sync one,
            # which only a subclass may have defined, in a thread.
            if _definer(self, "process_view") in _definer(self, "aprocess_view").__mro__:
                self.process_view = self.aprocess_view  # type: ignore[assignment,method-assign]

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.async_mode:
            return self.__acall__(request)
        response: HttpResponseBase = self.get_response(request)
        if not hasattr(request, _REACHED_VIEW):
            decision = guard.check(request, _requirements_without_view(request, response))
            if decision is not None and not decision.allowed:
                response = responses.refusal(request, decision)
                if _needs_rendering(response):
                    response = response.render()
        headers.show(response, request)
        return response

    async def __acall__(self, request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = await self.get_response(request)
        if not hasattr(request, _REACHED_VIEW):
            requirements = _requirements_without_view(request, response)
            decision = await guard.acheck(request, requirements)
            if decision is not None and not decision.allowed:
                response = await responses.arefusal(request, decision)
                if _needs_rendering(response):
                    response = await in_thread(response.render)
        headers.show(response, request)
        return response

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        """Return the response of a refusal; None if the view may run."""
        decision = guard.check(request, requirements_at(request, view))
        if decision is None or decision.allowed:
            return None
        return responses.refusal(request, decision)

    async def aprocess_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        """Do what `process_view` does, without blocking the event loop."""
        decision = await guard.acheck(request, requirements_at(request, view))
        if decision is None or decision.allowed:
            return None
        return await responses.arefusal(request, decision)


def _definer(middleware: RateLimitMiddleware, method: str) -> type:
    """Return the class that has the method that runs for this middleware."""
    return next(each for each in type(middleware).__mro__ if method in vars(each))


def requirements_at(request: HttpRequest, view: Callable[..., Any]) -> Requirements:
    """Return the requirements of the rules and of a view, to check before the view runs."""
    setattr(request, _REACHED_VIEW, True)
    if not conf.enabled:
        return _NO_REQUIREMENTS
    of_rules = requirements_for(request)
    key = (id(view), *map(id, of_rules))
    found = _rules_and_view.get(key)
    if found is None:
        both = (*(() if is_exempt(view) else of_rules), *requirements_of(view))
        found = _rules_and_view.keep(key, (view, joined(both)))
    return found[1]


def _needs_rendering(response: HttpResponseBase) -> TypeGuard[SimpleTemplateResponse]:
    """Whether a response has no content yet.

    Django renders the response of a view or of `process_view`, but not what a middleware returns.
    """
    return not getattr(response, "is_rendered", True)


def _requirements_without_view(request: HttpRequest, response: HttpResponseBase) -> Requirements:
    """Return the requirements of the rules for a request that did not reach its view."""
    # A stream, for example a static file, is open already: to refuse it would save nothing.
    if response.streaming or not conf.enabled:
        return _NO_REQUIREMENTS
    match = request.resolver_match
    if match is not None and is_exempt(match.func):
        return _NO_REQUIREMENTS
    return joined(requirements_for(request))
