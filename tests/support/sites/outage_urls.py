"""Pages for tests of outages: limited by the decorator, by a rule of the middleware, or not."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_slidingwindow.decorators import rate_limit


def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


async def apage(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


urlpatterns = [
    path("decorated/sync/", rate_limit("many")(page)),
    path("decorated/async/", rate_limit("many")(apage)),
    path("leased/sync/", rate_limit("leased")(page)),
    path("leased/async/", rate_limit("leased")(apage)),
    path("later/sync/", rate_limit("later")(page)),
    path("later/async/", rate_limit("later")(apage)),
    path("bare/sync/", page),
    path("bare/async/", apage),
    path("ruled/sync/", page),
    path("ruled/async/", apage),
]
