"""The response to a refused request, in the format that the client accepts."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from django.apps import apps
from django.http import HttpRequest, HttpResponse
from django.http.request import MediaType
from django.http.response import HttpResponseBase
from django.template import Context, Engine, Template, TemplateDoesNotExist, loader
from django.utils.module_loading import import_string
from django.utils.translation import get_language, gettext, ngettext, trans_real

from ..conf import NAME, conf, on_change
from ..core.caching import BoundedCache
from ..decisions import BLOCK, DENY, IDENTITY_ERROR, Decision
from ..durations import count_rounded_up
from ..profiles.user_code import acall, synchronous
from . import headers
from .headers import client_seconds, violated, waits_for_slot

TOO_MANY_REQUESTS, UNAVAILABLE = 429, 503

Response = TypeVar("Response", bound=HttpResponseBase)
_Cause: TypeAlias = "tuple[int, str, int | None]"
"""What the texts of a response depend on, besides the language: the status, the reason, and the
seconds to wait (None if waiting does not help, or if the time is unknown)."""
_SLOT = "slot"
"""Replaces the reason if a request in flight has to end."""

_CONTENT_TYPES = {"text": "text/plain; charset=utf-8", "json": "application/problem+json"}
# Formats by the header Accept. Clients send few different values, and most are short.
_formats: BoundedCache[str, str] = BoundedCache(256)
_MAX_ACCEPT_LENGTH = 256
# By format, language, cause and policies. A flood of refusals needs few different bodies.
_bodies: BoundedCache[tuple[str, str | None, _Cause, tuple[str, ...]], bytes] = BoundedCache(1_024)
_PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"
# Images are for the icon of the site, which browsers load on their own.
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src 'self'; style-src "
_HTML = (("text", "html"), ("application", "xhtml+xml"))
# By the symbol of the unit. These are functions, because each `ngettext_lazy` creates a class: that
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
    """Return a response with status 429, or 503 if the server cannot decide; not for caches."""
    seconds = client_seconds(decision)
    response: HttpResponse | None = _data(request, decision, seconds)
    if response is None:
        response = _response(synchronous(_response_function())(request, decision))
    return _finish(response, seconds)


async def arefusal(request: HttpRequest, decision: Decision) -> HttpResponse:
    """Do what `refusal` does, without blocking the event loop. A page is made in a thread."""
    seconds = client_seconds(decision)
    response: HttpResponse | None = _data(request, decision, seconds)
    if response is None:
        response = _response(await acall(_response_function(), request, decision))
    return _finish(response, seconds)


def status_of(decision: Decision) -> int:
    """Return the HTTP status of a refusal."""
    return UNAVAILABLE if decision.source == DENY else TOO_MANY_REQUESTS


def _response_function() -> Callable[[HttpRequest, Decision], Any]:
    """Return the function in RESPONSE, or `_page` if the project has none."""
    own = conf.response
    if own is None:
        return _page
    return import_string(own) if isinstance(own, str) else own  # type: ignore[no-any-return]


def _response(found: Any) -> HttpResponse:
    """Return the result of the function in RESPONSE; raise TypeError if it is not a response."""
    if not isinstance(found, HttpResponseBase):
        kind = type(found).__name__
        raise TypeError(f"the function in {NAME}['RESPONSE'] returned {kind}, not a response")
    return cast(HttpResponse, found)


def finish(response: Response, decision: Decision) -> Response:
    """Return the response to a refusal with the headers that every refusal needs."""
    return _finish(response, client_seconds(decision))


def _finish(response: Response, seconds: int | None) -> Response:
    headers.refuse(response, seconds)
    # Django would log each refusal. The rejection log says more, and takes less time.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def preferred_format(request: HttpRequest) -> str:
    """Return the format that the client prefers: "text", "json" or "html"."""
    accept = request.META.get("HTTP_ACCEPT")
    if accept is None:
        return "text"
    found = _formats.get(accept)
    if found is None:
        found = _accepted_format(request)
        if len(accept) <= _MAX_ACCEPT_LENGTH:
            _formats.keep(accept, found)
    return found


def _accepted_format(request: HttpRequest) -> str:
    """Return "json" or "html" if the client asks for it, else "text"."""
    try:
        # Django 5.2 includes types with a quality of 0, which the client refuses.
        accepted = [media_type for media_type in request.accepted_types if media_type.quality]
    except ValueError:
        # The header is longer than Django allows.
        return "text"
    for media_type in accepted:
        found = _format_of(media_type)
        if found is not None:
            better = (other for other in accepted if other.quality > media_type.quality)
            return "text" if any(other.main_type in ("text", "*") for other in better) else found
    return "text"


def _format_of(media_type: MediaType) -> str | None:
    main, sub = media_type.main_type, media_type.sub_type
    if main == "application" and (sub in ("json", "*") or sub.endswith("+json")):
        return "json"
    return "html" if (main, sub) in _HTML else None


def _data(request: HttpRequest, decision: Decision, seconds: int | None) -> HttpResponse | None:
    """Return text or JSON; None if the client prefers a page, or the project has a RESPONSE."""
    if conf.response is not None:
        return None
    preferred = preferred_format(request)
    if preferred == "html":
        return None
    reason = _reason(decision) if decision.retry_after == 0.0 else decision.reason
    cause = status_of(decision), reason, seconds
    policies = tuple(violated(decision)) if preferred == "json" else ()
    key = preferred, _language(), cause, policies
    body = _bodies.get(key)
    if body is None:
        body = _body(preferred, cause, policies)
        # They differ if translations are deactivated.
        if get_language() == key[1]:
            _bodies.keep(key, body)
    return HttpResponse(body, status=cause[0], content_type=_CONTENT_TYPES[preferred])


def _language() -> str | None:
    """Return the active language, as Django's `get_language` does.

    If no language was activated, `get_language` takes a quarter of the time of a refusal
    (`python -m benchmarks views`). As long as Django has loaded only the language of the site, no
    other language can be active.
    """
    loaded, own = trans_real._translations, conf.language  # type: ignore[attr-defined]
    return own if len(loaded) == 1 and own in loaded else get_language()


def _body(body_format: str, cause: _Cause, policies: tuple[str, ...]) -> bytes:
    title, advice = _title_and_advice(cause)
    if body_format == "text":
        return f"{title}. {advice}\n".encode()
    status, reason, _ = cause
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
    """Return the project's template 429.html or 503.html, or else our own page."""
    status = status_of(decision)
    seconds = client_seconds(decision)
    title, advice = _title_and_advice((status, _reason(decision), seconds))
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
        # The policy would stop the scripts of django-debug-toolbar.
        if not apps.is_installed("debug_toolbar"):
            # Django's CSP middleware and django-csp keep a policy that a response already has.
            response.headers["Content-Security-Policy"] = policy
        return response
    return HttpResponse(template.render(context, request), status=status)


@lru_cache(maxsize=1)
def _own_page() -> tuple[Template, str]:
    """Return our page and its Content Security Policy, which allows the page's style by its hash.

    The template has its own engine, and so does not depend on the setting TEMPLATES.
    """
    folder = Path(__file__).parent.parent / "templates"
    engine = Engine(dirs=[str(folder)], libraries={"i18n": "django.templatetags.i18n"})
    page = engine.get_template("django_slidingwindow/429.html")
    style = str(page.source).partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return page, f"{_POLICY}'sha256-{digest}'"


def advice(decision: Decision) -> str:
    """Return the advice for a refused client, in the active language."""
    return _title_and_advice((status_of(decision), _reason(decision), client_seconds(decision)))[1]


def _reason(decision: Decision) -> str:
    return _SLOT if waits_for_slot(decision) else decision.reason


def _title_and_advice(cause: _Cause) -> tuple[str, str]:
    """Return title and advice in the active language."""
    status, reason, seconds = cause
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
