"""What if: the form on the page of profiles that tries another limit on the logs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib.admin import ModelAdmin
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import pgettext, pgettext_lazy

from ..exceptions import PolicyError, text_of, translated
from ..inspection.search import configured
from ..inspection.spans import last
from ..inspection.what_if import Affected, Bounds, WhatIf, what_if
from ..models import Rejection
from ..policies import LOG_ALL, Policy, Profile
from .formatting import minute, number, rate
from .pages import url
from .times import RECENT, SPANS

MAX_RATES = 4
_DEFAULT_SPAN = "7d"


class WhatIfForm(forms.Form):
    """A profile, the limit to try, and the span of time."""

    profile = forms.ChoiceField(label=pgettext_lazy("rate limit", "Profile"))
    limit = forms.CharField(label=pgettext_lazy("rate limit", "Limit"), max_length=100)
    when = forms.ChoiceField(
        label=pgettext_lazy("rate limit", "Time"),
        choices=SPANS.items(),
        required=False,
        initial=_DEFAULT_SPAN,
    )

    def __init__(self, profiles: Iterable[Profile], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.by_name = {profile.name: profile for profile in profiles}
        self.fields["profile"].choices = [(name, name) for name in self.by_name]  # type: ignore[attr-defined]
        self.fields["limit"].widget.attrs["placeholder"] = "30/m, 500/h"

    def clean(self) -> dict[str, Any]:
        """Parse the rates into `policies`, with the algorithm of the profile."""
        found: dict[str, Any] = self.cleaned_data
        if "profile" in found and "limit" in found:
            profile = self.by_name[found["profile"]]
            algorithm, resolution = _counting(profile)
            rates = [text.strip() for text in found["limit"].split(",")]
            if len(rates) > MAX_RATES:
                text = _("At most %(count)d rates can be tried at once.")
                self.add_error("limit", text % {"count": MAX_RATES})
                return found
            try:
                found["policies"] = [
                    Policy.parse(text, algorithm=algorithm, resolution=resolution) for text in rates
                ]
            except PolicyError as error:
                self.add_error("limit", ValidationError(translated(text_of(error))))
        return found


def _counting(profile: Profile) -> tuple[str, int]:
    """Return algorithm and resolution of a profile's windows."""
    source = profile.policies[0] if profile.policies else profile
    return source.algorithm, source.resolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The effect that another limit would have had, as it is shown on the page."""

    profile: Profile
    policies: list[Policy]
    found: WhatIf
    usage_url: str

    @property
    def limit(self) -> str:
        return ", ".join(rate(policy.limit, policy.window) for policy in self.policies)

    @property
    def refused(self) -> str:
        return between(self.found.bounds)

    @property
    def touched(self) -> str:
        return between(self.found.touched_bounds)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Return name and value of what the logs recorded in the same span."""
        found = self.found
        facts = [
            (_("Refused in fact"), number(found.refused)),
            (_("Identifiers refused in fact"), number(found.touched)),
        ]
        if found.observed:
            label = capfirst(_("over the limit, but only observed"))
            facts.append((label, number(found.observed)))
        if found.requests is None or found.identifiers is None:
            return facts
        return [
            (pgettext("rate limit", "Requests"), number(found.requests)),
            (pgettext("rate limit", "Identifiers"), number(found.identifiers)),
            *facts,
        ]

    @property
    def since(self) -> str:
        return minute(self.found.span.start)

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return identifier, requests, actual refusals and bounds of each affected identifier."""
        return [_row(one) for one in self.found.affected]

    @property
    def remarks(self) -> list[str]:
        """Return the reasons why the numbers are not exact."""
        found, profile = self.found, self.profile
        remarks = []
        if profile.log != LOG_ALL:
            remarks.append(
                _(
                    "This profile logs refused requests only. A higher limit in the same window "
                    "refuses at most what was refused, a lower one at least that. With %(key)s in "
                    "its settings, the logs say more."
                )
                % {"key": '"log": "all"'}
            )
        else:
            remarks.append(
                _(
                    "The logs count by the minute. The bounds hold wherever in its minute each "
                    "request came; for windows shorter than a minute they are wide."
                )
            )
        remarks.append(
            _(
                "The windows are empty at the start. Clients that are refused may try again, slow "
                "down or give up; the numbers assume that they do not care."
            )
        )
        if found.others:
            text = _(
                "%(count)s requests are beyond LOG_ROWS_PER_MINUTE and left out: their identifiers "
                "are not known."
            )
            remarks.append(text % {"count": number(found.others)})
        if found.for_other_reasons:
            text = _(
                "%(count)s requests were refused for other reasons than the limit, such as a "
                "penalty, an override or requests in flight, and are left out."
            )
            remarks.append(text % {"count": number(found.for_other_reasons)})
        others = _sharing(profile)
        if others:
            text = _("Requests counted by %(profiles)s share these windows and are left out.")
            remarks.append(text % {"profiles": ", ".join(others)})
        return remarks


def _row(one: Affected) -> tuple[str, str, str, str]:
    requests = "-" if one.requests is None else number(one.requests)
    return one.identifier, requests, number(one.refused), between(one.bounds)


def between(bounds: Bounds) -> str:
    """Return bounds as text: "5", "3 to 5" or "at least 3"."""
    if bounds.most is None:
        return _("at least %(least)s") % {"least": number(bounds.least)}
    if bounds.least == bounds.most:
        return number(bounds.least)
    values = {"least": number(bounds.least), "most": number(bounds.most)}
    return _("%(least)s to %(most)s") % values


def _sharing(profile: Profile) -> list[str]:
    """Return the names of other profiles that count in the same windows."""
    return [
        other.name
        for other in configured()
        if (other.axis, other.scope) == (profile.axis, profile.scope) and other != profile
    ]


def context(model_admin: ModelAdmin[Rejection], request: HttpRequest) -> dict[str, Any]:
    """Return the form, and the answer if a valid form was sent."""
    profiles = sorted(configured(), key=lambda profile: (profile.log != LOG_ALL, profile.name))
    initial = {"profile": request.GET.get("profile"), "when": _DEFAULT_SPAN}
    sent = "limit" in request.GET
    form = WhatIfForm(profiles, request.GET if sent else None, initial=initial)
    answer = None
    if sent and form.is_valid():
        profile = form.by_name[form.cleaned_data["profile"]]
        policies = form.cleaned_data["policies"]
        span = last(RECENT[form.cleaned_data["when"] or _DEFAULT_SPAN])
        answer = Answer(
            profile=profile,
            policies=policies,
            found=what_if(profile, policies, span),
            usage_url=url(model_admin, "usage", profile=profile.name),
        )
    return {"what_if": form, "answer": answer}
