"""The same API in django-ninja."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import NinjaAPI
from ninja.security import APIKeyHeader

from django_slidingwindow.contrib.ninja import ProfileThrottle, throttled

from .models import Tenant
from .tenants import plan, tenant_of


class ApiKey(APIKeyHeader):
    param_name = "X-API-Key"

    def authenticate(self, request: HttpRequest, key: str | None) -> Tenant | None:
        return tenant_of(request)


api = NinjaAPI(title="Example API", auth=ApiKey(), throttle=[ProfileThrottle(plan)])
# Adds headers to every response, and charges async operations without blocking.
api.add_decorator(throttled, mode="view")


@api.get("/parcels")
def parcels(request: HttpRequest) -> dict[str, list[str]]:
    return {"parcels": ["in transit", "delivered"]}
