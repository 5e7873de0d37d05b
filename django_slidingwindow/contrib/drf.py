"""Profiles as a throttle of Django REST framework.

    class Orders(APIView):
        throttle_classes = [ProfileThrottle("ip_public", "tenant_paid")]

or, with ProfileThrottle in DEFAULT_THROTTLE_CLASSES or on the view:

    class Orders(APIView):
        throttle_classes = [ProfileThrottle]
        rate_limit_profiles = ["ip_public", "tenant_paid"]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.translation import gettext_lazy
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from ..core.caching import BoundedCache
from ..decisions import Decision
from ..guard.check import check
from ..guard.requirements import Choice, Requirements, joined, requirements_from
from ..guard.usages import calling_place, declare
from ..http import headers
from ..http.refusal import UNAVAILABLE, finish, status_of

if TYPE_CHECKING:
    # DRF's views import what DEFAULT_THROTTLE_CLASSES names, and so this module.
    from rest_framework.views import APIView

_CHARGED = "_rate_limit_charged"
_OF_THE_VIEW = "ProfileThrottle, rate_limit_profiles of the view"
# What views require by the names in `rate_limit_profiles`.
_of_views: BoundedCache[tuple[str, ...], Requirements] = BoundedCache(1_024)
_NOTHING = joined(())


def _finalize(
    finalize: Callable[..., HttpResponseBase],
    decision: Decision | None,
    request: Request,
    response: HttpResponseBase,
    *args: Any,
    **kwargs: Any,
) -> HttpResponseBase:
    """Return what the view's `finalize_response` does, with the rate-limit fields.

    Fields in `view.headers` would take the place of those that the view has set itself, and DRF
    would encode each of them, which takes longer (`python -m benchmarks views`).
    """
    response = finalize(request, response, *args, **kwargs)
    headers.show(response, request._request)
    return response if decision is None or decision.allowed else finish(response, decision)


def requirements_in(view: APIView) -> Requirements:
    """Return what all ProfileThrottles of a view require."""
    found = [
        throttle.requirements(view)
        for throttle in view.get_throttles()
        if isinstance(throttle, ProfileThrottle)
    ]
    return found[0] if len(found) == 1 else joined(each for some in found for each in some)


class StoreAwayError(APIException):
    """503: the store is away, and the profile says deny."""

    status_code = UNAVAILABLE
    default_detail = gettext_lazy("Service unavailable.")
    default_code = "unavailable"

    def __init__(self, wait: int | None) -> None:
        super().__init__()
        # Where DRF's exception handler finds the value of Retry-After.
        self.wait = wait


class ProfileThrottle(BaseThrottle):
    """Charges the profiles of all the view's ProfileThrottles at once, or none of them."""

    def __init__(
        self,
        *profiles: str | Choice,
        cost: int | Callable[[HttpRequest], Any] = 1,
        methods: str | Iterable[str] | None = None,
    ) -> None:
        """Names, or functions of the request that choose them; none: those of the view."""
        self._requirements = _NOTHING
        self._decision: Decision | None = None
        # Where the class itself stands in throttle_classes, DRF makes one for each request.
        if profiles:
            place = calling_place()
            origin = f"ProfileThrottle at {place}"
            self._requirements = joined(requirements_from(profiles, cost, methods, origin))
            declare(place, *self._requirements)

    def __call__(self) -> ProfileThrottle:
        """Return a throttle for one request: DRF calls what stands in throttle_classes."""
        # What `copy.copy` does, in a tenth of the time.
        throttle: ProfileThrottle = object.__new__(type(self))
        throttle.__dict__.update(self.__dict__)
        return throttle

    def allow_request(self, request: Request, view: APIView) -> bool:
        # By its own attributes: what DRF's request has not, it looks for in Django's.
        own = vars(request)
        if _CHARGED in own:
            # The first of the view's throttles has charged for all.
            return True
        own[_CHARGED] = True
        # DRF authenticates on first access, and hands the user to Django's request.
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
        """Return what this throttle requires of a request to the view."""
        if self._requirements:
            return self._requirements
        of_the_view = getattr(view, "rate_limit_profiles", None) or ()
        if isinstance(of_the_view, str) or callable(of_the_view):
            of_the_view = (of_the_view,)
        names = tuple(of_the_view)
        if not all(isinstance(name, str) for name in names):
            return joined(requirements_from(names, origin=_OF_THE_VIEW))
        found = _of_views.get(names)
        if found is None:
            found = _of_views.keep(names, joined(requirements_from(names, origin=_OF_THE_VIEW)))
        return found
