"""Shared code of the admin's own pages: permissions, addresses and the template frame."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse

from ..models import Rejection

UNBLOCK = "django_slidingwindow.unblock"


def url(model_admin: ModelAdmin[Rejection], page: str, **query: str) -> str:
    """Return the URL of a page: changelist, export, live, key, unblock or profiles."""
    name = f"admin:django_slidingwindow_rejection_{page}"
    address = reverse(name, current_app=model_admin.admin_site.name)
    given = {key: value for key, value in query.items() if value}
    return f"{address}?{urlencode(given)}" if given else address


def require_view(model_admin: ModelAdmin[Rejection], request: HttpRequest) -> None:
    """Raise PermissionDenied if the user may not view the log."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied


def may_unblock(request: HttpRequest) -> bool:
    return request.user.has_perm(UNBLOCK)


def page(
    model_admin: ModelAdmin[Rejection], request: HttpRequest, name: str, **context: Any
) -> TemplateResponse:
    """Return a page in the frame of the admin."""
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(
        request,
        f"admin/django_slidingwindow/{name}.html",
        {
            **model_admin.admin_site.each_context(request),
            "opts": model_admin.opts,
            "media": model_admin.media,
            "may_unblock": may_unblock(request),
            **context,
        },
    )
