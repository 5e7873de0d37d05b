"""Typical views of a project, each with a limit."""

from __future__ import annotations

import asyncio

from asgiref.sync import sync_to_async
from django.contrib.auth import authenticate
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_slidingwindow.contrib.drf import ProfileThrottle
from django_slidingwindow.decorators import RateLimitMixin, rate_limit
from django_slidingwindow.views import limits_view

from .jobs import start_report
from .models import Report, Tenant
from .tenants import paid_plan_required, plan, tenant_of, tenant_required, unknown_key


@rate_limit("ip_public")
def status(request: HttpRequest) -> HttpResponse:
    """A public page: 120 a minute for each address."""
    return HttpResponse("All systems work.\n", content_type="text/plain")


# Shows what is left of the caller's own limits, for an account page. It charges nothing.
limits = limits_view(["ip_public", plan])


@rate_limit(profile=plan)
@tenant_required
def orders(request: HttpRequest) -> JsonResponse:
    """The plan of the tenant decides which profile is used: tenant_free or tenant_paid."""
    return JsonResponse({"orders": [{"number": 1, "total": "99.00"}]})


@paid_plan_required
@rate_limit(profile="tenant_paid")
def exports(request: HttpRequest) -> HttpResponse:
    """Only for the paid plan, so the profile is always the same: 10,000 a day."""
    return HttpResponse("number,total\n1,99.00\n", content_type="text/csv")


@rate_limit(profile=plan)
async def rates(request: HttpRequest) -> JsonResponse:
    """An async view: the check does not block the event loop."""
    if await sync_to_async(tenant_of)(request) is None:
        return unknown_key()
    await asyncio.sleep(0.01)
    return JsonResponse({"EUR": 1, "CHF": 0.94})


@method_decorator([csrf_exempt, tenant_required], name="dispatch")  # an API key is not a cookie
class Invoices(RateLimitMixin, View):
    """A class-based view; writing costs five times as much as reading."""

    rate_limit_profiles = staticmethod(plan)

    @staticmethod
    def rate_limit_cost(request: HttpRequest) -> int:
        return 5 if request.method == "POST" else 1

    def get(self, request: HttpRequest) -> JsonResponse:
        return JsonResponse({"invoices": []})

    def post(self, request: HttpRequest) -> JsonResponse:
        return JsonResponse({"invoice": 1}, status=201)


class ApiKeyAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[Tenant, None] | None:
        tenant = tenant_of(request._request)
        return (tenant, None) if tenant else None

    def authenticate_header(self, request: Request) -> str:
        return "X-API-Key"


class Customers(APIView):
    """A view of Django REST framework."""

    authentication_classes = (ApiKeyAuthentication,)
    permission_classes = (IsAuthenticated,)
    throttle_classes = (ProfileThrottle(plan),)

    def get(self, request: Request) -> Response:
        return Response({"customers": ["Ada", "Grace"]})


def _failed(response: HttpResponseBase) -> bool:
    return response.status_code == 401


@csrf_exempt  # the view sets no cookie, so there is nothing to forge
@require_POST
@rate_limit("login", charge_when=_failed)
def login(request: HttpRequest) -> JsonResponse:
    """Only failures count, five a minute: a charge is given back when the login succeeds."""
    name, password = request.POST.get("username"), request.POST.get("password")
    user = authenticate(request, username=name, password=password)
    if user is None:
        return JsonResponse({"detail": "Wrong name or password."}, status=401)
    return JsonResponse({"hello": user.get_username()})


@csrf_exempt  # an API key is not a cookie
@require_POST
@tenant_required
@rate_limit("endpoint_expensive", "report_slots")
@rate_limit(profile=plan)
def reports(request: HttpRequest) -> JsonResponse:
    """Three limits, charged together: of the endpoint, two at once for a tenant, and of the plan.

    Requests without a known key are refused before these limits, so only tenants use up the window
    of the endpoint. The rule of the middleware counts the others by address.
    """
    report = Report.objects.create(tenant=tenant_of(request))
    start_report(report)
    return JsonResponse({"report": report.pk, "state": report.state}, status=202)


@tenant_required
@rate_limit("endpoint_lightweight")
def report(request: HttpRequest, number: int) -> JsonResponse:
    found = get_object_or_404(Report, pk=number, tenant=tenant_of(request))
    return JsonResponse({"report": found.pk, "state": found.state})


def metrics(request: HttpRequest) -> HttpResponse:
    """Metrics for Prometheus. No rule covers this path, so it is never limited."""
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)
