"""The answer to a refused request, in the form that its client asks for."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.request import MediaType
from django.template import Context, Engine, Template, TemplateDoesNotExist, loader
from django.utils.module_loading import import_string
from django.utils.translation import gettext, ngettext

from .conf import conf
from .decisions import DENY, IDENTITY_ERROR, Decision
from .headers import retry_after, violated

TOO_MANY_REQUESTS, UNAVAILABLE = 429, 503

_PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"
_HTML = (("text", "html"), ("application", "xhtml+xml"))
_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
# A number is shown in the largest unit that makes at least so many of it.
_FEWEST = 2


def refusal(request: HttpRequest, decision: Decision) -> HttpResponse:
    """429, or 503 where the store is away and the profile says deny; never to be cached."""
    seconds = retry_after(decision)
    own = conf.response
    if own is None:
        response = _default(request, decision, seconds)
    else:
        make = import_string(own) if isinstance(own, str) else own
        response = make(request, decision)
    if seconds is not None:
        response.headers.setdefault("Retry-After", str(seconds))
    response.headers.setdefault("Cache-Control", "no-store")
    # Django would log each of them; the rejection log says more, in less time.
    response._has_been_logged = True
    return response


def status_of(decision: Decision) -> int:
    """The status that a refusal is answered with."""
    return UNAVAILABLE if decision.source == DENY else TOO_MANY_REQUESTS


def _default(request: HttpRequest, decision: Decision, seconds: int | None) -> HttpResponse:
    status = status_of(decision)
    form = _preferred_form(request)
    if form == "json":
        return JsonResponse(
            _problem(decision, status, seconds),
            status=status,
            content_type="application/problem+json",
        )
    if form == "html":
        return HttpResponse(_page(request, decision, status, seconds), status=status)
    text = f"{_title(status)}. {_advice(seconds)}\n"
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")


def _preferred_form(request: HttpRequest) -> str:
    """json or html for who asks for them; text for who takes anything, or prefers text."""
    try:
        accepted = request.accepted_types
    except ValueError:
        # Longer than Django reads.
        return "text"
    for media_type in accepted:
        form = _form_of(media_type)
        if form is not None:
            text = (better for better in accepted if better.quality > media_type.quality)
            return "text" if any(better.main_type in ("text", "*") for better in text) else form
    return "text"


def _form_of(media_type: MediaType) -> str | None:
    main, sub = media_type.main_type, media_type.sub_type
    if main == "application" and (sub in ("json", "*") or sub.endswith("+json")):
        return "json"
    return "html" if (main, sub) in _HTML else None


def _problem(decision: Decision, status: int, seconds: int | None) -> dict[str, Any]:
    """The body of RFC 9457."""
    problem: dict[str, Any] = {
        "type": "about:blank",
        "title": _title(status),
        "status": status,
        "detail": _advice(seconds),
    }
    if status == UNAVAILABLE:
        problem["type"] = f"{_PROBLEM_TYPES}temporary-reduced-capacity"
    elif decision.reason != IDENTITY_ERROR:
        problem["type"] = f"{_PROBLEM_TYPES}quota-exceeded"
        problem["violated-policies"] = violated(decision)
    return problem


def _page(request: HttpRequest, decision: Decision, status: int, seconds: int | None) -> str:
    context = {
        "decision": decision,
        "status": status,
        "retry_after": seconds,
        "title": _title(status),
        "advice": _advice(seconds),
    }
    try:
        template = loader.get_template(f"{status}.html")
    except TemplateDoesNotExist:
        return _own_template().render(Context(context))
    return template.render(context, request)


@lru_cache(maxsize=1)
def _own_template() -> Template:
    """By an engine of its own, so it is there whatever TEMPLATES says."""
    folder = Path(__file__).parent / "templates"
    engine = Engine(dirs=[folder], libraries={"i18n": "django.templatetags.i18n"})
    return engine.get_template("django_slidingwindow/429.html")


def _title(status: int) -> str:
    if status == UNAVAILABLE:
        return gettext("Service unavailable")
    return gettext("Too many requests")


def _advice(seconds: int | None) -> str:
    if seconds is None:
        return gettext("This request is not allowed; trying again will not help.")
    return gettext("Please try again in %(duration)s.") % {"duration": _duration(seconds)}


def _duration(seconds: int) -> str:
    """For people: in one unit, rounded up."""
    unit, length = next((pair for pair in _UNITS if seconds >= _FEWEST * pair[1]), _UNITS[-1])
    number = math.ceil(seconds / length)
    text = {
        "day": ngettext("%(number)d day", "%(number)d days", number),
        "hour": ngettext("%(number)d hour", "%(number)d hours", number),
        "minute": ngettext("%(number)d minute", "%(number)d minutes", number),
        "second": ngettext("%(number)d second", "%(number)d seconds", number),
    }[unit]
    return text % {"number": number}
