"""Find the tenant of a request, and the limit of the tenant's plan."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from .models import Tenant, digest


def tenant_of(request: HttpRequest) -> Tenant | None:
    """Return the tenant of the API key. It is looked up once for each request."""
    if not hasattr(request, "tenant"):
        key = request.headers.get("X-API-Key")
        found = Tenant.objects.filter(key_digest=digest(key)).first() if key else None
        request.tenant = found
    return request.tenant


def identity(request: HttpRequest) -> str | None:
    """Return the identifier of the axis `tenant`; None if the request is not counted."""
    tenant = tenant_of(request)
    return tenant.slug if tenant else None


def plan(request: HttpRequest) -> str | None:
    """Return the profile of the tenant's plan."""
    tenant = tenant_of(request)
    return f"tenant_{tenant.plan}" if tenant else None


def tenant_required(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return view(request, *args, **kwargs) if tenant_of(request) else unknown_key()

    return wrapper


def paid_plan_required(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Refuse requests without a known key (401), and tenants on the free plan (403)."""

    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        tenant = tenant_of(request)
        if tenant is None:
            return unknown_key()
        if tenant.plan != Tenant.Plan.PAID:
            return JsonResponse({"detail": "Exports are part of the paid plan."}, status=403)
        return view(request, *args, **kwargs)

    return wrapper


def unknown_key() -> JsonResponse:
    return JsonResponse({"detail": "Send a known API key as X-API-Key."}, status=401)
