"""The answer to a refused request, in the form that its client asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.request import MediaType
from django.http.response import HttpResponseBase
from django.template import Context, Engine, Template, TemplateDoesNotExist, loader
from django.utils.module_loading import import_string
from django.utils.translation import get_language, gettext, ngettext

from .callables import Ask, aanswer, answer, ask
from .conf import conf
from .decisions import DENY, IDENTITY_ERROR, Decision
from .headers import retry_after, violated

TOO_MANY_REQUESTS, UNAVAILABLE = 429, 503

Response = TypeVar("Response", bound=HttpResponseBase)

_PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"
_HTML = (("text", "html"), ("application", "xhtml+xml"))
# From how many seconds on, of how many seconds, and its name. Functions, since each lazy text
# of Django's makes a class of its own, which would be a third of the app's time to import.
_UNITS: tuple[tuple[int, int, Callable[[int], str]], ...] = (
    (2 * 86_400, 86_400, lambda n: ngettext("%(number)d day", "%(number)d days", n)),
    (2 * 3_600, 3_600, lambda n: ngettext("%(number)d hour", "%(number)d hours", n)),
    (2 * 60, 60, lambda n: ngettext("%(number)d minute", "%(number)d minutes", n)),
    (0, 1, lambda n: ngettext("%(number)d second", "%(number)d seconds", n)),
)


def refusal(request: HttpRequest, decision: Decision) -> HttpResponse:
    """429, or 503 where it is the server that cannot tell; never to be cached."""
    response: HttpResponse = answer(_question(request, decision))
    return finish(response, decision)


async def arefusal(request: HttpRequest, decision: Decision) -> HttpResponse:
    """The same; what may block, a page of the project's own, is made in a thread."""
    response: HttpResponse = await aanswer(_question(request, decision))
    return finish(response, decision)


def status_of(decision: Decision) -> int:
    """The status that a refusal is answered with."""
    return UNAVAILABLE if decision.source == DENY else TOO_MANY_REQUESTS


def _question(request: HttpRequest, decision: Decision) -> Ask:
    own = conf.response
    if own is not None:
        return ask(import_string(own) if isinstance(own, str) else own, request, decision)
    form = _preferred_form(request)
    if form == "html":
        return ask(_page, request, decision)
    return Ask(_data, _adata, (form, decision))


def finish(response: Response, decision: Decision) -> Response:
    """The response to a refusal, whoever made it, with what each of them needs."""
    seconds = retry_after(decision)
    if seconds is not None:
        response.headers.setdefault("Retry-After", str(seconds))
    response.headers.setdefault("Cache-Control", "no-store")
    # Django would log each of them; the rejection log says more, in less time.
    vars(response)["_has_been_logged"] = True
    return response


def _preferred_form(request: HttpRequest) -> str:
    """json or html for who asks for them; text for who takes anything, or prefers text."""
    try:
        # Django 5.2 keeps those that the client will not have.
        accepted = [media_type for media_type in request.accepted_types if media_type.quality]
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


def _data(form: str, decision: Decision) -> HttpResponse:
    status = status_of(decision)
    title, advice = _words(decision)
    if form == "text":
        text = f"{title}. {advice}\n"
        return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")
    problem: dict[str, Any] = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": advice,
    }
    if decision.reason == DENY:
        problem["type"] = f"{_PROBLEM_TYPES}temporary-reduced-capacity"
    elif decision.reason != IDENTITY_ERROR:
        problem["type"] = f"{_PROBLEM_TYPES}quota-exceeded"
        problem["violated-policies"] = violated(decision)
    return JsonResponse(problem, status=status, content_type="application/problem+json")


async def _adata(form: str, decision: Decision) -> HttpResponse:
    return _data(form, decision)


def _page(request: HttpRequest, decision: Decision) -> HttpResponse:
    """The project's 429.html (or 503.html), else our own."""
    status = status_of(decision)
    title, advice = _words(decision)
    context = {
        "decision": decision,
        "status": status,
        "retry_after": retry_after(decision),
        "title": title,
        "advice": advice,
    }
    try:
        template = loader.get_template(f"{status}.html")
    except TemplateDoesNotExist:
        return HttpResponse(_own_template().render(Context(context)), status=status)
    return HttpResponse(template.render(context, request), status=status)


@lru_cache(maxsize=1)
def _own_template() -> Template:
    """By an engine of its own, so it is there whatever TEMPLATES says."""
    folder = Path(__file__).parent / "templates"
    engine = Engine(dirs=[str(folder)], libraries={"i18n": "django.templatetags.i18n"})
    return engine.get_template("django_slidingwindow/429.html")


def _words(decision: Decision) -> tuple[str, str]:
    """Title and advice, in the language of the request."""
    known = decision.reason != IDENTITY_ERROR
    return _translated(get_language(), status_of(decision), retry_after(decision), known)


@lru_cache(maxsize=1024)  # A flood of refusals asks for few of them.
def _translated(
    language: str | None, status: int, seconds: int | None, known: bool
) -> tuple[str, str]:
    if status == UNAVAILABLE:
        title = gettext("Service unavailable")
    else:
        title = gettext("Too many requests")
    if seconds is not None:
        # In one unit, rounded up.
        _, length, text = next(unit for unit in _UNITS if seconds >= unit[0])
        number = math.ceil(seconds / length)
        duration = text(number) % {"number": number}
        return title, gettext("Please try again in %(duration)s.") % {"duration": duration}
    if known:
        return title, gettext("This request is not allowed; trying again will not help.")
    return title, gettext("Please try again later.")
