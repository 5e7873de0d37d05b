"""A refused client gets a response in a format that it accepts, and that is not cached."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import threading

import pytest
from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings
from django.utils import translation
from django.utils.log import log_response
from django.utils.module_loading import import_string
from django.utils.translation import trans_real

from django_slidingwindow.decisions import (
    DENY,
    IDENTITY_ERROR,
    LIMIT,
    REDIS,
    Decision,
    Verdict,
)
from django_slidingwindow.http import refusal as responses
from django_slidingwindow.policies import Policy
from tests.support import content_security

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
AXIOS = "application/json, text/plain, */*"
BURST = Policy.parse("5/m")


def refused(retry_after=33.2, *, source=REDIS, reason=LIMIT, verdicts=None):
    if verdicts is None:
        verdicts = (
            Verdict(
                profile="burst",
                policy=BURST,
                key="throttle:ip:{203.0.113.9}:burst:c60",
                allowed=False,
                observed=False,
                limit=5,
                remaining=0,
                retry_after=retry_after,
                reset_after=33.2,
            ),
        )
    return Decision(
        allowed=False,
        profile="burst",
        policy=BURST,
        limit=5,
        remaining=0,
        retry_after=retry_after,
        reset_after=33.2,
        reason=reason,
        source=source,
        verdicts=verdicts,
    )


DENIED = refused(0.0, source=DENY, reason=DENY, verdicts=())


@pytest.fixture(params=["sync", "async"])
def refuse(request):
    """Return the response to a refused request, made by sync or async code."""

    async def call(http_request, decision):
        if request.param == "sync":
            return await sync_to_async(responses.refusal)(http_request, decision)
        return await responses.arefusal(http_request, decision)

    return call


def asking(accept=None, **kwargs):
    headers = {} if accept is None else {"Accept": accept}
    return RequestFactory().get("/", headers=headers, **kwargs)


def media_type(response):
    return response["Content-Type"].partition(";")[0]


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        (None, "text/plain"),
        ("", "text/plain"),
        ("*/*", "text/plain"),
        ("text/plain", "text/plain"),
        ("image/png", "text/plain"),
        ("nonsense;;;q=x,,/", "text/plain"),
        ("a" * 20_000, "text/plain"),
        (BROWSER, "text/html"),
        ("text/html", "text/html"),
        ("application/xhtml+xml", "text/html"),
        ("text/html, application/json;q=0.5", "text/html"),
        (AXIOS, "application/problem+json"),
        ("application/json", "application/problem+json"),
        ("application/json; charset=utf-8", "application/problem+json"),
        ("application/problem+json", "application/problem+json"),
        ("application/vnd.api+json", "application/problem+json"),
        ("application/*", "application/problem+json"),
        ("text/html;q=0.1, application/json;q=0.2", "application/problem+json"),
        ("application/json;q=0.1, text/plain", "text/plain"),
        ("application/json;q=0.1, */*;q=0.9", "text/plain"),
        ("application/json;q=0.8, image/png", "application/problem+json"),
        ("application/json;q=0", "text/plain"),
    ],
)
def test_format_is_the_one_that_the_client_accepts(accept, given):
    response = responses.refusal(asking(accept), refused())
    assert media_type(response) == given
    assert response.status_code == 429


@pytest.mark.parametrize("accept", ["*/*", BROWSER, AXIOS])
async def test_refusal_has_retry_after_and_is_not_cached(refuse, accept):
    response = await refuse(asking(accept), refused(33.2))
    assert response.status_code == 429
    assert response["Retry-After"] == "34"
    assert response["Cache-Control"] == "no-store"


@pytest.mark.parametrize("accept", ["*/*", BROWSER, AXIOS])
async def test_refusal_without_end_has_no_retry_after(refuse, accept):
    response = await refuse(asking(accept), refused(None))
    assert response.status_code == 429
    assert "Retry-After" not in response
    assert "will not help" in response.text


@pytest.mark.parametrize("accept", ["*/*", BROWSER, AXIOS])
async def test_denied_while_the_store_is_away_is_503(refuse, accept):
    response = await refuse(asking(accept), DENIED)
    assert response.status_code == 503
    assert response["Retry-After"] == "1"
    assert response["Cache-Control"] == "no-store"
    assert "Service unavailable" in response.text


def test_problem_names_the_violated_policies():
    response = responses.refusal(asking("application/json"), refused())
    assert json.loads(response.content) == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too many requests",
        "status": 429,
        "detail": "Please try again in 34 seconds.",
        "violated-policies": ["burst"],
    }


def test_problem_of_a_store_that_is_away_is_reduced_capacity():
    problem = json.loads(responses.refusal(asking("application/json"), DENIED).content)
    assert problem["type"].endswith("#temporary-reduced-capacity")
    assert problem["status"] == 503
    assert "violated-policies" not in problem


def test_problem_of_an_identity_error_names_no_quota():
    decision = refused(None, source=DENY, reason=IDENTITY_ERROR, verdicts=())
    problem = json.loads(responses.refusal(asking("application/json"), decision).content)
    assert problem == {
        "type": "about:blank",
        "title": "Service unavailable",
        "status": 503,
        "detail": "Please try again later.",
    }


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.2, "1 second"),
        (119, "119 seconds"),
        (120, "2 minutes"),
        (121, "3 minutes"),
        (7_199, "120 minutes"),
        (7_201, "3 hours"),
        (172_800, "2 days"),
    ],
)
def test_text_has_the_time_in_words(seconds, shown):
    response = responses.refusal(asking(), refused(seconds))
    assert response.text == f"Too many requests. Please try again in {shown}.\n"


def test_each_language_has_its_own_body(monkeypatch):
    def shown(language):
        with translation.override(language):
            return responses.refusal(asking("*/*"), refused()).text.partition(".")[0]

    def translated(text):
        return f"{translation.get_language()} {text}"

    responses._bodies.clear()
    monkeypatch.setattr(responses, "gettext", translated)
    assert [shown(language) for language in ("fi", "nb", "fi")] == [
        "fi Too many requests",
        "nb Too many requests",
        "fi Too many requests",
    ]
    responses._bodies.clear()


@pytest.fixture
def one_language(monkeypatch):
    """Make Django forget the languages that other tests have used."""
    monkeypatch.setattr(trans_real, "_translations", {})
    monkeypatch.setattr(trans_real, "_default", None)
    responses._bodies.clear()
    yield
    responses._bodies.clear()


def text():
    return responses.refusal(asking("*/*"), refused()).text


def test_get_language_is_not_called_when_one_language_is_loaded(one_language, monkeypatch):
    first = text()
    # If this fails, Django stores its loaded languages elsewhere: `responses._language` has to look
    # there, or always call `get_language`.
    assert [*trans_real._translations] == ["en-us"]
    monkeypatch.setattr(responses, "get_language", None)
    assert text() == first == "Too many requests. Please try again in 34 seconds.\n"


@pytest.mark.parametrize("own", ["en-us", "de", "fr"])
def test_language_that_is_not_the_sites_own_is_used_when_it_is_active(one_language, own):
    with override_settings(LANGUAGE_CODE=own):
        for language, title in [("en-gb", "Too many"), ("de", "Zu viele"), ("en-us", "Too many")]:
            with translation.override(language):
                assert text().startswith(title)


def test_text_without_translation_is_not_kept_for_others(one_language):
    with override_settings(LANGUAGE_CODE="de"):
        with translation.override("de"):
            pass
        with translation.override(None):
            assert text().startswith("Too many")
        with translation.override("de"):
            assert text().startswith("Zu viele")


def test_cache_of_formats_is_bounded(monkeypatch):
    monkeypatch.setattr(responses._formats, "size", 8)
    for number in range(50):
        accept = f"application/vnd.{number}+json"
        response = responses.refusal(asking(accept), refused())
        assert media_type(response) == "application/problem+json"
    assert len(responses._formats) <= 8
    long = "application/json," * 100
    assert media_type(responses.refusal(asking(long), refused())) == "application/problem+json"
    assert long not in responses._formats


def test_page_is_complete_and_needs_nothing_from_elsewhere():
    page = responses.refusal(asking(BROWSER), refused()).text
    assert page.startswith("<!doctype html>\n")
    assert '<html lang="en-us">' in page
    assert "<h1>Too many requests</h1>" in page
    assert "Please try again in 34 seconds." in page
    assert "prefers-color-scheme: dark" in page
    for outside in ("http:", "https:", "url(", "src=", "<link", "<script"):
        assert outside not in page


def test_page_allows_its_style_and_no_other():
    response = responses.refusal(asking(BROWSER), refused())
    style = response.text.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert response["Content-Security-Policy"] == (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src 'self'; "
        f"style-src 'sha256-{digest}'"
    )
    assert " style=" not in response.text


@pytest.mark.parametrize("tool", content_security.TOOLS)
def test_policy_of_the_page_is_kept_by_the_middleware_of_the_project(tool):
    middleware = import_string(tool)
    with override_settings(**content_security.strict([], tool)):
        page = middleware(lambda request: responses.refusal(request, refused()))(asking(BROWSER))
        other = middleware(lambda request: HttpResponse())(asking(BROWSER))
    assert "sha256-" in page["Content-Security-Policy"]
    assert "default-src 'self'" in other["Content-Security-Policy"]


@pytest.mark.parametrize("accept", ["*/*", AXIOS])
def test_only_a_page_has_a_policy(accept):
    assert "Content-Security-Policy" not in responses.refusal(asking(accept), refused())


def test_page_is_right_to_left_in_languages_that_are():
    with translation.override("ar"):
        page = responses.refusal(asking(BROWSER), refused()).text
    assert '<html lang="ar" dir="rtl">' in page


@override_settings(TEMPLATES=[])
def test_page_needs_no_template_engine_of_the_project():
    assert "<h1>Too many requests</h1>" in responses.refusal(asking(BROWSER), refused()).text


def own_templates(**sources):
    """Return TEMPLATES with these templates only. Names are without .html."""
    loaders = [
        (
            "django.template.loaders.locmem.Loader",
            {f"{name[1:]}.html": source for name, source in sources.items()},
        )
    ]
    backend = "django.template.backends.django.DjangoTemplates"
    processors = ["django.template.context_processors.request"]
    options = {"loaders": loaders, "context_processors": processors}
    return override_settings(TEMPLATES=[{"BACKEND": backend, "OPTIONS": options}])


async def test_page_of_the_project_is_used(refuse):
    source = "Wait {{ retry_after }} s: {{ decision.profile }} {{ status }} {{ request.path }}"
    with own_templates(_429=source, _503="We are {{ title }}"):
        response = await refuse(asking(BROWSER), refused())
        away = await refuse(asking(BROWSER), DENIED)
    assert response.text == "Wait 34 s: burst 429 /"
    assert "Content-Security-Policy" not in response
    assert response.status_code == 429
    assert response["Retry-After"] == "34"
    assert away.text == "We are Service unavailable"
    assert away.status_code == 503


async def test_page_of_the_project_may_block_but_not_the_loop():
    seen = []

    class Where:
        def __str__(self):
            seen.append(threading.current_thread())
            return ""

    request = asking(BROWSER)
    request.where = Where()
    with own_templates(_429="{{ request.where }}"):
        await responses.arefusal(request, refused())
    assert seen
    assert threading.current_thread() not in seen


def own_response(request, decision):
    return HttpResponse(f"{request.path} {decision.profile}", status=420)


async def own_async_response(request, decision):
    return own_response(request, decision)


def own_finished_response(request, decision):
    return HttpResponse(
        status=429, headers={"Retry-After": "7", "Cache-Control": "private, no-store"}
    )


@pytest.mark.parametrize(
    "own",
    [
        f"{__name__}.own_response",
        f"{__name__}.own_async_response",
        own_response,
    ],
)
async def test_response_of_the_project_is_used(own, refuse):
    with override_settings(SLIDING_WINDOW={"RESPONSE": own}):
        response = await refuse(asking(AXIOS), refused())
    assert (response.status_code, response.text) == (420, "/ burst")
    assert response["Retry-After"] == "34"
    assert response["Cache-Control"] == "no-store"


async def test_error_names_the_setting_when_its_function_returns_no_response(refuse):
    own = {"RESPONSE": lambda request, decision: None}
    error = pytest.raises(TypeError, match=r"SLIDING_WINDOW\['RESPONSE'\] returned NoneType")
    with override_settings(SLIDING_WINDOW=own), error:
        await refuse(asking(AXIOS), refused())


def test_response_of_the_project_keeps_its_own_fields():
    with override_settings(SLIDING_WINDOW={"RESPONSE": own_finished_response}):
        response = responses.refusal(asking(), refused())
    assert response["Retry-After"] == "7"
    assert response["Cache-Control"] == "private, no-store"


def test_django_does_not_log_a_refusal(caplog):
    request = asking()
    with caplog.at_level(logging.DEBUG):
        log_response("Refused", response=responses.refusal(request, refused()), request=request)
        assert not caplog.records
        log_response("Refused", response=HttpResponse(status=429), request=request)
        assert len(caplog.records) == 1


def test_client_gets_text_when_its_accept_is_longer_than_django_allows():
    class Unreadable(HttpRequest):
        @property
        def accepted_types(self):
            raise ValueError("too long")

    request = Unreadable()
    request.META["HTTP_ACCEPT"] = "application/json," * 1_000
    shown = responses.refusal(request, refused())
    assert shown["Content-Type"].startswith("text/plain")
