"""Views that show callers their own limits, and charge nothing."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path
from django.utils.asyncio import async_unsafe
from django.utils.functional import SimpleLazyObject

from django_slidingwindow import limits, views
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.guard import override_snapshot
from django_slidingwindow.guard.override import Override
from django_slidingwindow.guard.override_snapshot import ProfileOverrides, Snapshot
from django_slidingwindow.guard.usages import usages
from django_slidingwindow.testing import limits_in_memory
from django_slidingwindow.views import alimits_view, limits_view
from tests.support.server_commands import commands_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redis import Redis

ADDRESS = "203.0.113.9"
PROFILES: dict[str, Any] = {
    "burst": {"axis": "ip", "rates": ["3/m", "100/d"]},
    "tenant": {"axis": "tenant", "rate": "5/h"},
    "watching": {"axis": "ip", "rate": "2/m", "mode": "observe"},
    "leased": {"axis": "ip", "rate": "1000/d", "lease": 100},
    "unlimited": {"axis": "ip", "rate": lambda identifier, request: None},
    "nobody": {"axis": "header:X-Api-Key", "rate": "5/h"},
    "busy": {"axis": "ip", "inflight": 3, "hold": "2m"},
    "guarded": {"axis": "ip", "rate": "1/m", "penalty": {"after": "0/m", "steps": ["1h"]}},
}
NAMES = ["burst", "tenant", "watching"]


def tenant(request: Any) -> str:
    if "HTTP_X_TENANT" not in request.META:
        raise LookupError("no tenant")
    return str(request.META["HTTP_X_TENANT"])


def chosen(request: Any) -> str | None:
    return request.GET.get("profile")  # type: ignore[no-any-return]


@rate_limit("burst", "tenant", "watching", "leased")
def page(request: Any) -> HttpResponse:
    return HttpResponse("page")


urlpatterns = [
    path("page/", page),
    path("limits/", limits_view(NAMES)),
    path("alimits/", alimits_view(NAMES)),
]
pytestmark = [pytest.mark.urls(__name__), pytest.mark.usefixtures("redis")]


@pytest.fixture(autouse=True)
def _settings(settings: Any) -> Iterator[None]:
    settings.SLIDING_WINDOW = {
        "PROFILES": PROFILES,
        "IDENTITIES": {"tenant": tenant},
        "LATENCY_BUDGET": 60,
    }
    yield
    override_snapshot.publish(None)


def ask(view: Any, query: str = "", method: str = "GET", **headers: str) -> HttpResponse:
    given = {"X-Tenant": "acme", **headers}
    request = RequestFactory().generic(
        method, f"/limits/{query}", REMOTE_ADDR=ADDRESS, headers=given
    )
    response: HttpResponse = (
        async_to_sync(view)(request) if iscoroutinefunction(view) else view(request)
    )
    return response


@pytest.fixture(params=[limits_view, alimits_view])
def made(request: Any) -> Callable[..., Any]:
    """Return a function that makes a view of profiles, calls it, and returns its JSON."""

    def call(profiles: Any, *arguments: Any, **options: Any) -> Any:
        return json.loads(ask(request.param(profiles), *arguments, **options).content)

    return call


def use(times: int, address: str = ADDRESS) -> None:
    client = Client(REMOTE_ADDR=address, headers={"X-Tenant": "acme"})
    for _ in range(times):
        client.get("/page/")


def test_limit_on_requests_in_flight_has_no_window(made: Any) -> None:
    with limits.hold("busy", ADDRESS):
        (limit,) = made("busy")["limits"]
        assert (limit["limit"], limit["remaining"]) == (3, 2)
        assert (limit["inflight"], limit["window"]) == (True, None)
        assert "<td>3 in flight</td>" in ask(limits_view("busy"), "?format=html").content.decode()


def test_shows_what_is_left_of_each_window(made: Any) -> None:
    use(2)
    found = made(NAMES)
    resets = [limit.pop("reset_after") for limit in found["limits"]]
    assert found == {
        "allowed": True,
        "retry_after": 0,
        "source": "redis",
        "limits": [
            {
                "name": "burst:60s",
                "profile": "burst",
                "limit": 3,
                "window": 60.0,
                "inflight": False,
                "remaining": 1,
                "retry_after": 0,
            },
            {
                "name": "burst:86400s",
                "profile": "burst",
                "limit": 100,
                "window": 86400.0,
                "inflight": False,
                "remaining": 98,
                "retry_after": 0,
            },
            {
                "name": "tenant",
                "profile": "tenant",
                "limit": 5,
                "window": 3600.0,
                "inflight": False,
                "remaining": 3,
                "retry_after": 0,
            },
        ],
    }
    assert 0 < resets[0] <= 60
    assert 60 < resets[2] <= 3600


def test_unused_windows_have_nothing_to_reset(made: Any) -> None:
    limits_of = made(["burst", "tenant"])["limits"]
    assert [limit["remaining"] for limit in limits_of] == [3, 100, 5]
    assert [limit["reset_after"] for limit in limits_of] == [0, 0, 0]


def test_full_window_has_a_wait_and_hides_no_other(made: Any) -> None:
    use(5)
    found = made(NAMES)
    assert found["allowed"] is False
    assert 0 < found["retry_after"] <= 60
    burst, daily, tenant = found["limits"]
    assert (burst["remaining"], burst["retry_after"]) == (0, found["retry_after"])
    assert (daily["remaining"], daily["retry_after"]) == (97, 0)
    assert (tenant["remaining"], tenant["retry_after"]) == (2, 0)


def test_names_are_those_of_the_header_fields(made: Any) -> None:
    response = Client(REMOTE_ADDR=ADDRESS, headers={"X-Tenant": "acme"}).get("/page/")
    names = re.findall(r'"([^"]+)";q=', response["RateLimit-Policy"])
    found = [limit["name"] for limit in made([*NAMES, "leased"])["limits"]]
    assert sorted(found) == sorted(names)


def test_nothing_is_charged_and_redis_is_asked_once(redis: Redis) -> None:
    view = limits_view([*NAMES, "leased"])
    ask(view)
    before = redis.dbsize()
    assert commands_of(redis, lambda: ask(view)) == ["EVALSHA"]
    assert redis.dbsize() == before == 0


def test_remaining_includes_hits_that_this_process_has_leased(made: Any) -> None:
    use(2)
    for _ in range(20):
        limits.check("leased", ADDRESS)
    [limit] = made("leased")["limits"]
    peeked = limits.peek("leased", ADDRESS, cost=0)
    assert limit["remaining"] == peeked.remaining
    assert limit["retry_after"] == 0


def test_penalty_is_not_a_limit_of_its_own(made: Any) -> None:
    (limit,) = made("guarded")["limits"]
    assert (limit["name"], limit["limit"], limit["remaining"]) == ("guarded", 1, 1)
    for _ in range(2):
        limits.check("guarded", ADDRESS)
    (limit,) = made("guarded")["limits"]
    assert (limit["remaining"], limit["retry_after"]) == (0, 3600)


def test_callers_see_only_their_own_limits(made: Any) -> None:
    use(2)
    mine = made(["burst"], **{"X-Forwarded-For": "198.51.100.7"})
    assert mine["limits"][0]["remaining"] == 1
    other = made(["tenant"], "?tenant=acme&identifier=acme", **{"X-Tenant": "globex"})
    assert other["limits"][0]["remaining"] == 5
    text = json.dumps([mine, other])
    assert ADDRESS not in text
    assert "acme" not in text
    assert "throttle:" not in text


def test_response_is_not_cached_and_other_methods_are_refused() -> None:
    for view in (limits_view(NAMES), alimits_view(NAMES)):
        response = ask(view)
        assert response["Cache-Control"] == "no-store"
        assert response["Vary"] == "Accept"
        assert response["Content-Type"] == "application/json"
        assert ask(view, method="HEAD").status_code == 200
        refused = ask(view, method="POST")
        assert (refused.status_code, refused["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("query", "accept", "expected"),
    [
        ("", "application/json", "application/json"),
        ("", "*/*", "application/json"),
        ("", "text/html,application/xhtml+xml;q=0.9", "text/html; charset=utf-8"),
        ("?format=html", "application/json", "text/html; charset=utf-8"),
        ("?format=json", "text/html", "application/json"),
        ("?format=xml", "text/html", "text/html; charset=utf-8"),
    ],
)
def test_response_has_the_format_that_the_client_prefers(
    query: str, accept: str, expected: str
) -> None:
    assert ask(limits_view(NAMES), query, Accept=accept)["Content-Type"] == expected


def test_fragment_has_no_style_or_script() -> None:
    use(1)
    html = ask(limits_view(NAMES), "?format=html").content.decode()
    assert html.startswith('<div class="slidingwindow-limits">')
    assert '<meter min="0" max="3" value="1">1</meter>' in html
    assert "<td>3 / 1 min</td>" in html
    assert not re.search(r"<(style|script)|\sstyle=|\son\w+=|javascript:", html)
    assert "slidingwindow-refused" not in html
    use(3)
    html = ask(limits_view(NAMES), "?format=html").content.decode()
    assert re.search(r'<p class="slidingwindow-refused">Please try again in \d+ seconds?\.', html)
    assert html.count("slidingwindow-full") == 1


def test_fragment_may_use_a_template_of_the_project(settings: Any, tmp_path: Any) -> None:
    (tmp_path / "own.html").write_text("{{ request.path }} {{ limits.0.remaining }}")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [str(tmp_path)]}]
    view = limits_view("burst", template_name="own.html")
    assert ask(view, "?format=html").content == b"/limits/ 3"


async def test_template_of_the_project_may_block(settings: Any, tmp_path: Any) -> None:
    @async_unsafe
    def load() -> User:
        return User(username="ada")

    (tmp_path / "own.html").write_text("{{ request.user.username }}")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [str(tmp_path)]}]
    request = RequestFactory().get("/limits/?format=html", REMOTE_ADDR=ADDRESS)
    request.user = SimpleLazyObject(load)  # type: ignore[assignment]
    response = await alimits_view("burst", template_name="own.html")(request)
    assert response.content == b"ada"


def test_limits_that_do_not_apply_are_left_out(made: Any, settings: Any) -> None:
    assert made(["unlimited", "nobody"]) == {
        "allowed": True,
        "retry_after": 0,
        "source": "redis",
        "limits": [],
    }
    html = ask(limits_view("nobody"), "?format=html").content.decode()
    assert "No limits apply to you." in html
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "EXEMPT": [ADDRESS]}
    assert made(NAMES)["limits"] == []
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES, "ENABLED": False}
    assert made(["burst"])["limits"] == []


def test_function_may_choose_the_profile(made: Any) -> None:
    assert made(chosen)["limits"] == []
    assert made(["burst", chosen], "?profile=leased")["limits"][-1]["name"] == "leased"


def test_profile_that_a_function_chooses_as_well_is_shown_once(made: Any) -> None:
    use(1)
    assert made(["burst", lambda request: ["busy", "burst"]]) == made(["burst", "busy"])


def test_failing_identity_refuses_and_hides_no_other(made: Any, caplog: Any) -> None:
    request = RequestFactory().get("/", REMOTE_ADDR=ADDRESS)
    found = json.loads(limits_view(["tenant", "burst"])(request).content)
    assert [limit["profile"] for limit in found["limits"]] == ["burst", "burst"]
    assert (found["allowed"], found["retry_after"]) == (False, None)
    assert "could not resolve the identity" in caplog.text


def put(profile: str, override: Override) -> None:
    snapshot = Snapshot()
    snapshot[profile] = ProfileOverrides()
    snapshot[profile].everybody = (override,)
    override_snapshot.publish(snapshot)


def test_overrides_are_shown(made: Any) -> None:
    use(2)
    put("tenant", Override("limit", ((50, None),)))
    assert made(NAMES)["limits"][-1]["remaining"] == 48
    put("tenant", Override("exempt"))
    assert [limit["profile"] for limit in made(NAMES)["limits"]] == ["burst", "burst"]
    put("tenant", Override("block", until=override_snapshot.clock() + 60))
    found = made(NAMES)
    blocked = found["limits"][-1]
    assert (blocked["name"], blocked["limit"], blocked["window"]) == ("tenant", 0, None)
    assert 0 < blocked["retry_after"] == found["retry_after"] <= 60
    assert len(found["limits"]) == 3
    put("tenant", Override("block"))
    found = made(NAMES)
    assert (found["allowed"], found["retry_after"]) == (False, None)
    html = ask(limits_view(NAMES), "?format=html").content.decode()
    assert "trying again will not help" in html


def test_advice_is_about_the_longest_wait(made: Any) -> None:
    put("tenant", Override("block", until=override_snapshot.clock() + 20))
    limits.check("burst", ADDRESS, cost=3)
    assert 55 <= made(NAMES)["retry_after"] <= 60
    html = ask(limits_view(NAMES), "?format=html").content.decode()
    assert re.search(r"Please try again in (5[5-9]|60) seconds", html)


@pytest.mark.parametrize(
    ("fallback", "allowed", "remaining"),
    [("local", True, [3, 100]), ("allow", True, [None, None]), ("deny", False, [None, None])],
)
def test_limits_are_shown_when_redis_is_away(
    made: Any, settings: Any, fallback: str, allowed: bool, remaining: list[Any]
) -> None:
    away = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    settings.CACHES = {**settings.CACHES, "away": away}
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES, "CACHE": "away", "FALLBACK": fallback}
    found = made("burst")
    assert (found["source"], found["allowed"]) == (fallback, allowed)
    assert [limit["remaining"] for limit in found["limits"]] == remaining
    assert [limit["limit"] for limit in found["limits"]] == [3, 100]
    assert [limit["retry_after"] == 0 for limit in found["limits"]] == [allowed] * 2
    assert ask(limits_view("burst"), "?format=html").status_code == 200


def test_both_views_return_the_same() -> None:
    with limits_in_memory():
        client = Client(REMOTE_ADDR=ADDRESS, headers={"X-Tenant": "acme"})
        assert client.get("/limits/").json() == client.get("/alimits/").json()


async def test_both_views_return_the_same_on_an_event_loop() -> None:
    with limits_in_memory():
        client, headers = AsyncClient(), {"X-Tenant": "acme"}
        found = [
            (await client.get(f"/{name}/", headers=headers)).json()
            for name in ("limits", "alimits")
        ]
        assert found[0] == found[1]
        assert len(found[0]["limits"]) == 3


@pytest.mark.parametrize("wrong", [[], (), [5], ["burst", None]])
def test_limits_view_raises_when_profiles_are_missing_or_wrong(wrong: Any) -> None:
    with pytest.raises(TypeError, match="needs names of profiles"):
        limits_view(wrong)
    with pytest.raises(TypeError, match="needs names of profiles"):
        alimits_view(wrong)


def test_limits_view_is_a_usage_of_its_profiles() -> None:
    limits_view("burst")
    place = f"{__name__}:"
    assert [one for one in usages() if one.view.startswith(place) and one.profiles == ("burst",)]


def test_limits_view_raises_when_the_app_is_not_installed(settings: Any) -> None:
    settings.INSTALLED_APPS = [
        app for app in settings.INSTALLED_APPS if app != "django_slidingwindow"
    ]
    with pytest.raises(ImproperlyConfigured, match="not in INSTALLED_APPS"):
        views.limits_view("burst")
