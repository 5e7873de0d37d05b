"""The middleware limits requests by its rules, together with the requirements of views."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from asgiref.sync import markcoroutinefunction
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse, StreamingHttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client
from django.urls import include, path
from django.views import View

from django_slidingwindow import limits, middleware
from django_slidingwindow.core.caching import BoundedCache
from django_slidingwindow.decorators import RateLimitMixin, rate_limit, rate_limit_exempt
from django_slidingwindow.guard import check as guard
from django_slidingwindow.guard.rules import rule_problems
from django_slidingwindow.middleware import RateLimitMiddleware

CLIENT = "127.0.0.1"
OURS = "django_slidingwindow.middleware.RateLimitMiddleware"
AUTH = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
PROFILES = {
    "burst": {"axis": "ip", "rate": "2/m"},
    "daily": {"axis": "ip", "rate": "100/d"},
    "user": {"axis": "user", "rate": "50/d"},
    "each": {"axis": "ip+endpoint", "rate": "2/m"},
    "closed": {"axis": "ip", "limit": 0, "window": 60},
}


def seen(request, **kwargs):
    return HttpResponse("seen")


async def async_seen(request, **kwargs):
    return HttpResponse("seen")


def failing(request):
    raise RuntimeError("failing on purpose")


class Page(RateLimitMixin, View):
    rate_limit_profiles = ("burst", "daily")

    def get(self, request):
        return HttpResponse("seen")


v1 = [path("orders/<int:pk>/", seen, name="order"), path("items/", seen, name="items")]
urlpatterns = [
    path("plain/", seen, name="plain"),
    path("async/", async_seen),
    path("other/", seen, name="other"),
    path("exempt/", rate_limit_exempt(seen)),
    path("exempt/own/", rate_limit_exempt(rate_limit("daily")(seen))),
    path("limited/", rate_limit("burst")(rate_limit("daily")(seen))),
    path("limited/async/", rate_limit("burst")(rate_limit("daily")(async_seen))),
    path("limited/class/", Page.as_view()),
    path("costly/", rate_limit("daily", cost=10)(seen)),
    path("failing/", failing),
    path("failing/limited/", rate_limit("daily")(failing)),
    path("api/", include(([path("v1/", include((v1, "v1")))], "api"))),
    path("apiary/", include((v1, "apiary"))),
]

pytestmark = [pytest.mark.urls(__name__)]


class Site:
    """A project with some rules. Its requests go through Django's sync or async handler."""

    def __init__(self, settings, way):
        self._settings = settings
        self._way = way

    def __call__(self, *rules, middleware=(OURS,), **more):
        self._settings.MIDDLEWARE = list(middleware)
        self._settings.SLIDING_WINDOW = {
            "LOG": False,
            "LATENCY_BUDGET": 10,
            "PROFILES": PROFILES,
            "RULES": list(rules),
            **more,
        }

    def get(self, url, method="get", cookies=None):
        client = (Client if self._way == "sync" else AsyncClient)(raise_request_exception=False)
        client.cookies.update(cookies or {})
        if self._way == "sync":
            return getattr(client, method)(url)

        async def ask():
            return await getattr(client, method)(url)

        return asyncio.run(ask())

    def statuses(self, *urls):
        return [self.get(url).status_code for url in urls]


@pytest.fixture(params=["sync", "async"])
def site(request, settings, redis):
    return Site(settings, request.param)


def left(profile, identifier=CLIENT):
    """Return the hits that are left; a peek counts one as taken."""
    decision = limits.peek(profile, identifier)
    return decision.remaining + decision.allowed


def rule(path="^/", profiles="burst", **more):
    return {"path": path, "profiles": profiles, **more}


# Which rules apply


def test_rule_limits_the_paths_that_match(site):
    site(rule("^/plain/$"))
    assert site.statuses("/plain/", "/plain/", "/plain/", "/other/") == [200, 200, 429, 200]


def test_all_rules_that_match_apply(site):
    site(rule(profiles=["burst"]), rule(profiles=["daily"]))
    site.get("/plain/")
    assert (left("burst"), left("daily")) == (1, 99)


def test_rule_may_name_methods_and_get_includes_head(site):
    site(rule(profiles="closed", methods=["GET"]))
    assert site.get("/plain/", "post").status_code == 200
    assert site.get("/plain/", "get").status_code == 429
    assert site.get("/plain/", "head").status_code == 429


@pytest.mark.parametrize(
    ("matching", "limited"),
    [
        ({"name": "plain"}, ["/plain/"]),
        ({"name": ["plain", "other"]}, ["/plain/", "/other/"]),
        ({"name": "api:v1:order"}, ["/api/v1/orders/5/"]),
        ({"namespace": "api"}, ["/api/v1/orders/5/", "/api/v1/items/"]),
        ({"namespace": ["api:v1"]}, ["/api/v1/orders/5/", "/api/v1/items/"]),
        ({"namespace": "api", "name": "api:v1:items"}, ["/api/v1/items/"]),
        ({"namespace": "api", "path": "orders"}, ["/api/v1/orders/5/"]),
        ({"name": "order"}, []),
    ],
)
def test_rule_may_name_views_and_namespaces(site, matching, limited):
    site({"profiles": ["closed"], **matching})
    urls = ["/plain/", "/other/", "/api/v1/orders/5/", "/api/v1/items/", "/apiary/items/"]
    refused = [url for url, status in zip(urls, site.statuses(*urls), strict=True) if status == 429]
    assert refused == limited


def test_rule_without_a_path_limits_everything(site):
    site({"profiles": ["closed"]})
    assert site.statuses("/plain/", "/api/v1/items/", "/nothing/") == [429] * 3


def test_rule_counts_by_its_axis_and_never_by_the_path(site):
    """django-smart-ratelimit's path rules key on the full path: 6 of 6 bypassed."""
    site(rule("^/api/"))
    urls = [f"/api/v1/orders/{number}/?q={number}" for number in range(6)]
    assert site.statuses(*urls) == [200, 200, 429, 429, 429, 429]


def test_endpoint_of_a_rule_is_the_route(site):
    site(rule(profiles="each"))
    assert site.statuses("/api/v1/orders/1/", "/api/v1/orders/2/", "/api/v1/orders/3/") == (
        [200, 200, 429]
    )
    assert site.statuses("/api/v1/items/") == [200]


def test_changed_settings_apply_at_once(site):
    site(rule(profiles="closed"))
    assert site.statuses("/plain/") == [429]
    site()
    assert site.statuses("/plain/") == [200]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("no dict", "must be a dict, not str"),
        ({"path": "^/"}, "needs the key profiles"),
        ({"profiles": []}, "needs the key profiles"),
        ({"profiles": [5]}, "must be a string or a list of strings"),
        ({"profiles": "burst", "methods": 5}, "must be a string"),
        ({"profiles": "burst", "name": [""]}, "must be a string"),
        ({"profiles": "burst", "methods": []}, "must be a string"),
        ({"profiles": "burst", "methods": "GET,POST"}, "'GET,POST' is not a method"),
        ({"profiles": "burst", "methods": ["GET", "POST PUT"]}, "'POST PUT' is not a method"),
        ({"profiles": "burst", "path": "("}, "not a valid regular expression"),
        ({"profiles": "burst", "path": 5}, "not a valid regular expression"),
        ({"profiles": "burst", "path": b"^/"}, "not a valid regular expression"),
        ({"profiles": "burst", "path": "a{99999999999}"}, "not a valid regular expression"),
        ({"profiles": "burst", "pth": "^/"}, "did you mean 'path'"),
    ],
)
def test_error_of_an_invalid_rule_names_its_place(settings, config, problem):
    (found,) = rule_problems(3, config)
    assert found[0].startswith("SLIDING_WINDOW['RULES'][3]")
    assert problem in found[1]
    settings.SLIDING_WINDOW = {"RULES": [config]}
    settings.MIDDLEWARE = [OURS]
    with pytest.raises(ImproperlyConfigured, match=r"\['RULES'\]\[0\]"):
        Client().get("/plain/")


def test_unknown_profile_in_a_rule_raises_an_error_with_a_hint(settings, redis):
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES, "RULES": [rule(profiles="brust")]}
    settings.MIDDLEWARE = [OURS]
    with pytest.raises(ImproperlyConfigured, match=r"'brust'.*'burst'"):
        Client().get("/plain/")


# With decorators


LIMITED = ["/limited/", "/limited/async/", "/limited/class/"]


@pytest.mark.parametrize("url", LIMITED)
def test_middleware_and_decorator_charge_a_profile_once(site, url):
    site(rule(profiles=["daily", "burst"]))
    assert site.statuses(url, url, url) == [200, 200, 429]
    assert left("daily") == 98


@pytest.mark.parametrize("url", LIMITED)
def test_rules_and_decorators_are_charged_in_one_script(site, redis, url):
    site(rule(profiles=["user"]))
    site.get("/plain/")
    site.get(url)
    redis.config_resetstat()
    site.get(url)
    stats = redis.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 1
    assert "cmdstat_eval" not in stats
    assert (left("burst"), left("daily"), left("user", f"ip:{CLIENT}")) == (0, 98, 47)


@pytest.mark.parametrize("url", LIMITED)
def test_decorators_are_charged_without_any_rule(site, url):
    site()
    assert site.statuses(url, url, url) == [200, 200, 429]


def test_rule_that_refuses_charges_nothing_to_the_decorator(site):
    site(rule(profiles="closed"))
    assert site.statuses("/costly/") == [429]
    assert left("daily") == 100


def test_decorator_that_refuses_charges_nothing_to_the_rule(site):
    site(rule(profiles="user"))
    site.statuses(*["/limited/"] * 5)
    assert left("user", f"ip:{CLIENT}") == 48


def test_higher_cost_of_rule_and_decorator_counts(site):
    site(rule(profiles="daily"))
    site.get("/costly/")
    assert left("daily") == 90


def test_exempt_view_is_not_counted_by_rules(site):
    site(rule(profiles="closed"))
    assert site.statuses("/exempt/", "/plain/") == [200, 429]


def test_own_limit_of_an_exempt_view_still_counts(site):
    site(rule(profiles="closed"))
    assert site.statuses("/exempt/own/") == [200]
    assert left("daily") == 99


# Headers


def test_headers_are_on_success_on_refusal_and_on_errors(site):
    site(rule())
    responses = [site.get(url) for url in ("/plain/", "/failing/", "/plain/")]
    assert [response.status_code for response in responses] == [200, 500, 429]
    assert [response["RateLimit-Remaining"] for response in responses] == ["1", "0", "0"]
    assert 0 < int(responses[2]["Retry-After"]) <= 60


@pytest.mark.parametrize(("middleware", "shown"), [((OURS,), True), ((), False)])
def test_headers_are_on_errors_of_a_limited_view_with_the_middleware_only(site, middleware, shown):
    site(middleware=middleware)
    response = site.get("/failing/limited/")
    assert (response.status_code, "RateLimit" in response.headers) == (500, shown)


@pytest.mark.parametrize("url", LIMITED)
def test_headers_of_middleware_and_decorator_are_not_doubled(site, url):
    site(rule(profiles="user"))
    policies = site.get(url)["RateLimit-Policy"]
    assert sorted(policy.split(";")[0] for policy in policies.split(", ")) == (
        ['"burst"', '"daily"', '"user"']
    )


def test_response_without_limits_has_no_headers(site):
    site(rule("^/api/"))
    assert "RateLimit" not in site.get("/plain/").headers


# Requests without a view


def test_unknown_path_is_counted_and_its_404_becomes_429(site):
    site(rule())
    responses = [site.get(f"/scan/{number}.php") for number in range(3)]
    assert [response.status_code for response in responses] == [404, 404, 429]
    assert [response["RateLimit-Remaining"] for response in responses] == ["1", "0", "0"]
    assert site.statuses("/plain/") == [429]


def test_unknown_path_is_counted_by_path_and_method_only(site):
    site(rule(profiles="closed", name="plain"), rule(profiles="each"), rule("^/api/", "closed"))
    assert site.statuses("/scan/") == [404]
    assert site.statuses("/api/nothing/") == [429]


def test_unknown_path_without_rules_stays_unknown(site):
    site()
    response = site.get("/scan/")
    assert response.status_code == 404
    assert "RateLimit" not in response.headers


class Gate:
    """A middleware that responds before the view runs, as CSRF protection does."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        if request.path == "/stream/":
            return StreamingHttpResponse([b"static"])
        return self.get_response(request)

    def process_view(self, request, view, args, kwargs):
        return HttpResponse("gated", status=403) if "gated" in request.GET else None


@pytest.mark.parametrize("order", [[OURS, f"{__name__}.Gate"], [f"{__name__}.Gate", OURS]])
def test_request_that_never_reaches_its_view_is_counted(site, order):
    site(rule(), middleware=order)
    assert site.statuses("/plain/?gated", "/plain/?gated", "/plain/?gated") == [403, 403, 429]


@pytest.mark.parametrize(("ours_last", "charged"), [(True, 0), (False, 2)])
def test_limit_of_a_view_counts_what_middleware_below_turns_away(site, ours_last, charged):
    gate = f"{__name__}.Gate"
    site(middleware=[gate, OURS] if ours_last else [OURS, gate])
    assert site.statuses("/limited/?gated", "/limited/?gated") == [403, 403]
    assert left("burst") == 2 - charged


def test_page_from_the_cache_of_the_site_has_the_fields_of_its_client(site, settings):
    settings.CACHES = {
        **settings.CACHES,
        "pages": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    }
    settings.CACHE_MIDDLEWARE_ALIAS = "pages"
    cached = [f"django.middleware.cache.{name}CacheMiddleware" for name in ("Update", "FetchFrom")]
    site(rule(profiles="daily"), middleware=[OURS, *cached])
    responses = [site.get("/plain/") for _ in range(3)]
    assert [response["RateLimit-Remaining"] for response in responses] == ["99", "98", "97"]


def template_response(request, decision):
    template = engines["django"].from_string("refused: {{ reason }}")
    return TemplateResponse(request, template, {"reason": decision.reason}, status=429)


@pytest.mark.parametrize("url", ["/plain/", "/scan/"])
def test_refusal_that_is_not_rendered_yet_is_rendered(site, url):
    site(rule(profiles="closed"), RESPONSE=template_response)
    response = site.get(url)
    assert (response.status_code, response.content) == (429, b"refused: limit")


def test_exempt_view_is_not_counted_when_it_is_not_reached(site):
    site(rule(profiles="closed"), middleware=[f"{__name__}.Gate", OURS])
    assert site.statuses("/exempt/?gated", "/plain/?gated") == [403, 429]


def test_stream_that_another_middleware_has_opened_is_not_counted(site):
    site(rule(profiles="closed"), middleware=[OURS, f"{__name__}.Gate"])
    assert site.statuses("/stream/") == [200]


# Anywhere in MIDDLEWARE


class SyncOnly:
    async_capable = False

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        return self.get_response(request)


class AsyncOnly:
    sync_capable = False
    async_capable = True

    def __init__(self, get_response):
        self.get_response = get_response
        markcoroutinefunction(self)

    async def __call__(self, request):
        return await self.get_response(request)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_user_is_known_at_any_position_of_the_middleware(site, position):
    middleware = list(AUTH)
    middleware.insert(position, OURS)
    site(rule(profiles="user"), middleware=middleware)
    user = User.objects.create(username="somebody")
    client = Client()
    client.force_login(user)
    assert site.get("/plain/", cookies=client.cookies).status_code == 200
    assert left("user", str(user.pk)) == 49


@pytest.mark.parametrize("other", ["SyncOnly", "AsyncOnly"])
@pytest.mark.parametrize("first", [True, False])
def test_middleware_works_beside_one_that_is_only_sync_or_only_async(site, other, first):
    path = f"{__name__}.{other}"
    site(rule(), middleware=[path, OURS] if first else [OURS, path])
    assert site.statuses("/plain/", "/limited/async/", "/scan/") == [200, 200, 429]


def test_cache_of_views_is_bounded(site, monkeypatch):
    monkeypatch.setattr(middleware, "_rules_and_view", BoundedCache(3))
    site(rule(profiles="daily"))
    for url in ("/plain/", "/limited/", "/exempt/", "/exempt/own/", "/costly/", "/plain/"):
        assert site.statuses(url) == [200]
        assert len(middleware._rules_and_view) <= 3


def test_views_that_ran_before_see_changed_rules(site):
    site(rule(profiles="daily"))
    assert site.statuses("/plain/") == [200]
    site(rule(profiles="closed"))
    assert site.statuses("/plain/") == [429]
    site()
    assert site.statuses("/plain/") == [200]


# On an event loop


@pytest.mark.parametrize("url", ["/plain/", "/async/", "/limited/async/", "/scan/"])
async def test_async_middleware_never_uses_the_sync_client(settings, redis, monkeypatch, url):
    settings.MIDDLEWARE = [OURS]
    settings.SLIDING_WINDOW = {
        "LOG": False,
        "LATENCY_BUDGET": 10,
        "PROFILES": PROFILES,
        "RULES": [rule()],
    }
    monkeypatch.setattr(guard, "check", None)
    client = AsyncClient()
    statuses = [(await client.get(url)).status_code for _ in range(3)]
    assert statuses[2] == 429


def test_middleware_is_async_when_get_response_is():
    def get_response(request):
        raise AssertionError

    async def aget_response(request):
        raise AssertionError

    assert not inspect.iscoroutinefunction(RateLimitMiddleware(get_response).process_view)
    assert inspect.iscoroutinefunction(RateLimitMiddleware(aget_response).process_view)


class Closed(RateLimitMiddleware):
    """Closes one page. Its method is sync, so an ASGI server runs it in a thread."""

    def process_view(self, request, view, args, kwargs):
        if request.path == "/other/":
            return HttpResponse("closed", status=403)
        return super().process_view(request, view, args, kwargs)


class AsyncClosed(RateLimitMiddleware):
    async def process_view(self, request, view, args, kwargs):
        if request.path == "/other/":
            return HttpResponse("closed", status=403)
        return await super().aprocess_view(request, view, args, kwargs)


class Twins(Closed):
    async def aprocess_view(self, request, view, args, kwargs):
        if request.path == "/other/":
            return HttpResponse("closed", status=403)
        return await super().aprocess_view(request, view, args, kwargs)


class Elsewhere:
    def process_view(self, request, view, args, kwargs):
        if request.path == "/other/":
            return HttpResponse("closed", status=403)
        return super().process_view(request, view, args, kwargs)


class Mixed(Elsewhere, RateLimitMiddleware):
    pass


@pytest.mark.parametrize("name", ["Closed", "AsyncClosed", "Twins", "Mixed"])
def test_process_view_of_a_subclass_runs(site, name):
    site(rule(profiles="daily"), middleware=[f"{__name__}.{name}"])
    assert site.statuses("/other/", "/plain/", "/async/", "/scan/") == [403, 200, 200, 404]
    assert left("daily") == 96


# Disabled


def test_middleware_asks_nothing_when_limits_are_disabled(site, redis):
    site(rule(profiles="closed"), rule(profiles="no such profile"), ENABLED=False)
    redis.config_resetstat()
    assert site.statuses("/plain/", "/limited/", "/limited/async/", "/scan/") == (
        [200, 200, 200, 404]
    )
    assert "cmdstat_evalsha" not in redis.info("commandstats")
    assert "RateLimit" not in site.get("/limited/").headers
