"""Limits on views."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from .guard import check as guard
from .guard.installed import require_installed
from .guard.requirements import (
    EXEMPT,
    Requirement,
    methods_from,
    own_requirements,
    set_requirements,
)
from .guard.usages import calling_place, declare
from .guard.user_code import is_async
from .http import headers
from .http import refusal as responses
from .policies import parse_cost

View = TypeVar("View", bound=Callable[..., Any])

if TYPE_CHECKING:
    from django.views import View as _View
else:
    _View = object

logger = logging.getLogger("django_slidingwindow")


def rate_limit(
    *profiles: str,
    profile: str | Iterable[str] | Callable[[HttpRequest], Any] | None = None,
    cost: int | Callable[[HttpRequest], Any] = 1,
    methods: str | Iterable[str] | None = None,
    charge_when: Callable[[Any], Any] | None = None,
) -> Callable[[View], View]:
    """Count a view's requests by one or several profiles, and refuse those above a limit.

    `profile`: a name, several, or a function of the request that answers a name, several
    or None. `cost`: hits that a request takes, or a function of the request. `methods`:
    only these are counted; GET covers HEAD. `charge_when`: a function of the response;
    the request is charged before the view runs, and the charge is given back if it
    answers False: `charge_when=lambda response: response.status_code == 401` counts
    failed logins alone. If the view raises, there is no response and the charge stays.

    It counts the requests that reach it. Inside of `login_required` it counts those that
    are logged in; outside, strangers as well. Several directly above each other are charged
    together, in one call, by the outermost: a refusal by one spends nothing on the others.
    Where nothing stands above them, the middleware charges them together with its rules.
    The decision is at `request.rate_limit`. Sync views stay sync, async ones async.
    """
    require_installed()
    place = calling_place()
    origin = f"rate_limit at {place}"
    requirement = _requirement(_profiles(profiles, profile), cost, methods, origin)
    return _decorator(requirement, charge_when, place)


def _requirement(profiles: Any, cost: Any, methods: Any, origin: str) -> Requirement:
    cost = cost if callable(cost) else parse_cost(cost)
    return Requirement(profiles, cost, methods_from(methods), origin)


def _decorator(
    requirement: Requirement, charge_when: Callable[[Any], Any] | None, place: str
) -> Callable[[View], View]:
    def decorate(view: View) -> View:
        _refuse_class(view, "rate_limit(...)")
        # Django's method_decorator tries a decorator on a function of its own, and then
        # decorates the bound method, a partial, at every request.
        if not isinstance(view, partial):
            declare(_name_of(view) or place, requirement)
        limited = _limited_async if _answers_async(view) else _limited
        return cast(View, limited(view, requirement, charge_when))

    return decorate


def _profiles(
    names: tuple[str, ...], keyword: Any
) -> tuple[str, ...] | Callable[[HttpRequest], Any]:
    if callable(keyword) and not names:
        return cast(Callable[[HttpRequest], Any], keyword)
    if isinstance(keyword, str):
        keyword = (keyword,)
    found = (*names, *(keyword or ()))
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
    """Return the dotted name of a view; None for what Django only tries a decorator on."""
    named: Any = getattr(view, "view_class", view)
    if named.__module__ == "django.utils.decorators":
        return None
    return f"{named.__module__}.{getattr(named, '__qualname__', type(named).__qualname__)}"


def _answers_async(view: Callable[..., Any]) -> bool:
    """Whether a view has to be awaited; an async class-based one is, by a sync dispatch."""
    bound = getattr(view.func, "__self__", None) if isinstance(view, partial) else None
    return is_async(view) or getattr(bound, "view_is_async", False)


def _limited(
    view: Callable[..., Any], requirement: Requirement, charge_when: Callable[[Any], Any] | None
) -> Callable[..., Any]:
    @wraps(view)
    def wrapper(request: Any, *args: Any, **kwargs: Any) -> Any:
        plain = request if isinstance(request, HttpRequest) else _plain(request)
        decision = guard.check(plain, requirements)
        if decision is not None and not decision.allowed:
            response: Any = responses.refusal(plain, decision)
        else:
            response = view(request, *args, **kwargs)
            if charge_when is not None and not _charges(charge_when, response):
                guard.refund(plain, requirement)
        # What a view of another framework returns is not always a response yet.
        if isinstance(response, HttpResponseBase):
            headers.show(response, plain)
        return response

    requirements = set_requirements(wrapper, (requirement, *own_requirements(view)))
    return wrapper


def _limited_async(
    view: Callable[..., Any], requirement: Requirement, charge_when: Callable[[Any], Any] | None
) -> Callable[..., Any]:
    @wraps(view)
    async def wrapper(request: Any, *args: Any, **kwargs: Any) -> Any:
        plain = request if isinstance(request, HttpRequest) else _plain(request)
        decision = await guard.acheck(plain, requirements)
        if decision is not None and not decision.allowed:
            response: Any = await responses.arefusal(plain, decision)
        else:
            response = await view(request, *args, **kwargs)
            if charge_when is not None and not _charges(charge_when, response):
                await guard.arefund(plain, requirement)
        # What a view of another framework returns is not always a response yet.
        if isinstance(response, HttpResponseBase):
            headers.show(response, plain)
        return response

    requirements = set_requirements(wrapper, (requirement, *own_requirements(view)))
    return wrapper


def _plain(request: Any) -> HttpRequest:
    """Return Django's request inside that of Django REST framework."""
    found: HttpRequest | None = getattr(request, "_request", None)
    if found is None:
        raise TypeError(
            f"rate_limit got {type(request).__name__} where a request should be: on a method of "
            "a class-based view, use method_decorator(rate_limit(...)) or RateLimitMixin"
        )
    return found


def _charges(charge_when: Callable[[Any], Any], response: Any) -> bool:
    try:
        return bool(charge_when(response))
    except Exception:
        logger.exception("charge_when failed, and the charge stays: %r", charge_when)
        return True


def rate_limit_exempt(view: View) -> View:
    """Keep the middleware's rules away from a view; its own `rate_limit` still counts."""
    _refuse_class(view, "rate_limit_exempt")
    if _answers_async(view):

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
    """Limits a class-based view by attributes, which mean what `rate_limit`'s arguments do.

    `as_view` may set them for one URL: `as_view(rate_limit_profiles=["login"])`. It counts the
    requests that reach its `dispatch`: classes to the left of it and decorators of `dispatch`
    come first. `class Page(LoginRequiredMixin, RateLimitMixin, View)` counts those that are
    logged in.
    """

    rate_limit_profiles: str | Sequence[str] | Callable[[HttpRequest], Any] | None = None
    rate_limit_cost: int | Callable[[HttpRequest], Any] = 1
    rate_limit_methods: str | Iterable[str] | None = None
    rate_limit_charge_when: Callable[[Any], Any] | None = None
    # What `dispatch` is decorated with, if another one runs before it; `as_view` sets it.
    _rate_limit_inside: Callable[..., Any] | None = None

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Callable[..., Any]:
        """Return Django's view, limited."""

        def given(name: str) -> Any:
            return initkwargs.get(name, getattr(cls, name))

        if not given("rate_limit_profiles"):
            return cast("Callable[..., Any]", super().as_view(**initkwargs))
        require_installed()
        place = f"{cls.__module__}.{cls.__qualname__}"
        requirement = _requirement(
            _profiles((), given("rate_limit_profiles")),
            given("rate_limit_cost"),
            given("rate_limit_methods"),
            f"RateLimitMixin of {place}",
        )
        limit: Callable[..., Any] = _decorator(requirement, given("rate_limit_charge_when"), place)
        outermost = cls.dispatch is RateLimitMixin.dispatch
        if not outermost:
            initkwargs["_rate_limit_inside"] = limit
        view: Callable[..., Any] = super().as_view(**initkwargs)
        # Decorated in any case, so that the usages know the view.
        limited = limit(view)
        return limited if outermost else view

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Do what Django's does, limited where `as_view` could not do so for the whole view."""
        plain = super().dispatch
        if self._rate_limit_inside is None:
            return plain(request, *args, **kwargs)
        # As Django's method_decorator does it.
        return self._rate_limit_inside(partial(plain))(request, *args, **kwargs)
