"""Views of DRF with all kinds of limits, for drf-spectacular.

Import it only while DRF's schema class is that of drf-spectacular: `extend_schema` looks at it.
"""

# ruff: noqa: RUF012 -- lists on the class are DRF's own way

from __future__ import annotations

from typing import Any

from django.urls import path
from django.utils.decorators import method_decorator
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.decorators import action, api_view, renderer_classes, throttle_classes
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.throttling import AnonRateThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_slidingwindow.contrib import drf
from django_slidingwindow.decorators import rate_limit


class View(APIView):
    authentication_classes = []
    renderer_classes = [JSONRenderer]
    # Like DEFAULT_THROTTLE_CLASSES, which DRF reads only once, at its own import.
    throttle_classes = [drf.ProfileThrottle]

    @extend_schema(responses={200: str, 403: str})
    def get(self, request: Any) -> Response:
        return Response("ok")

    @extend_schema(request=None, responses={204: None})
    def post(self, request: Any) -> Response:
        return Response(status=204)


class Own(View):
    throttle_classes = [drf.ProfileThrottle("narrow")]


class OfTheView(View):
    rate_limit_profiles = ["wide"]


class Posts(View):
    throttle_classes = [drf.ProfileThrottle("narrow", methods="POST")]


class Unthrottled(View):
    throttle_classes = []
    rate_limit_profiles = ["narrow"]


class Foreign(View):
    throttle_classes = [AnonRateThrottle]


class Watched(View):
    throttle_classes = [drf.ProfileThrottle("watched")]


class Planned(View):
    throttle_classes = [drf.ProfileThrottle("planned", lambda request: "wide")]


class Misspelt(View):
    throttle_classes = [drf.ProfileThrottle("narow")]


class OwnHandler(Own):
    def get_exception_handler(self) -> Any:
        return lambda error, context: Response({"error": str(error)}, status=429)


class Described(Own):
    @extend_schema(responses={200: str, 429: OpenApiResponse(str, description="Slow down.")})
    def get(self, request: Any) -> Response:
        return Response("ok")


class Hidden(Own):
    @extend_schema(exclude=True)
    def get(self, request: Any) -> Response:
        return Response("ok")


class FailingThrottles(View):
    def get_throttles(self) -> Any:
        raise RuntimeError("no request")


@method_decorator(rate_limit("narrow"), name="dispatch")
class Dispatch(View):
    throttle_classes = []


class Handler(View):
    @method_decorator(rate_limit("narrow"))
    @extend_schema(responses={200: str})
    def get(self, request: Any) -> Response:
        return Response("ok")


class Orders(ViewSet):
    renderer_classes = [JSONRenderer]
    throttle_classes = [drf.ProfileThrottle("narrow")]

    @extend_schema(responses={200: str})
    def list(self, request: Any) -> Response:
        return Response([])

    @extend_schema(responses={200: str})
    @action(detail=False, throttle_classes=[drf.ProfileThrottle("wide")])
    def newest(self, request: Any) -> Response:
        return Response([])


@rate_limit("narrow")
@extend_schema(responses={200: str})
@api_view(["GET"])
@renderer_classes([JSONRenderer])
@throttle_classes([drf.ProfileThrottle("wide")])
def function(request: Any) -> Response:
    return Response("ok")


@extend_schema(responses={200: str})
@api_view(["GET"])
@renderer_classes([JSONRenderer])
@throttle_classes([])
@rate_limit("narrow")
def inside(request: Any) -> Response:
    return Response("ok")


router = SimpleRouter()
router.register("orders", Orders, basename="orders")
VIEWS = [
    *(Own, OfTheView, Posts, Unthrottled, Foreign, Watched, Planned, Misspelt, OwnHandler),
    *(Described, Hidden, FailingThrottles, Dispatch, Handler, View),
]
urlpatterns = [
    *(path(f"{view.__name__}/", view.as_view()) for view in VIEWS),
    path("url/", rate_limit("narrow")(Unthrottled.as_view())),
    path("function/", function),
    path("inside/", inside),
    *router.urls,
]
