"""Views for django-debug-toolbar, one for each way in which a request can meet a limit."""

from __future__ import annotations

import threading
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpResponse
from django.urls import include, path
from ninja import NinjaAPI
from rest_framework.response import Response
from rest_framework.views import APIView

from django_slidingwindow import limits
from django_slidingwindow.contrib import drf, ninja
from django_slidingwindow.decorators import rate_limit, rate_limit_exempt
from django_slidingwindow.signals import limit_checked

PAGE = """<!doctype html><html lang="en"><head><title>Shop</title></head>
<body><h1>Shop</h1></body></html>"""
LISTENERS: list[int] = []


def plain(request: Any) -> HttpResponse:
    LISTENERS.append(len(limit_checked.receivers))
    return HttpResponse(PAGE)


async def aplain(request: Any) -> HttpResponse:
    await limits.acheck("partner", "acme")
    return HttpResponse(PAGE)


def calling(request: Any) -> HttpResponse:
    limits.check("partner", "acme")
    # A check in another thread looks to the panel like one of another request.
    other = threading.Thread(target=limits.check, args=("partner", "globex"))
    other.start()
    other.join()
    return HttpResponse(PAGE)


def logging_in(request: Any) -> HttpResponse:
    request.user = User(pk=1, is_staff=True)
    response: HttpResponse = rate_limit("key")(plain)(request)
    return response


class Orders(APIView):
    authentication_classes = ()
    throttle_classes = (drf.ProfileThrottle("narrow"),)

    def get(self, request: Any) -> Response:
        return Response([])


class Prices(APIView):
    authentication_classes = ()
    throttle_classes = (drf.ProfileThrottle,)
    rate_limit_profiles = "narrow"

    def get(self, request: Any) -> Response:
        return Response([])


api = NinjaAPI(urls_namespace="toolbar", throttle=[ninja.ProfileThrottle("narrow")])


@api.get("/orders")
def orders(request: Any) -> list[str]:
    return []


urlpatterns = [
    path("plain/", plain),
    path("decorated/", rate_limit("narrow", "watched")(plain)),
    path("async/", rate_limit("narrow")(aplain)),
    path("calling/", calling),
    path("chosen/", rate_limit(profile=lambda request: "narrow")(plain)),
    path("posted/", rate_limit("narrow", methods="POST")(plain)),
    path("anonymous/", rate_limit("members")(plain)),
    path("broken/", rate_limit("broken")(plain)),
    path("key/", rate_limit("key")(plain)),
    path("free/", rate_limit("free")(plain)),
    path("refunded/", rate_limit("narrow", charge_when=lambda response: False)(calling)),
    path("logging-in/", rate_limit("narrow")(logging_in)),
    path("exempt/", rate_limit_exempt(plain)),
    path("drf/", Orders.as_view()),
    path("drf/view/", Prices.as_view()),
    path("ninja/", api.urls),
    path("__debug__/", include("debug_toolbar.urls")),
]
