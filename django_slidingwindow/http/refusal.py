"""The answer to a refused request, in the form that its client asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from django.http import HttpRequest, HttpResponse
from django.http.request import MediaType
from django.http.response import HttpResponseBase
from django.template import Context, Engine, Template, TemplateDoesNotExist, loader
from django.utils.module_loading import import_string
from django.utils.translation import get_language, gettext, ngettext

from ..conf import conf
from ..core.caching import BoundedCache
from ..decisions import DENY, IDENTITY_ERROR, Decision
from ..durations import count_rounded_up
from ..guard.user_code import acall, call
from . import headers
from .headers import client_seconds, violated

TOO_MANY_REQUESTS, UNAVAILABLE = 429, 503

Response = TypeVar("Response", bound=HttpResponseBase)
_Known: TypeAlias = "tuple[int, str, int | None]"
"""What the words of an answer depend on, beside the language: status, reason, and how many seconds
to wait; None for ever."""

_CONTENT_TYPES = {"text": "text/plain; charset=utf-8", "json": "application/problem+json"}
# By what clients accept; few of them say anything long, or anything of their own.
_forms: BoundedCache[str, str] = BoundedCache(256)
_LONGEST_ACCEPT = 256
_PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"
_HTML = (("text", "html"), ("application", "xhtml+xml"))
# By the symbol of the unit. Functions, since each lazy text of Django's makes a class of its own,
# which would be a third of the app's time to import.
_COUNTS: dict[str, Callable[[int], str]] = {
    "s": lambda n: ngettext("%(number)d second", "%(number)d seconds", n),
    "min": lambda n: ngettext("%(number)d minute", "%(number)d minutes", n),
    "h": lambda n: ngettext("%(number)d hour", "%(number)d hours", n),
    "d": lambda n: ngettext("%(number)d day", "%(number)d days", n),
}


def refusal(request: HttpRequest, decision: Decision) -> HttpResponse:
    """Return a 429, or a 503 if it is the server that cannot decide; never to be cached."""
    seconds = client_seconds(decision)
    response: HttpResponse | None = _data(request, decision, seconds)
    if response is None:
        response = call(_own_response(), request, decision)
    return _finish(response, seconds)


async def arefusal(request: HttpRequest, decision: Decision) -> HttpResponse:
    """Do what `refusal` does; a page of the project's own, which may block, runs in a thread."""
    seconds = client_seconds(decision)
    response: HttpResponse | None = _data(request, decision, seconds)
    if response is None:
        response = await acall(_own_response(), request, decision)
    return _finish(response, seconds)


def status_of(decision: Decision) -> int:
    """Return the status that a refusal is answered with."""
    return UNAVAILABLE if decision.source == DENY else TOO_MANY_REQUESTS


def _own_response() -> Callable[[HttpRequest, Decision], Any]:
    """Return the project's function that makes a response, or ours that makes a page."""
    own = conf.response
    if own is None:
        return _page
    return import_string(own) if isinstance(own, str) else own  # type: ignore[no-any-return]


def finish(response: Response, decision: Decision) -> Response:
    """Return the response to a refusal with the headers that every refusal needs."""
    return _finish(response, client_seconds(decision))


def _finish(response: Response, seconds: int | None) -> Response:
    headers.refuse(response, seconds)
    # Django would log each of them; the rejection log says more, in less time.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def _form(request: HttpRequest) -> str:
    """Return the form of the answer: "text", "json" or "html"."""
    accept = request.META.get("HTTP_ACCEPT")
    if accept is None:
        return "text"
    form = _forms.get(accept)
    if form is None:
        form = _preferred_form(request)
        if len(accept) <= _LONGEST_ACCEPT:
            _forms.keep(accept, form)
    return form


def _preferred_form(request: HttpRequest) -> str:
    """Return "json" or "html" if the client asks for it, else "text"."""
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


def _data(request: HttpRequest, decision: Decision, seconds: int | None) -> HttpResponse | None:
    """Return text or JSON; None for a client that wants a page, or if the project answers."""
    if conf.response is not None:
        return None
    form = _form(request)
    if form == "html":
        return None
    known = status_of(decision), decision.reason, seconds
    policies = tuple(violated(decision)) if form == "json" else ()
    body = _body(form, get_language(), known, policies)
    return HttpResponse(body, status=known[0], content_type=_CONTENT_TYPES[form])


@lru_cache(maxsize=1024)  # A flood of refusals asks for few of them.
def _body(form: str, language: str | None, known: _Known, policies: tuple[str, ...]) -> bytes:
    title, advice = _words(known)
    if form == "text":
        return f"{title}. {advice}\n".encode()
    status, reason, _ = known
    problem: dict[str, Any] = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": advice,
    }
    if reason == DENY:
        problem["type"] = f"{_PROBLEM_TYPES}temporary-reduced-capacity"
    elif reason != IDENTITY_ERROR:
        problem["type"] = f"{_PROBLEM_TYPES}quota-exceeded"
        problem["violated-policies"] = policies
    return json.dumps(problem).encode()


def _page(request: HttpRequest, decision: Decision) -> HttpResponse:
    """Return the project's 429.html (or 503.html), else our own."""
    status = status_of(decision)
    seconds = client_seconds(decision)
    title, advice = _words((status, decision.reason, seconds))
    context = {
        "decision": decision,
        "status": status,
        "retry_after": seconds,
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
    """Return our page, by an engine of its own: it is there whatever TEMPLATES says."""
    folder = Path(__file__).parent.parent / "templates"
    engine = Engine(dirs=[str(folder)], libraries={"i18n": "django.templatetags.i18n"})
    return engine.get_template("django_slidingwindow/429.html")


def _words(known: _Known) -> tuple[str, str]:
    """Return title and advice, in the language that is active."""
    status, reason, seconds = known
    if status == UNAVAILABLE:
        title = gettext("Service unavailable")
    else:
        title = gettext("Too many requests")
    if seconds is not None:
        number, unit = count_rounded_up(seconds)
        text = _COUNTS[unit](number) % {"number": number}
        return title, gettext("Please try again in %(duration)s.") % {"duration": text}
    if reason != IDENTITY_ERROR:
        return title, gettext("This request is not allowed; trying again will not help.")
    return title, gettext("Please try again later.")
