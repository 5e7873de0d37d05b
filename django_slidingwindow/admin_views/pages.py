"""Code that the pages of the admin share: permissions, links and the template context."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ..decisions import BLOCK, EXEMPT, LIMIT
from ..models import Override, Rejection
from ..rejections.text import printable

UNBLOCK = "django_slidingwindow.unblock"
ADD_OVERRIDE = "django_slidingwindow.add_override"
VIEW_OVERRIDE = "django_slidingwindow.view_override"


def url(model_admin: ModelAdmin[Rejection], page: str, **query: str) -> str:
    """Return the URL of a page: changelist, export, live, key, unblock, usage or profiles.

    Parameters of the query that are empty are left out.
    """
    name = f"admin:django_slidingwindow_rejection_{page}"
    address = reverse(name, current_app=model_admin.admin_site.name)
    filled = {key: value for key, value in query.items() if value}
    return f"{address}?{urlencode(filled)}" if filled else address


def require_view(model_admin: ModelAdmin[Rejection], request: HttpRequest) -> None:
    """Raise PermissionDenied if the user may not view the log."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied


def may_unblock(request: HttpRequest) -> bool:
    return request.user.has_perm(UNBLOCK)


def overrides_url(model_admin: ModelAdmin[Rejection], request: HttpRequest) -> str:
    """Return the URL of the list of overrides; empty if the user may not see it."""
    site = model_admin.admin_site
    if not site.is_registered(Override) or not request.user.has_perm(VIEW_OVERRIDE):
        return ""
    return reverse("admin:django_slidingwindow_override_changelist", current_app=site.name)


def override_links(
    model_admin: ModelAdmin[Rejection], request: HttpRequest, profile: str, identifier: str = ""
) -> list[dict[str, str]]:
    """Return text and URL of links to filled-in forms for a new override of a profile.

    The list is empty if the user may not add overrides. `identifier` is `marked`, and not in its
    printable form; empty for all identifiers.
    """
    site = model_admin.admin_site
    if not site.is_registered(Override) or not request.user.has_perm(ADD_OVERRIDE):
        return []
    form = reverse("admin:django_slidingwindow_override_add", current_app=site.name)
    target = {"profile": profile, "identifier": printable(identifier)}
    return [
        {"text": text, "url": f"{form}?{urlencode({**target, **fields})}"}
        for text, fields in (
            (_("Change the limit…"), {"action": LIMIT}),
            (_("Exempt for an hour"), {"action": EXEMPT, "hours": "1"}),
            (pgettext("rate limit", "Block"), {"action": BLOCK}),
        )
    ]


def page(
    model_admin: ModelAdmin[Rejection], request: HttpRequest, name: str, **context: Any
) -> TemplateResponse:
    """Return a page with the context that the templates of the admin need."""
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(
        request,
        f"admin/django_slidingwindow/{name}.html",
        {
            **model_admin.admin_site.each_context(request),
            "opts": model_admin.opts,
            "media": model_admin.media,
            "may_unblock": may_unblock(request),
            "overrides_url": overrides_url(model_admin, request),
            **context,
        },
    )
