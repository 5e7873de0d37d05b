"""The admin of overrides: list, add, edit and end now."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import MAXYEAR, timedelta
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext, pgettext_lazy

from ..decisions import BLOCK, EXEMPT, LIMIT, OBSERVED
from ..inspection.profiles import profiles
from ..models import Override
from ..rejections.text import printable
from . import formatting

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Override]
    _ModelForm = forms.ModelForm[Override]
else:
    _ModelAdmin = admin.ModelAdmin
    _ModelForm = forms.ModelForm

ACTIONS = {
    LIMIT: _("limit: other limits"),
    EXEMPT: _("exempt: no limit"),
    OBSERVED: _("observe: count, but refuse nothing"),
    BLOCK: _("block: refuse everything"),
}
END = "_end"
"""The name of the button that ends an override."""
HOURS = "hours"
"""The query parameter of the form that sets the end of the override, in hours from now."""
_MAX_HOURS = 24 * 365


class OverrideForm(_ModelForm):
    profile = forms.ChoiceField(label=pgettext_lazy("rate limit", "Profile"))
    action = forms.ChoiceField(
        label=pgettext_lazy("rate limit", "Action"), choices=[("", "---------"), *ACTIONS.items()]
    )

    class Meta:
        model = Override
        fields = ("profile", "identifier", "action", "limit", "until", "note")
        help_texts = {  # noqa: RUF012
            "identifier": _(
                "As the log and the live keys show it, but with hash: before a hash; empty for all "
                "identifiers."
            ),
            "limit": _(
                "For the action limit: a number, such as 500. If the profile has several windows, "
                "a rate for each window to change, such as 40/s, 20000/d."
            ),
            "until": _("When it ends; empty for never."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = [state.name for state in profiles() if state.profile is not None]
        if self.instance.profile and self.instance.profile not in names:
            names.append(self.instance.profile)
        profile: Any = self.fields["profile"]
        profile.choices = [("", "---------"), *((name, printable(name)) for name in names)]

    def clean_until(self) -> Any:
        until = self.cleaned_data["until"]
        if until is not None and "until" in self.changed_data:
            if until <= timezone.now():
                raise forms.ValidationError(_("This time has passed."))
            if until.year == MAXYEAR:
                # In some time zones its last day is in the year 10000, which Python cannot show.
                raise forms.ValidationError(forms.DateTimeField.default_error_messages["invalid"])
        return until


class StateFilter(admin.SimpleListFilter):
    title = pgettext_lazy("rate limit", "state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, Any]]:
        return [("in-force", _("in force")), ("ended", pgettext_lazy("rate limit", "ended"))]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.value() == "in-force":
            return queryset.in_force()
        if self.value() == "ended":
            return queryset.filter(until__lte=timezone.now())
        return queryset


class OverrideProfileFilter(admin.SimpleListFilter):
    title = pgettext_lazy("rate limit", "profile")
    parameter_name = "profile"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(state.name, printable(state.name)) for state in profiles()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        # No row has a NUL, and PostgreSQL raises an error for it.
        return queryset.none() if "\0" in value else queryset.filter(profile=value)


class OverrideAdmin(_ModelAdmin):
    """The list and the form of overrides. Django's usual permissions of a model apply."""

    form = OverrideForm
    list_display = ("who", "profile", "what", "state", "end", "note", "created_by", "made")
    list_filter = (StateFilter, OverrideProfileFilter, "action")
    search_fields = ("identifier", "note")
    list_per_page = 100
    show_facets = admin.ShowFacets.NEVER
    actions = ("end_now",)
    readonly_fields = ("created_by", "made")
    fields = (("profile", "identifier"), ("action", "limit"), "until", "note", "created_by", "made")
    change_form_template = "admin/django_slidingwindow/override.html"
    change_list_template = "admin/django_slidingwindow/overrides.html"
    # The theme Unfold shows the link to the form of a new override only with this attribute.
    show_add_link = True

    class Media:
        css = {"all": ("django_slidingwindow/admin.css",)}  # noqa: RUF012

    def get_fields(self, request: HttpRequest, obj: Override | None = None) -> Any:
        """Leave the read-only fields out of the form of a new override."""
        if obj is not None:
            return self.fields
        return [field for field in self.fields if field not in self.readonly_fields]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        initial: dict[str, Any] = dict(super().get_changeform_initial_data(request))
        hours = str(initial.pop(HOURS, ""))
        # Check the length before the conversion: Python does not convert very long numbers.
        if len(hours) < 9 and hours.isdecimal() and 0 < int(hours) <= _MAX_HOURS:
            initial["until"] = timezone.now() + timedelta(hours=int(hours))
        return initial

    def save_model(self, request: HttpRequest, obj: Override, form: Any, change: bool) -> None:
        if not change:
            obj.created_by = request.user.get_username()[:150]
        super().save_model(request, obj, form, change)

    def change_view(
        self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        if END in request.POST:
            # Without the form: it is not valid if the profile was removed or has other windows now.
            override = self.get_object(request, unquote(object_id))
            if override is not None and self.has_change_permission(request, override):
                self.end_now(request, [override])
                return self.response_post_save_change(request, override)
        return super().change_view(request, object_id, *args, **kwargs)

    @admin.action(description=_("End now"), permissions=["change"])
    def end_now(self, request: HttpRequest, queryset: Iterable[Override]) -> None:
        chosen = list(queryset)
        ended = [override for override in chosen if override.in_force]
        if not ended:
            text = ngettext(
                "This override has already ended.",
                "These overrides have already ended.",
                len(chosen),
            )
            messages.warning(request, text)
            return
        for override in ended:
            override.end()
            self.log_change(request, override, "Ended.")
        text = ngettext(
            "%(count)d override was ended.", "%(count)d overrides were ended.", len(ended)
        )
        messages.success(request, text % {"count": len(ended)})

    @admin.display(description=pgettext_lazy("rate limit", "identifier"))
    def who(self, row: Override) -> SafeString | str:
        if not row.identifier:
            return str(pgettext_lazy("rate limit", "(all)"))
        # Validated identifiers are printable already. Code may have saved others.
        shown = row.identifier if row.identifier.isprintable() else printable(row.identifier)
        # <bdi> keeps a right-to-left identifier from reordering the text beside it.
        return format_html("<bdi>{}</bdi>", shown)

    @admin.display(description=pgettext_lazy("rate limit", "override"))
    def what(self, row: Override) -> str:
        return f"{row.action} {row.limit}".strip()

    @admin.display(description=pgettext_lazy("rate limit", "state"))
    def state(self, row: Override) -> str:
        return str(_("in force") if row.in_force else pgettext_lazy("rate limit", "ended"))

    @admin.display(description=pgettext_lazy("rate limit", "until"))
    def end(self, row: Override) -> str:
        return "-" if row.until is None else formatting.minute(row.until)

    @admin.display(description=pgettext_lazy("rate limit", "created"))
    def made(self, row: Override) -> str:
        return formatting.minute(row.created_at)
