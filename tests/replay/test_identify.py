"""Identifiers of lines: addresses, fields, patterns, and the project's own axes and rules."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf.urls.i18n import i18n_patterns
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import path

from django_slidingwindow.decorators import rate_limit, rate_limit_exempt
from django_slidingwindow.guard.identity import keyed_hash
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.replay.formats import Names
from django_slidingwindow.replay.identify import by_profile, by_rules, identify_by

NAMES = Names()


def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


urlpatterns = [
    path("search/", rate_limit("search", methods="GET")(view), name="search"),
    path("health/", rate_limit_exempt(view), name="health"),
    path("plain/", view, name="plain"),
]


def tenant(request: HttpRequest) -> str:
    return request.headers["X-Tenant"]


def profile(axis: str, **others: Any) -> Profile:
    policies = (Policy(limit=1, window=1),)
    return Profile(name="search", axis=axis, policies=policies, **others)


def found(axis: str, fields: dict[str, Any], **others: Any) -> str | None:
    return by_profile(profile(axis, **others), NAMES)("", fields)


@pytest.mark.parametrize(
    ("address", "identifier"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8::1", "2001:db8::/64"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("crawler.example.org", "crawler.example.org"),
        ("-", None),
    ],
)
def test_addresses_are_identified_as_in_requests(address: str, identifier: str | None) -> None:
    assert identify_by("ip", NAMES)("", {"remote_addr": address}) == identifier
    assert found("ip", {"remote_addr": address}) == identifier


def test_identify_by_reads_fields_and_patterns() -> None:
    assert identify_by("field:tenant", NAMES)("", {"tenant": "acme"}) == "acme"
    assert identify_by("field:tenant", NAMES)("", {"ip": "::1"}) is None
    line = "GET /t/acme/orders key=abc"
    assert identify_by("regex:/t/([a-z]+)/", NAMES)(line, {}) == "acme"
    assert identify_by("regex:key=[a-z]+", NAMES)(line, {}) == "key=abc"
    assert identify_by("regex:nothing", NAMES)(line, {}) is None


@pytest.mark.parametrize("text", ["", "user", "field:", "regex:", "regex:("])
def test_identify_by_raises_for_other_texts(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not (one of|a regular expression)"):
        identify_by(text, NAMES)


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded"])
def test_client_comes_from_trusted_proxies(header: str) -> None:
    value = "for=192.0.2.7" if header == "forwarded" else "6.6.6.6, 192.0.2.7"
    settings = {"TRUSTED_PROXIES": ["10.0.0.0/8"], "FORWARDED_HEADER": header}
    with override_settings(SLIDING_WINDOW=settings):
        identify = identify_by("ip", NAMES)
        assert identify("", {"ip": "10.0.0.1", "forwarded": value}) == "192.0.2.7"
        assert identify("", {"ip": "203.0.113.9", "forwarded": value}) == "203.0.113.9"
        assert identify("", {"ip": "-"}) is None


@override_settings(ROOT_URLCONF=__name__)
def test_axes_of_profiles_are_identified_as_in_requests() -> None:
    line = {"ip": "203.0.113.9", "request": "GET /plain/?q=1 HTTP/1.1"}
    assert found("global", line) == "all"
    assert found("endpoint", line) == f"plain@{__name__}.view"
    assert found("ip+endpoint", line) == f"203.0.113.9+plain@{__name__}.view"
    assert found("endpoint", {"path": "/gone/"}) is None
    assert found("user", {**line, "user": "ann"}) == "ann"
    assert found("user", line) == "ip:203.0.113.9"
    assert found("user", line, anonymous="skip") is None
    assert found("header:X-Key", {**line, "http_x_key": "k"}) == keyed_hash("k")
    assert found("header:X-Key", {**line, "http_x_key": "-"}) is None


def test_identity_of_the_project_gets_a_request_with_the_fields_of_the_log() -> None:
    with override_settings(SLIDING_WINDOW={"IDENTITIES": {"tenant": tenant}}):
        assert found("tenant", {"http_x_tenant": "acme"}) == "acme"
        assert found("tenant", {}) is None


def test_path_that_begins_with_a_language_is_resolved_as_in_requests(settings: Any) -> None:
    settings.LANGUAGE_CODE = "en"
    settings.ROOT_URLCONF = tuple(i18n_patterns(*urlpatterns))
    line = {"request": "GET /de/search/ HTTP/1.1"}
    assert by_rules(profile("ip"), NAMES)(0, line)
    assert str(found("endpoint", line)).startswith("search@")


@pytest.mark.parametrize("axis", ["session", "ip+session"])
def test_by_profile_raises_when_the_axis_has_a_session(axis: str) -> None:
    with pytest.raises(ValueError, match="say with --identify"):
        by_profile(profile(axis), NAMES)


RULES = [
    {"path": "^/(plain|health)/", "methods": ["POST"], "profiles": ["search"]},
    {"path": "^/nowhere/", "profiles": ["search"]},
]


@pytest.mark.parametrize(
    ("request_line", "applies"),
    [
        ("GET /search/ HTTP/1.1", True),
        ("HEAD /search/ HTTP/1.1", True),
        ("POST /search/ HTTP/1.1", False),
        ("POST /plain/ HTTP/1.1", True),
        ("post /pl%61in/?x HTTP/1.1", True),
        ("GET /plain/ HTTP/1.1", False),
        ("POST /health/ HTTP/1.1", False),
        ("GET /nowhere/ HTTP/1.1", True),
        ("GET /gone/ HTTP/1.1", False),
    ],
)
def test_by_rules_keeps_requests_that_rules_or_views_charge(
    request_line: str, applies: bool
) -> None:
    with override_settings(ROOT_URLCONF=__name__, SLIDING_WINDOW={"RULES": RULES}):
        keeps = by_rules(profile("ip"), NAMES)
        # Twice: the second time, the path is in the cache.
        assert [keeps(0, {"request": request_line}) for _ in range(2)] == [applies] * 2


@pytest.mark.parametrize(("address", "applies"), [("192.0.2.7", False), ("203.0.113.9", True)])
def test_by_rules_leaves_out_exempt_networks(address: str, applies: bool) -> None:
    exempt = [lambda request: request.gone, "192.0.2.0/24", "staff"]
    with override_settings(ROOT_URLCONF=__name__, SLIDING_WINDOW={"EXEMPT": exempt}):
        keeps = by_rules(profile("ip"), NAMES)
        assert keeps(0, {"ip": address, "request": "GET /search/ HTTP/1.1"}) is applies
