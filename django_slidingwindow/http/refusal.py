"""The response to a refused request, in the format that the client accepts."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from django.apps import apps
from django.http import HttpRequest, HttpResponse
from django.http.request import MediaType
from django.http.response import HttpResponseBase
from django.template import Context, Engine, Template, TemplateDoesNotExist, loader
from django.utils.module_loading import import_string
from django.utils.translation import get_language, gettext, ngettext, trans_real

from ..conf import conf, on_change
from ..core.caching import BoundedCache
from ..decisions import BLOCK, DENY, IDENTITY_ERROR, Decision
from ..durations import count_rounded_up
from ..guard.user_code import acall, call
from . import headers
from .headers import client_seconds, violated, waits_for_slot

TOO_MANY_REQUESTS, UNAVAILABLE = 429, 503

Response = TypeVar("Response", bound=HttpResponseBase)
_Known: TypeAlias = "tuple[int, str, int | None]"
"""What the texts of a response depend on, except the language: the status, the reason, and the
seconds to wait (None if waiting does not help, or if nobody knows)."""
_SLOT = "slot"
"""In the place of the reason: a request in flight has to end."""

_CONTENT_TYPES = {"text": "text/plain; charset=utf-8", "json": "application/problem+json"}
# By what clients accept; few of them say anything long, or anything of their own.
_forms: BoundedCache[str, str] = BoundedCache(256)
_LONGEST_ACCEPT = 256
# A flood of refusals needs few different ones. The language is part of the key.
_bodies: BoundedCache[tuple[str, str | None, _Known, tuple[str, ...]], bytes] = BoundedCache(1_024)
_PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"
# Images for the icon of the site, which browsers ask for by themselves.
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src 'self'; style-src "
_HTML = (("text", "html"), ("application", "xhtml+xml"))
# By the symbol of the unit. Functions, because each `ngettext_lazy` creates a class, and that
# would take a third of the time to import the app.
_WAITS: dict[str, Callable[[int], str]] = {
    "s": lambda n: ngettext(
        "Please try again in %(number)d second.", "Please try again in %(number)d seconds.", n
    ),
    "min": lambda n: ngettext(
        "Please try again in %(number)d minute.", "Please try again in %(number)d minutes.", n
    ),
    "h": lambda n: ngettext(
        "Please try again in %(number)d hour.", "Please try again in %(number)d hours.", n
    ),
    "d": lambda n: ngettext(
        "Please try again in %(number)d day.", "Please try again in %(number)d days.", n
    ),
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


def preferred_form(request: HttpRequest) -> str:
    """Return the form of the answer: "text", "json" or "html"."""
    accept = request.META.get("HTTP_ACCEPT")
    if accept is None:
        return "text"
    form = _forms.get(accept)
    if form is None:
        form = _accepted_form(request)
        if len(accept) <= _LONGEST_ACCEPT:
            _forms.keep(accept, form)
    return form


def _accepted_form(request: HttpRequest) -> str:
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
    form = preferred_form(request)
    if form == "html":
        return None
    reason = _reason(decision) if decision.retry_after == 0.0 else decision.reason
    known = status_of(decision), reason, seconds
    policies = tuple(violated(decision)) if form == "json" else ()
    key = form, _language(), known, policies
    body = _bodies.get(key)
    if body is None:
        body = _body(form, known, policies)
        # Not if translation is switched off.
        if get_language() == key[1]:
            _bodies.keep(key, body)
    return HttpResponse(body, status=known[0], content_type=_CONTENT_TYPES[form])


def _language() -> str | None:
    """Return the language that is active, as Django's `get_language` does.

    Where none was activated, that takes a quarter of the time of a refusal
    (`python -m benchmarks views`). While Django has loaded no other language than that of the
    site, no other can be active.
    """
    loaded, own = trans_real._translations, conf.language  # type: ignore[attr-defined]
    return own if len(loaded) == 1 and own in loaded else get_language()


def _body(form: str, known: _Known, policies: tuple[str, ...]) -> bytes:
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
    elif reason not in (IDENTITY_ERROR, BLOCK):
        problem["type"] = f"{_PROBLEM_TYPES}quota-exceeded"
        problem["violated-policies"] = policies
    return json.dumps(problem).encode()


def _page(request: HttpRequest, decision: Decision) -> HttpResponse:
    """Return the project's 429.html (or 503.html), else our own."""
    status = status_of(decision)
    seconds = client_seconds(decision)
    title, advice = _words((status, _reason(decision), seconds))
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
        page, policy = _own_page()
        response = HttpResponse(page.render(Context(context)), status=status)
        # Under the policy, django-debug-toolbar could not run its scripts on the page.
        if not apps.is_installed("debug_toolbar"):
            # Django's CSP middleware and django-csp keep a policy that a response already has.
            response.headers["Content-Security-Policy"] = policy
        return response
    return HttpResponse(template.render(context, request), status=status)


@lru_cache(maxsize=1)
def _own_page() -> tuple[Template, str]:
    """Return our page and its Content Security Policy, which allows the page's style by its hash.

    The template has an engine of its own, so that TEMPLATES does not matter.
    """
    folder = Path(__file__).parent.parent / "templates"
    engine = Engine(dirs=[str(folder)], libraries={"i18n": "django.templatetags.i18n"})
    page = engine.get_template("django_slidingwindow/429.html")
    style = str(page.source).partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return page, f"{_POLICY}'sha256-{digest}'"


def advice(decision: Decision) -> str:
    """Return what a refused client should do, in the current language."""
    return _words((status_of(decision), _reason(decision), client_seconds(decision)))[1]


def _reason(decision: Decision) -> str:
    return _SLOT if waits_for_slot(decision) else decision.reason


def _words(known: _Known) -> tuple[str, str]:
    """Return title and advice in the current language."""
    status, reason, seconds = known
    if status == UNAVAILABLE:
        title = gettext("Service unavailable")
    else:
        title = gettext("Too many requests")
    if seconds is not None:
        number, unit = count_rounded_up(seconds)
        return title, _WAITS[unit](number) % {"number": number}
    if reason not in (IDENTITY_ERROR, _SLOT):
        return title, gettext("This request is not allowed; trying again will not help.")
    return title, gettext("Please try again later.")


on_change(_bodies.clear, "LANGUAGE_CODE", "LANGUAGES", "LOCALE_PATHS", "USE_I18N")
