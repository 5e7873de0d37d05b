"""Rate-limit profiles as throttles of Django REST framework.

    class Orders(APIView):
        throttle_classes = [ProfileThrottle("ip_public", "tenant_paid")]

or, with ProfileThrottle in DEFAULT_THROTTLE_CLASSES or on the view:

    class Orders(APIView):
        throttle_classes = [ProfileThrottle]
        rate_limit_profiles = ["ip_public", "tenant_paid"]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver
from django.utils.translation import gettext_lazy
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from ..core.caching import BoundedCache
from ..decisions import Decision
from ..guard.check import check
from ..guard.requirements import Choice, Requirements, joined, requirements_from
from ..guard.usages import Usage, calling_place, declare
from ..http import headers
from ..http.refusal import UNAVAILABLE, finish, status_of

if TYPE_CHECKING:
    # This would be a circular import: DRF's views import the DEFAULT_THROTTLE_CLASSES.
    from rest_framework.views import APIView

_CHARGED = "_rate_limit_charged"
_VIEW_ORIGIN = "ProfileThrottle, rate_limit_profiles of the view"
# Requirements by the names in a view's `rate_limit_profiles`.
_view_requirements: BoundedCache[tuple[str, ...], Requirements] = BoundedCache(1_024)
_NOTHING = joined(())


def _finalize(
    finalize: Callable[..., HttpResponseBase],
    decision: Decision | None,
    request: Request,
    response: HttpResponseBase,
    *args: Any,
    **kwargs: Any,
) -> HttpResponseBase:
    """Call the view's `finalize_response`, and add the rate-limit fields to the response.

    `view.headers` is not used for the fields: they would replace those that the view has set
    itself, and DRF encodes each of them, which takes longer (`python -m benchmarks views`).
    """
    response = finalize(request, response, *args, **kwargs)
    headers.show(response, request._request)
    return response if decision is None or decision.allowed else finish(response, decision)


def requirements_in(view: APIView) -> Requirements:
    """Return the requirements of all ProfileThrottles of a view."""
    found = [
        throttle.requirements(view)
        for throttle in view.get_throttles()
        if isinstance(throttle, ProfileThrottle)
    ]
    return found[0] if len(found) == 1 else joined(each for some in found for each in some)


def usages_in(patterns: Iterable[URLPattern | URLResolver]) -> list[Usage]:
    """Return the views that name profiles in `rate_limit_profiles`, for the system checks."""
    found: dict[tuple[str, tuple[str, ...]], Usage] = {}
    for callback in _callbacks_in(patterns):
        view: Any = getattr(callback, "cls", None)
        if not hasattr(view, "rate_limit_profiles"):
            continue
        place = f"{view.__module__}.{view.__qualname__}"
        with suppress(Exception):  # the view's own code may need a request
            for each in requirements_in(view(**callback.initkwargs)):
                if each.origin == _VIEW_ORIGIN and isinstance(each.profiles, tuple):
                    found[place, each.profiles] = Usage(place, each.profiles)
    return [*found.values()]


def _callbacks_in(patterns: Iterable[URLPattern | URLResolver]) -> Iterator[Any]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from _callbacks_in(pattern.url_patterns)
        else:
            yield pattern.callback


class StoreAwayError(APIException):
    """503: the store is away, and the fallback of the profile is to deny."""

    status_code = UNAVAILABLE
    default_detail = gettext_lazy("Service unavailable.")
    default_code = "unavailable"

    def __init__(self, wait: int | None) -> None:
        super().__init__()
        # DRF's exception handler writes this attribute to Retry-After.
        self.wait = wait


class ProfileThrottle(BaseThrottle):
    """A throttle that charges profiles.

    The profiles of all ProfileThrottles of a view are charged in one check: all or none.
    """

    def __init__(
        self,
        *profiles: str | Choice,
        cost: int | Callable[[HttpRequest], Any] = 1,
        methods: str | Iterable[str] | None = None,
    ) -> None:
        """`profiles`: names, or functions of the request that choose them.

        Without profiles, the throttle charges `rate_limit_profiles` of the view.
        """
        self._requirements = _NOTHING
        self._decision: Decision | None = None
        # Without profiles, the class itself is in throttle_classes, and DRF calls it for each
        # request. Nothing is declared then.
        if profiles:
            place = calling_place()
            origin = f"ProfileThrottle at {place}"
            self._requirements = joined(requirements_from(profiles, cost, methods, origin))
            declare(place, *self._requirements)

    def __call__(self) -> ProfileThrottle:
        """Return a copy for one request. DRF calls each entry of throttle_classes."""
        # `copy.copy` does the same in ten times the time.
        throttle: ProfileThrottle = object.__new__(type(self))
        throttle.__dict__.update(self.__dict__)
        return throttle

    def allow_request(self, request: Request, view: APIView) -> bool:
        # Not by hasattr: DRF's request looks up missing attributes in Django's request.
        attributes = vars(request)
        if _CHARGED in attributes:
            # The view's first ProfileThrottle has charged for all of them.
            return True
        attributes[_CHARGED] = True
        # On first access, DRF authenticates the request and sets the user of Django's request.
        request.user  # noqa: B018
        plain = request._request
        self._decision = decision = check(plain, requirements_in(view))
        view.finalize_response = partial(_finalize, view.finalize_response, decision)
        if decision is None or decision.allowed:
            return True
        if status_of(decision) == UNAVAILABLE:
            raise StoreAwayError(self.wait())
        return False

    def wait(self) -> int | None:
        """Return the whole seconds until the request would pass; None for never."""
        return None if self._decision is None else headers.client_seconds(self._decision)

    def requirements(self, view: APIView) -> Requirements:
        """Return the requirements of this throttle for a request to the view."""
        if self._requirements:
            return self._requirements
        profiles = getattr(view, "rate_limit_profiles", None) or ()
        if isinstance(profiles, str) or callable(profiles):
            profiles = (profiles,)
        names = tuple(profiles)
        if not all(isinstance(name, str) for name in names):
            return joined(requirements_from(names, origin=_VIEW_ORIGIN))
        found = _view_requirements.get(names)
        if found is None:
            made = joined(requirements_from(names, origin=_VIEW_ORIGIN))
            found = _view_requirements.keep(names, made)
        return found
