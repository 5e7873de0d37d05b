"""A URLconf with a view whose profile does not exist."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from django_slidingwindow.decorators import rate_limit


@rate_limit("nobody")
def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


urlpatterns = [path("inside/", include([path("", page)]))]
