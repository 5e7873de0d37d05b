"""Views that show callers their own limits."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template import Context, Engine, Template, loader
from django.utils.cache import patch_vary_headers

from .decisions import BLOCK, REDIS
from .durations import rate_exact
from .guard.installation import require_installed
from .guard.peek import Peek, PeekedWindow, apeek, peek
from .guard.requirements import Choice, Requirements, joined, requirements_from
from .guard.usages import calling_place, declare
from .http.headers import client_seconds
from .http.policy_names import describe
from .http.refusal import advice, preferred_format
from .profiles.user_code import in_thread

if TYPE_CHECKING:
    from .decisions import Decision, Verdict

_METHODS = ("GET", "HEAD")
HTML = "html"
_FORMATS = (HTML, "json")


def limits_view(
    profiles: str | Choice | Iterable[str | Choice], *, template_name: str | None = None
) -> Callable[..., HttpResponse]:
    """Return a view that shows what is left of the caller's own limits. The view charges nothing.

    `profiles` are names, or functions of the request that choose them. The response is JSON, or a
    fragment of HTML if the client prefers that or asks for `?format=html`. `template_name` renders
    the fragment. Its context has the values of the JSON, and `advice` if the caller would be
    refused.
    """
    requirements = _requirements(profiles)

    def view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method not in _METHODS:
            return HttpResponseNotAllowed(_METHODS)
        return _response(request, peek(request, requirements), template_name)

    return view


def alimits_view(
    profiles: str | Choice | Iterable[str | Choice], *, template_name: str | None = None
) -> Callable[..., Awaitable[HttpResponse]]:
    """Return the view of `limits_view` as an async view."""
    requirements = _requirements(profiles)

    async def view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method not in _METHODS:
            return HttpResponseNotAllowed(_METHODS)
        found = await apeek(request, requirements)
        if template_name is None:
            return _response(request, found, None)
        # A template of the project may use the database.
        return await in_thread(_response, request, found, template_name)

    return view


def _requirements(
    profiles: str | Choice | Iterable[str | Choice],
) -> tuple[Requirements, ...]:
    """Return one set of requirements for each profile, so that a failing one hides no other."""
    require_installed()
    if isinstance(profiles, str) or callable(profiles):
        profiles = (profiles,)
    given = tuple(profiles)
    if not given or not all(isinstance(one, str) or callable(one) for one in given):
        raise TypeError('limits_view needs names of profiles, such as limits_view(["ip_public"])')
    place = calling_place(2)
    found = [joined(requirements_from([one], origin=f"limits_view at {place}")) for one in given]
    for requirements in found:
        declare(place, *requirements)
    return tuple(found)


def _response(request: HttpRequest, found: Peek, template_name: str | None) -> HttpResponse:
    refusal = _longest_refusal(found)
    content = _content(found, refusal)
    form = request.GET.get("format")
    if form not in _FORMATS:
        form = preferred_format(request)
    if form == HTML:
        context = {
            **content,
            "limits": [_with_texts(limit) for limit in content["limits"]],
            "advice": "" if refusal is None else advice(refusal),
        }
        if template_name is None:
            response = HttpResponse(_template().render(Context(context)))
        else:
            response = HttpResponse(loader.get_template(template_name).render(context, request))
    else:
        response = HttpResponse(json.dumps(content), content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    patch_vary_headers(response, ["Accept"])
    return response


def _content(found: Peek, refusal: Decision | None) -> dict[str, Any]:
    return {
        "allowed": refusal is None,
        "retry_after": _retry_after(refusal),
        "source": found.decision.source if found.decision is not None else REDIS,
        "limits": [*_windows(found.windows, found.decision), *_blocks(found.decided)],
    }


def _longest_refusal(found: Peek) -> Decision | None:
    """Return the refusal with the longest wait; None if the caller's next request passes."""
    decisions = (*found.decided, found.decision)
    refusals = [one for one in decisions if one is not None and not one.allowed]
    return max(refusals, key=lambda one: client_seconds(one) or math.inf, default=None)


def _windows(
    windows: Sequence[PeekedWindow], decision: Decision | None
) -> Iterator[dict[str, Any]]:
    """Yield the state of each window, with the name that the rate-limit header fields use."""
    applied = [
        (one.profile, one.policy, one.policy.limit if one.verdict is None else one.verdict.limit)
        for one in windows
    ]
    for one, (name, _, _), (_, _, limit) in zip(windows, describe(applied), applied, strict=True):
        yield {
            "name": name,
            "profile": one.profile,
            "limit": limit,
            "window": None if one.policy.inflight else one.policy.window,
            "inflight": one.policy.inflight,
            "remaining": one.left,
            "reset_after": None if one.verdict is None else _reset_after(one.verdict, one.left),
            "retry_after": _retry_after(one.verdict or decision),
        }


def _blocks(decided: Iterable[Decision]) -> Iterator[dict[str, Any]]:
    """Yield the profiles in which an override blocks the caller, as limits of 0."""
    for decision in decided:
        if decision.reason == BLOCK:
            seconds = client_seconds(decision)
            yield {
                "name": decision.profile,
                "profile": decision.profile,
                "limit": 0,
                "window": None,
                "inflight": False,
                "remaining": 0,
                "reset_after": seconds,
                "retry_after": seconds,
            }


def _retry_after(outcome: Decision | Verdict | None) -> int | None:
    return 0 if outcome is None or outcome.allowed else client_seconds(outcome)


def _reset_after(verdict: Verdict, left: int | None) -> int:
    """Return the seconds until the oldest hit leaves the window; 0 if the window has none."""
    if left == verdict.limit:
        return 0
    return client_seconds(verdict._replace(allowed=True)) or 0


def _with_texts(limit: dict[str, Any]) -> dict[str, Any]:
    """Return a limit with the values that only the fragment shows."""
    left = limit["remaining"]
    rate = ""
    if limit["inflight"] or limit["window"] is not None:
        rate = rate_exact(limit["limit"], limit["window"] or 0.0, inflight=limit["inflight"])
    return {
        **limit,
        "rate": rate,
        "used": None if left is None else limit["limit"] - left,
    }


@lru_cache(maxsize=1)
def _template() -> Template:
    """Return the built-in fragment. Its engine is its own: the project may have no TEMPLATES."""
    folder = Path(__file__).parent / "templates"
    engine = Engine(dirs=[str(folder)], libraries={"i18n": "django.templatetags.i18n"})
    return engine.get_template("django_slidingwindow/limits.html")
