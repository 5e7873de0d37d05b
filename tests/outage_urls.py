"""A page limited by the decorator, and one that a rule of the middleware limits."""

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
    path("ruled/sync/", page),
    path("ruled/async/", apage),
]
