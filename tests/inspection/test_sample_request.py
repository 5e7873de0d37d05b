"""A made-up request looks like one that a server has received."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf.urls.i18n import i18n_patterns
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.urls import path

from django_slidingwindow.inspection.sample_request import find_user, request_of


def page(request: Any) -> HttpResponse:
    return HttpResponse("page")


def test_request_has_the_given_values() -> None:
    headers = [
        ("X-Key", "a"),
        ("Content-Type", "text/plain"),
        ("x-key", "b"),
        ("Host", "shop.test"),
    ]
    request = request_of("post", "/caf%C3%A9/?q=1%202&q=3", ip="203.0.113.9", headers=headers)
    assert (request.method, request.path_info) == ("POST", "/café/")
    assert request.GET.getlist("q") == ["1 2", "3"]
    assert request.headers["X-Key"] == "a,b"
    assert (request.content_type, request.body) == ("text/plain", b"")
    assert request.META["REMOTE_ADDR"] == "203.0.113.9"
    assert request.META["HTTP_HOST"] == "shop.test"
    assert request.resolver_match is None
    assert not hasattr(request, "user")


def test_request_may_be_given_with_characters_that_a_browser_encodes() -> None:
    request = request_of("GET", "/café 日本/?q=日本 #", ip="203.0.113.9")
    assert (request.path_info, request.GET["q"]) == ("/café 日本/", "日本 #")


@pytest.mark.parametrize("url", ["/de/page/", "/fr/page/", "/page/"])
def test_request_resolves_a_path_that_begins_with_a_language(settings: Any, url: str) -> None:
    settings.LANGUAGE_CODE = "en"
    pages = [path("page/", page, name="page")]
    settings.ROOT_URLCONF = tuple(i18n_patterns(*pages, prefix_default_language=False))
    match = request_of("GET", url, ip="203.0.113.9").resolver_match
    assert match is not None
    assert match.view_name == "page"


@pytest.mark.django_db
def test_find_user_accepts_a_key_or_a_name() -> None:
    ada = User.objects.create(username="ada")
    assert find_user(str(ada.pk)) == find_user("ada") == ada
    assert find_user(None).is_authenticated is False
    with pytest.raises(ValueError, match="there is no user"):
        find_user("999999")


def test_find_user_returns_none_when_the_project_has_no_users(settings: Any) -> None:
    settings.INSTALLED_APPS = ["django_slidingwindow"]
    assert find_user(None) is None
    with pytest.raises(ValueError, match=r"django\.contrib\.auth is not installed"):
        find_user("ada")
