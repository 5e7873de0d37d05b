"""The admin of the rejection log and of overrides, with pages for live keys, usage and profiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from .admin_views import formatting, live, pages, profiles, usage
from .admin_views.changelist import RejectionChangeList
from .admin_views.export import export
from .admin_views.filters import FILTERS, PARAMETERS, REASONS, SOURCES
from .admin_views.overrides import OverrideAdmin
from .admin_views.search import WILDCARD, search
from .conf import conf
from .models import Override, Rejection
from .overrides.validation import marked
from .policies import SLOTS
from .rejections.rows import OVERFLOW
from .rejections.text import restored

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Rejection]
else:
    _ModelAdmin = admin.ModelAdmin


admin.site.register(Override, OverrideAdmin)


@admin.register(Rejection)
class RejectionAdmin(_ModelAdmin):
    """A read-only list. Every query uses an index, and none counts rows."""

    # The most important columns come first, because a narrow screen shows only those.
    list_display = (
        "at",
        "who",
        "profile",
        "policy",
        "refused",
        "wait",
        "where",
        "reason",
        "source",
    )
    list_filter = FILTERS
    list_per_page = 100
    sortable_by = ()
    search_fields = ("identifier",)
    search_help_text = _("An identifier, or its beginning and *: 203.0.113.9, acme*")
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    actions = None
    fields = (
        ("who", "axis", "live_keys"),
        ("profile", "policy", "algorithm", "scope"),
        ("where", "reason_text", "source_text"),
        ("at", "first", "last"),
        ("refused", "wait"),
        ("client", "user_agent"),
    )
    readonly_fields = (
        "at",
        "first",
        "last",
        "who",
        "policy",
        "refused",
        "wait",
        "where",
        "reason_text",
        "source_text",
        "live_keys",
    )
    change_list_template = "admin/django_slidingwindow/rejections.html"
    change_form_template = "admin/django_slidingwindow/rejection.html"

    class Media:
        css = {"all": ("django_slidingwindow/admin.css",)}  # noqa: RUF012

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Rejection | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Rejection | None = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow only the filters, because any other lookup would scan the table."""
        return lookup in PARAMETERS

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RejectionChangeList]:
        return RejectionChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Rejection], search_term: str
    ) -> tuple[QuerySet[Rejection], bool]:
        if not search_term.strip():
            return queryset, False
        return search(queryset, search_term), False  # type: ignore[arg-type]

    def get_urls(self) -> list[URLPattern]:
        views: dict[str, Callable[..., Any]] = {
            "export": self.export_view,
            "live": partial(live.live_view, self),
            "key": partial(live.key_view, self),
            "unblock": partial(live.unblock_view, self),
            "profiles": partial(profiles.profiles_view, self),
            "usage": partial(usage.usage_view, self),
        }
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        own = [
            path(f"{page}/", self.admin_site.admin_view(view), name=f"{name}_{page}")
            for page, view in views.items()
        ]
        return own + super().get_urls()

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        query = request.GET.urlencode()
        # Links to other pages keep the profile and the identifier that the list is filtered by.
        profile = request.GET.get("profile", "")
        identifier = request.GET.get("q", "").strip()
        # The page of usage shows one identifier or all, but not those with a prefix.
        one = "" if identifier.endswith(WILDCARD) else identifier
        links = {
            "live_url": pages.url(self, "live", profile=profile, identifier=identifier),
            "usage_url": pages.url(self, "usage", profile=profile, identifier=one),
            "profiles_url": pages.url(self, "profiles"),
            "overrides_url": pages.overrides_url(self, request),
            "export_url": pages.url(self, "export") + (f"?{query}" if query else ""),
        }
        return super().changelist_view(request, {**links, **(extra_context or {})})

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row: Rejection = context["original"]
        if _knows_identifier(row):
            context["override_links"] = pages.override_links(
                self, request, row.profile, marked(row.axis, restored(row.identifier))
            )
        return super().render_change_form(request, context, *args, **kwargs)

    def export_view(self, request: HttpRequest) -> Any:
        """Export all pages of the filtered list as CSV."""
        pages.require_view(self, request)
        try:
            changelist = self.get_changelist_instance(request)
        except IncorrectLookupParameters:
            return HttpResponseRedirect(pages.url(self, "changelist") + "?e=1")
        return export(request, changelist.queryset)

    @admin.display(description=pgettext_lazy("rate limit", "identifier"))
    def who(self, row: Rejection) -> SafeString | str:
        if row.reason == OVERFLOW:
            return str(pgettext_lazy("rate limit", "(others)"))
        if not row.identifier:
            return "-"
        log = pages.url(self, "changelist", q=row.identifier)
        # <bdi> keeps a right-to-left identifier from reordering the text beside it.
        return format_html('<a href="{}"><bdi>{}</bdi></a>', log, row.identifier)

    @admin.display(description=pgettext_lazy("rate limit", "view"))
    def where(self, row: Rejection) -> str:
        return f"{row.method} {row.view}".strip() or "-"

    @admin.display(description=pgettext_lazy("rate limit", "policy"))
    def policy(self, row: Rejection) -> str:
        return formatting.policy(row)

    @admin.display(description=pgettext_lazy("rate limit", "hits"))
    def refused(self, row: Rejection) -> str:
        return formatting.number(row.hits)

    @admin.display(description=_("longest wait"))
    def wait(self, row: Rejection) -> str:
        # Nobody knows when a request ends, so its refusals have no wait.
        if row.algorithm == SLOTS and row.retry_after == 0.0:
            return str(_("when a request ends"))
        return formatting.wait(row.retry_after)

    @admin.display(description=pgettext_lazy("rate limit", "minute"))
    def at(self, row: Rejection) -> str:
        return formatting.minute(row.minute)

    @admin.display(description=_("first refusal"))
    def first(self, row: Rejection) -> str:
        return formatting.second(row.first_at)

    @admin.display(description=_("last refusal"))
    def last(self, row: Rejection) -> str:
        return formatting.second(row.last_at)

    @admin.display(description=pgettext_lazy("rate limit", "reason"))
    def reason_text(self, row: Rejection) -> str:
        return f"{row.reason}: {REASONS.get(row.reason, '')}"

    @admin.display(description=pgettext_lazy("rate limit", "source"))
    def source_text(self, row: Rejection) -> str:
        return f"{row.source}: {SOURCES.get(row.source, '')}" if row.source else "-"

    @admin.display(description=_("live keys"))
    def live_keys(self, row: Rejection) -> SafeString | str:
        if not _knows_identifier(row):
            return "-"
        query = {"profile": row.profile, "identifier": row.identifier}
        href = pages.url(self, "live", **query)
        return format_html('<a href="{}">{}</a>', href, _("Live keys of this identifier"))


def _knows_identifier(row: Rejection) -> bool:
    """Return whether a row has the identifier itself, and not only its hash."""
    return bool(row.identifier) and conf.log_identifiers != "hash"
