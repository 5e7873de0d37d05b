"""Views for drills: some work during an outage, some do not."""

from __future__ import annotations

import time

from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_slidingwindow import decisions, limits
from django_slidingwindow.decorators import rate_limit


def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse("seen")


async def apage(request: HttpRequest) -> HttpResponse:
    return HttpResponse("seen")


def slow(request: HttpRequest) -> HttpResponse:
    """Take longer than the latency budget of the tests, without an outage."""
    time.sleep(0.7)
    return HttpResponse("seen")


def late(request: HttpRequest) -> HttpResponse:
    """Check a limit after some other work."""
    time.sleep(0.4)
    limits.check("many", "late")
    return HttpResponse("seen")


def fragile(request: HttpRequest) -> HttpResponse:
    """Fail during an outage."""
    if request.rate_limit.source != decisions.REDIS:  # type: ignore[attr-defined]
        raise RuntimeError("this view needs Redis")
    return HttpResponse("seen")


def careless(request: HttpRequest) -> HttpResponse:
    """Check no limit during an outage."""
    if limits.get_limiter().breaker.state == "closed":
        limits.check("many", "careless")
    return HttpResponse("seen")


def wrong(request: HttpRequest) -> HttpResponse:
    """Fail always."""
    raise RuntimeError("this view is wrong")


urlpatterns = [
    path("page/", rate_limit("many")(page)),
    path("page/async/", rate_limit("many")(apage)),
    path("few/", rate_limit("few")(page)),
    path("allowed/", rate_limit("allowed")(page)),
    path("denied/", rate_limit("denied")(page)),
    path("busy/", rate_limit("busy")(page)),
    path("failures/", rate_limit("few", charge_when=lambda response: False)(page)),
    path("leased/", rate_limit("leased")(page)),
    path("slow/", rate_limit("many")(slow)),
    path("late/", late),
    path("fragile/", rate_limit("many")(fragile)),
    path("wrong/", rate_limit("many")(wrong)),
    path("careless/", careless),
    path("free/", page),
]
