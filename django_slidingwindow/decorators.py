"""Limit the requests of a view, by a decorator or a mixin."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from .guard import check as guard
from .guard.installation import require_installed
from .guard.requirements import (
    EXEMPT,
    Requirement,
    cost_from,
    methods_from,
    own_requirements,
    set_requirements,
)
from .guard.usages import calling_place, declare
from .http import headers
from .http import refusal as responses
from .profiles.user_code import is_async, synchronous

View = TypeVar("View", bound=Callable[..., Any])

if TYPE_CHECKING:
    from django.views import View as _View
else:
    _View = object

logger = logging.getLogger("django_slidingwindow")

_CHARGE_WHEN_FAILED = "charge_when failed, so the charge stays: %r"


def rate_limit(
    *profiles: str,
    profile: str | Iterable[str] | Callable[[HttpRequest], Any] | None = None,
    cost: int | Callable[[HttpRequest], Any] = 1,
    methods: str | Iterable[str] | None = None,
    charge_when: Callable[[Any], Any] | None = None,
) -> Callable[[View], View]:
    """Count a view's requests by one or several profiles, and refuse those above a limit.

    `profile`: a name, several names, or a function of the request that returns a name, several
    names or None. `cost`: the hits that a request takes, or a function of the request. `methods`:
    only these are counted; GET includes HEAD. `charge_when`: a function of the response. The
    request is charged before the view runs, and the charge is given back if the function returns
    False: `charge_when=lambda response: response.status_code == 401` counts failed logins only. If
    the view raises, there is no response, and the charge stays.

    The decorator counts the requests that reach it: inside `login_required`, those of users who are
    logged in; outside, those of anonymous users as well. If several stand directly above each
    other, the outermost charges all in one call: a refusal by one charges nothing to the others. If
    they are the outermost decorators of the view, the middleware charges them together with its
    rules. The decision is at `request.rate_limit`. Sync views stay sync, async views async.
    """
    require_installed()
    place = calling_place()
    origin = f"rate_limit at {place}"
    requirement = _requirement(_profiles(profiles, profile), cost, methods, origin)
    return _decorator(requirement, charge_when, place)


def _requirement(profiles: Any, cost: Any, methods: Any, origin: str) -> Requirement:
    return Requirement(profiles, cost_from(cost), methods_from(methods), origin)


def _decorator(
    requirement: Requirement, charge_when: Callable[[Any], Any] | None, place: str
) -> Callable[[View], View]:
    def decorate(view: View) -> View:
        _refuse_class(view, "rate_limit(...)")
        # Django's method_decorator decorates a dummy function first, and then, at every request, a
        # partial of the bound method.
        if _bound_to(view) is None:
            declare(_name_of(view) or place, requirement)
        if _is_async_view(view):
            return cast(View, _limit_async(view, requirement, charge_when))
        return cast(View, _limit(view, requirement, sync_charge_when))

    sync_charge_when = None if charge_when is None else synchronous(charge_when)
    return decorate


def _profiles(
    names: tuple[str, ...], keyword: Any
) -> tuple[str, ...] | Callable[[HttpRequest], Any]:
    if callable(keyword) and not names:
        return synchronous(keyword)
    if keyword is None:
        keyword = ()
    elif isinstance(keyword, str):
        keyword = (keyword,)
    found = (*names, *keyword) if isinstance(keyword, Iterable) else ()
    if not found or not all(isinstance(name, str) for name in found):
        raise TypeError('rate_limit needs names of profiles, such as rate_limit("ip_public")')
    return found


def _refuse_class(view: Any, decorator: str) -> None:
    if isinstance(view, type):
        raise TypeError(
            f"{view.__name__} is a class, and {decorator} is for views: "
            f"use method_decorator({decorator}, name='dispatch')"
        )


def _name_of(view: Callable[..., Any]) -> str | None:
    """Return the dotted name of a view; None for the dummy function of `method_decorator`."""
    function = view.func if isinstance(view, partial) else view
    named: Any = getattr(function, "view_class", function)
    if named.__module__ == "django.utils.decorators":
        return None
    return f"{named.__module__}.{getattr(named, '__qualname__', type(named).__qualname__)}"


def _is_async_view(view: Callable[..., Any]) -> bool:
    """Whether a view returns an awaitable, as the sync `dispatch` of an async class does."""
    return is_async(view) or getattr(_bound_to(view), "view_is_async", False)


def _bound_to(view: Callable[..., Any]) -> Any:
    """Return the object of a bound method inside a partial; None for other views."""
    return getattr(view.func, "__self__", None) if isinstance(view, partial) else None


def _limit(
    view: Callable[..., Any], requirement: Requirement, charge_when: Callable[[Any], Any] | None
) -> Callable[..., Any]:
    @wraps(view)
    def wrapper(request: Any, *args: Any, **kwargs: Any) -> Any:
        django_request = request if isinstance(request, HttpRequest) else _django_request(request)
        decision = guard.check(django_request, requirements)
        if decision is not None and not decision.allowed:
            response: Any = responses.refusal(django_request, decision)
        else:
            response = view(request, *args, **kwargs)
            if charge_when is not None and not _should_charge(charge_when, response):
                guard.refund(django_request, requirement)
        # What a view of another framework returns is not always a response yet.
        if isinstance(response, HttpResponseBase):
            headers.show(response, django_request)
        return response

    requirements = set_requirements(wrapper, (requirement, *own_requirements(view)))
    return wrapper


def _limit_async(
    view: Callable[..., Any], requirement: Requirement, charge_when: Callable[[Any], Any] | None
) -> Callable[..., Any]:
    @wraps(view)
    async def wrapper(request: Any, *args: Any, **kwargs: Any) -> Any:
        django_request = request if isinstance(request, HttpRequest) else _django_request(request)
        decision = await guard.acheck(django_request, requirements)
        if decision is not None and not decision.allowed:
            response: Any = await responses.arefusal(django_request, decision)
        else:
            response = await view(request, *args, **kwargs)
            if charge_when is not None and not await _ashould_charge(charge_when, response):
                await guard.arefund(django_request, requirement)
        # What a view of another framework returns is not always a response yet.
        if isinstance(response, HttpResponseBase):
            headers.show(response, django_request)
        return response

    requirements = set_requirements(wrapper, (requirement, *own_requirements(view)))
    return wrapper


def _django_request(request: Any) -> HttpRequest:
    """Return Django's request inside a request of Django REST framework."""
    found: HttpRequest | None = getattr(request, "_request", None)
    if found is None:
        raise TypeError(
            f"rate_limit got {type(request).__name__} where a request should be: on a method of "
            "a class-based view, use method_decorator(rate_limit(...)) or RateLimitMixin"
        )
    return found


def _should_charge(charge_when: Callable[[Any], Any], response: Any) -> bool:
    try:
        return bool(charge_when(response))
    except Exception:
        logger.exception(_CHARGE_WHEN_FAILED, charge_when)
        return True


async def _ashould_charge(charge_when: Callable[[Any], Any], response: Any) -> bool:
    # A sync function runs here, and not in a thread: it only looks at the response.
    try:
        found = charge_when(response)
        return bool(await found if isawaitable(found) else found)
    except Exception:
        logger.exception(_CHARGE_WHEN_FAILED, charge_when)
        return True


def rate_limit_exempt(view: View) -> View:
    """Exempt a view from the middleware's rules. Its own `rate_limit` still counts."""
    _refuse_class(view, "rate_limit_exempt")
    if _is_async_view(view):

        @wraps(view)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            return await view(*args, **kwargs)
    else:

        @wraps(view)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return view(*args, **kwargs)

    setattr(wrapper, EXEMPT, True)
    set_requirements(wrapper, own_requirements(view))
    return cast(View, wrapper)


class RateLimitMixin(_View):
    """Mixin that limits a class-based view. Its attributes are the arguments of `rate_limit`.

    `as_view` may set them for one URL: `as_view(rate_limit_profiles=["login"])`. The mixin counts
    the requests that reach its `dispatch`. Classes to its left and decorators of `dispatch` come
    first: `class Page(LoginRequiredMixin, RateLimitMixin, View)` counts the requests of users who
    are logged in.
    """

    rate_limit_profiles: str | Sequence[str] | Callable[[HttpRequest], Any] | None = None
    rate_limit_cost: int | Callable[[HttpRequest], Any] = 1
    rate_limit_methods: str | Iterable[str] | None = None
    rate_limit_charge_when: Callable[[Any], Any] | None = None
    # The decorator for `dispatch`, if another `dispatch` runs before this one; `as_view` sets it.
    _rate_limit_inside: Callable[..., Any] | None = None

    @classmethod
    def as_view(cls, *args: Any, **initkwargs: Any) -> Callable[..., Any]:
        """Return Django's view, with the limits of the attributes.

        `args` are those of another framework: a ViewSet takes a dict of methods.
        """

        def option(name: str) -> Any:
            return initkwargs.get(name, getattr(cls, name))

        if not option("rate_limit_profiles"):
            return cast("Callable[..., Any]", super().as_view(*args, **initkwargs))
        require_installed()
        place = f"{cls.__module__}.{cls.__qualname__}"
        requirement = _requirement(
            _profiles((), option("rate_limit_profiles")),
            option("rate_limit_cost"),
            option("rate_limit_methods"),
            f"RateLimitMixin of {place}",
        )
        limit: Callable[..., Any] = _decorator(requirement, option("rate_limit_charge_when"), place)
        outermost = cls.dispatch is RateLimitMixin.dispatch
        if not outermost:
            initkwargs["_rate_limit_inside"] = limit
        view: Callable[..., Any] = super().as_view(*args, **initkwargs)
        # Decorated in either case, so that the view is among the usages.
        limited = limit(view)
        return limited if outermost else view

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Call Django's `dispatch`, with the limits if `as_view` could not limit the whole view."""
        dispatch = super().dispatch
        if self._rate_limit_inside is None:
            return dispatch(request, *args, **kwargs)
        # A partial, as from Django's method_decorator, because it is decorated at every request.
        return self._rate_limit_inside(partial(dispatch))(request, *args, **kwargs)
