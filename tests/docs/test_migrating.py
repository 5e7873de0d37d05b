"""Each limit in docs/migrating.md admits the same requests before and after the migration."""

# ruff: noqa: RUF012 -- lists on the class are DRF's own way

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import path, resolve
from django_ratelimit import core as ratelimit_core
from django_ratelimit.decorators import ratelimit
from django_smart_ratelimit import rate_limit as smart_rate_limit
from django_smart_ratelimit.backends import clear_backend_cache
from rest_framework.response import Response
from rest_framework.throttling import (
    AnonRateThrottle,
    ScopedRateThrottle,
    SimpleRateThrottle,
    UserRateThrottle,
)
from rest_framework.views import APIView

from django_slidingwindow.contrib.drf import ProfileThrottle
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.rates import parse_rate
from tests.support.docs_pages import pages, project, table

GUIDE = "docs/migrating.md"
OURS = "django_slidingwindow.middleware.RateLimitMiddleware"
THEIRS = "django_smart_ratelimit.middleware.RateLimitMiddleware"
ADDRESSES = [f"203.0.113.{number}" for number in range(1, 4)]


def ok(request, *args, **kwargs):
    return HttpResponse()


urlpatterns = [path("first/", ok, name="first"), path("second/", ok, name="second")]
urlpatterns += [path("api/<int:number>/", ok, name="api")]
pytestmark = pytest.mark.urls(__name__)


@pytest.fixture(autouse=True)
def clocks(monkeypatch, settings, redis):
    """Stop the clock of django-ratelimit, so that no fixed window ends during a test."""
    monkeypatch.setattr(ratelimit_core, "time", SimpleNamespace(time=lambda: 1_700_000_000.0))
    settings.RATELIMIT_BACKEND = "memory"
    clear_backend_cache()
    yield
    clear_backend_cache()


@pytest.fixture
def ours(settings):
    """A function that sets the profiles and other settings of the app."""

    def configure(more=(), **profiles):
        settings.SLIDING_WINDOW = {
            "LOG": False,
            "LATENCY_BUDGET": 30,
            "PROFILES": profiles,
            **dict(more),
        }

    return configure


def admitted(view: Callable[..., HttpResponse], script) -> list[bool]:
    """Return whether each of the 30 requests of a script passes."""
    found = []
    script = list(script)
    assert len(script) == 30
    for sent in script:
        make = getattr(RequestFactory(), sent.get("method", "get"))
        url = sent.get("path", "/first/")
        request = make(
            url, REMOTE_ADDR=sent.get("address", ADDRESSES[0]), headers=sent.get("headers", {})
        )
        request.resolver_match = resolve(url)
        pk = sent.get("user")
        request._dont_enforce_csrf_checks = True
        request.user = AnonymousUser() if pk is None else User(pk=pk, username=str(pk))
        try:
            status = view(request).status_code
        except PermissionDenied:
            status = 403
        assert status in (200, 403, 429)
        found.append(status == 200)
    return found


def assert_same(before, after, script) -> None:
    """Assert that both views admit the same requests of a script, but not all of them."""
    expected = admitted(before, script)
    assert set(expected) == {True, False}
    assert admitted(after, script) == expected


def sending(**values):
    """Yield 30 requests that cycle through the values of each name, at different speeds."""
    for number in range(30):
        yield {
            name: options[number // (place + 1) % len(options)]
            for place, (name, options) in enumerate(values.items())
        }


EVERYBODY = list(sending(address=ADDRESSES, user=[None, 1, 2]))
TESTED_ROWS: dict[str, set[str]] = {}


def row(heading: str, cell: str):
    """Mark a test as the test of a row of the guide, which its first cell identifies."""
    TESTED_ROWS.setdefault(heading, set()).add(cell)
    return lambda test: test


# django-ratelimit

RATELIMIT = "From django-ratelimit"


@row(RATELIMIT, '`key="ip"`')
def test_ratelimit_by_address_admits_the_same(ours, settings):
    ours(p={"axis": "ip", "rate": "5/m"})
    before, after = ratelimit(key="ip", rate="5/m")(ok), rate_limit("p")(ok)
    assert_same(before, after, EVERYBODY)
    assert admitted(after, EVERYBODY) == [False] * 30

    def client(request):
        return request.headers["X-Forwarded-For"].split(",")[-1].strip()

    settings.RATELIMIT_IP_META_KEY = client
    settings.SLIDING_WINDOW |= {"TRUSTED_PROXIES": ["10.0.0.1"]}
    forwarded = [{"X-Forwarded-For": f"9.9.9.9, 198.51.100.{number}"} for number in range(4)]
    script = list(sending(headers=forwarded, address=["10.0.0.1"]))
    assert_same(before, after, script)


@row(RATELIMIT, '`key="user_or_ip"`')
def test_ratelimit_by_user_or_address_admits_the_same(ours):
    ours(p={"axis": "user_or_ip", "rate": "5/m"})
    before, after = ratelimit(key="user_or_ip", rate="5/m")(ok), rate_limit("p")(ok)
    assert_same(before, after, EVERYBODY)


@row(RATELIMIT, '`key="user"`')
def test_ratelimit_by_user_admits_the_same_users(ours):
    ours(p={"axis": "user", "rate": "3/m"})
    before, after = ratelimit(key="user", rate="3/m")(ok), rate_limit("p")(ok)
    users = list(sending(user=[1, 2, 3, 4], address=ADDRESSES))
    assert_same(before, after, users)
    strangers = list(sending(address=ADDRESSES))
    assert sum(admitted(before, strangers)) == 3
    assert sum(admitted(after, strangers)) == 9


KEYS = [{}, {"X-API-Key": ""}, {"X-API-Key": "one"}, {"X-API-Key": "two"}]


@row(RATELIMIT, '`key="header:x-api-key"`')
@pytest.mark.parametrize(
    "script",
    [sending(address=ADDRESSES), sending(headers=KEYS), sending(headers=KEYS[2:])],
    ids=["without", "some", "with"],
)
def test_ratelimit_by_header_admits_the_same(tmp_path, script):
    script = list(script)
    with project(GUIDE, tmp_path) as modules:
        before, after = (modules[f"{when}/header_views.py"].prices for when in ("before", "after"))
        assert_same(before, after, script)


@row(RATELIMIT, "`key=function`")
def test_ratelimit_by_function_admits_the_same(ours):
    def device(request):
        return request.headers.get("X-Device", "none")

    ours({"IDENTITIES": {"device": device}}, p={"axis": "device", "rate": "5/m"})
    before = ratelimit(key=lambda group, request: device(request), rate="5/m")(ok)
    script = list(sending(headers=[{"X-Device": "a"}, {"X-Device": "b"}, {}]))
    assert_same(before, rate_limit("p")(ok), script)


@row(RATELIMIT, "`rate=function`")
def test_ratelimit_with_a_rate_by_function_admits_the_same(ours):
    def rate(request):
        return {None: "2/m", 1: "4/m", 2: None}[request.user.pk]

    ours(p={"axis": "user_or_ip", "rate": lambda identifier, request: rate(request)})
    before = ratelimit(key="user_or_ip", rate=lambda group, request: rate(request))(ok)
    assert_same(before, rate_limit("p")(ok), EVERYBODY)


@row(RATELIMIT, '`method="POST"`')
def test_ratelimit_of_a_method_admits_the_same(ours):
    ours(p={"axis": "ip", "rate": "5/m"})
    before = ratelimit(key="ip", rate="5/m", method="POST")(ok)
    script = list(sending(method=["get", "post", "put"]))
    assert_same(before, rate_limit("p", methods="POST")(ok), script)


def by_path(first, second):
    """Return a view that calls one of two views, by the path."""
    return lambda request: (first if request.path == "/first/" else second)(request)


@row(RATELIMIT, '`group="shared"`')
def test_ratelimit_of_a_group_admits_the_same(ours, redis):
    def view(request):
        return HttpResponse()

    group = ratelimit(key="ip", rate="7/m", group="shared")
    shared = {"axis": "ip", "rate": "7/m", "scope": "shared"}
    ours(p={"axis": "ip", "rate": "7/m"}, q=shared, r=shared)
    script = list(sending(path=["/first/", "/second/"], address=ADDRESSES))
    before = by_path(group(ok), group(view))
    assert_same(before, by_path(rate_limit("p")(ok), rate_limit("p")(view)), script)
    redis.flushdb()
    assert_same(before, by_path(rate_limit("q")(ok), rate_limit("r")(view)), script)


@row(RATELIMIT, "no group: each view counts apart")
def test_ratelimit_without_a_group_admits_the_same(ours):
    def view(request):
        return HttpResponse()

    before = ratelimit(key="ip", rate="4/m")
    after = rate_limit("p")
    ours(p={"axis": "ip+endpoint", "rate": "4/m"})
    script = list(sending(path=["/first/", "/second/"], address=ADDRESSES))
    assert_same(by_path(before(ok), before(view)), by_path(after(ok), after(view)), script)


@row(RATELIMIT, "`block=False` and `request.limited`")
def test_ratelimit_without_blocking_reports_the_same(ours):
    def limited(request):
        return HttpResponse(status=429 if request.limited else 200)

    def observed(request):
        return HttpResponse(status=429 if request.rate_limit.reason == "observe" else 200)

    ours(p={"axis": "ip", "rate": "5/m", "mode": "observe"})
    before, after = ratelimit(key="ip", rate="5/m", block=False)(limited), rate_limit("p")(observed)
    assert_same(before, after, EVERYBODY)


@row(RATELIMIT, "`Ratelimited`, 403")
def test_ratelimit_refuses_with_403_and_we_with_429(rf, ours):
    ours(p={"axis": "ip", "rate": "0/m"})
    with pytest.raises(PermissionDenied):
        ratelimit(key="ip", rate="0/m")(ok)(rf.get("/"))
    assert rate_limit("p")(ok)(rf.get("/")).status_code == 429


@row(RATELIMIT, "`RATELIMIT_ENABLE = False`")
def test_ratelimit_that_is_off_admits_the_same(ours, settings):
    ours({"ENABLED": False}, p={"axis": "ip", "rate": "5/m"})
    settings.RATELIMIT_ENABLE = False
    before, after = ratelimit(key="ip", rate="5/m")(ok), rate_limit("p")(ok)
    assert admitted(before, EVERYBODY) == admitted(after, EVERYBODY) == [True] * 30


@row(RATELIMIT, "`RATELIMIT_USE_CACHE`")
def test_ratelimit_in_another_cache_admits_the_same(ours, settings, redis):
    settings.CACHES = {**settings.CACHES, "limits": settings.CACHES["default"]}
    settings.RATELIMIT_USE_CACHE = "limits"
    ours({"CACHE": "limits"}, p={"axis": "ip", "rate": "5/m"})
    before, after = ratelimit(key="ip", rate="5/m")(ok), rate_limit("p")(ok)
    assert_same(before, after, EVERYBODY)


def test_ratelimit_snippets_admit_the_same(tmp_path):
    script = list(sending(method=["post", "get"], address=ADDRESSES[:2]))
    with project(GUIDE, tmp_path) as modules:
        before = modules["before/ratelimit_views.py"].login
        after = modules["after/views.py"].login
        assert_same(before, after, script)


# DRF

DRF = "From DRF's throttling"


class Answering(APIView):
    authentication_classes = []

    def perform_authentication(self, request):
        # Keep the user that `admitted` has set.
        request.user = request._request.user

    def get(self, request):
        return Response()


def throttled(*classes, **attributes):
    names = {"throttle_classes": classes, **attributes}
    return type("Throttled", (Answering,), names).as_view()


class Anon(AnonRateThrottle):
    rate = "4/min"


class PerUser(UserRateThrottle):
    rate = "4/min"


def anonymous_alone(request):
    return None if request.user.is_authenticated else "p"


@row(DRF, "`AnonRateThrottle`")
def test_drf_throttle_of_strangers_admits_the_same(ours):
    ours(p={"axis": "ip", "rate": "4/min"})
    before, after = throttled(Anon), throttled(ProfileThrottle(anonymous_alone))
    assert_same(before, after, EVERYBODY)
    users = list(sending(user=[1]))
    assert admitted(before, users) == admitted(after, users) == [True] * 30


@pytest.mark.parametrize(
    "script", [sending(user=[1]), sending(user=[None]), sending(user=[1, None])]
)
def test_drf_pair_of_throttles_admits_the_same(monkeypatch, tmp_path, script):
    script = list(script)
    with project(GUIDE, tmp_path) as modules:
        before, after = modules["before/pair_views.py"].Orders, modules["after/pair_api.py"].Orders
        found = []
        for view in (before, after):
            perform = Answering.perform_authentication
            monkeypatch.setattr(view, "perform_authentication", perform)
            found.append(admitted(view.as_view(), script))
    assert found[0] == found[1]
    assert not all(found[0])


@row(DRF, "`UserRateThrottle`")
def test_drf_throttle_of_users_admits_the_same(ours):
    ours(p={"axis": "user_or_ip", "rate": "4/min"})
    before, after = throttled(PerUser), throttled(ProfileThrottle("p"))
    assert_same(before, after, EVERYBODY)


@row(DRF, '`ScopedRateThrottle`, `throttle_scope = "uploads"`')
def test_drf_throttle_of_a_scope_admits_the_same(monkeypatch, ours):
    """Both views of a scope share its count."""
    monkeypatch.setattr(SimpleRateThrottle, "THROTTLE_RATES", {"uploads": "4/min"})
    ours(uploads={"axis": "user_or_ip", "rate": "4/min"})
    before = [throttled(ScopedRateThrottle, throttle_scope="uploads") for _ in range(2)]
    after = [throttled(ProfileThrottle("uploads")) for _ in range(2)]
    values = {"path": ["/first/", "/second/"], "user": [None, 1, 2], "address": ADDRESSES}
    script = list(sending(**values))
    assert_same(by_path(*before), by_path(*after), script)


@row(DRF, "`DEFAULT_THROTTLE_RATES`")
@pytest.mark.parametrize("rate", ["4/s", "4/sec", "4/m", "4/min", "4/h", "4/hour", "4/d", "4/day"])
def test_drf_rates_mean_the_same(monkeypatch, rate):
    monkeypatch.setattr(SimpleRateThrottle, "THROTTLE_RATES", {"user": rate})
    throttle = UserRateThrottle()
    assert (throttle.num_requests, throttle.duration) == parse_rate(rate)


@row(DRF, "`NUM_PROXIES`")
def test_drf_behind_a_proxy_admits_the_same(ours, settings):
    settings.REST_FRAMEWORK = {"NUM_PROXIES": 1}
    ours({"TRUSTED_PROXIES": ["10.0.0.1"]}, p={"axis": "ip", "rate": "4/min"})
    forwarded = [{"X-Forwarded-For": f"9.9.9.{n}, 198.51.100.{n % 3}"} for n in range(30)]
    script = list(sending(headers=forwarded, address=["10.0.0.1"]))
    before, after = throttled(Anon), throttled(ProfileThrottle("p"))
    assert_same(before, after, script)
    assert sum(admitted(after, script)) == 0


@row(DRF, '`"10/month"` (that is 10 a minute: DRF reads one letter)')
def test_drf_reads_a_month_as_a_minute_and_we_refuse_it(monkeypatch):
    monkeypatch.setattr(SimpleRateThrottle, "THROTTLE_RATES", {"user": "10/month"})
    assert UserRateThrottle().duration == 60
    with pytest.raises(ValueError, match="month"):
        parse_rate("10/month")
    assert parse_rate("10/30d") == (10, 30 * 86_400)


def test_drf_snippets_admit_the_same(tmp_path):
    with project(GUIDE, tmp_path) as modules:
        before = modules["before/throttled_views.py"].Orders.as_view()
        after = modules["after/api.py"].Orders.as_view()
        script = list(sending(address=ADDRESSES))
        assert_same(before, after, script)


# django-smart-ratelimit

SMART = "From django-smart-ratelimit"


@row(SMART, '`key="ip"`')
def test_smart_by_address_admits_the_same(ours):
    ours(p={"axis": "ip", "rate": "5/m"})
    before, after = smart_rate_limit(key="ip", rate="5/m")(ok), rate_limit("p")(ok)
    assert_same(before, after, EVERYBODY)
    spoofed = list(sending(headers=[{"X-Forwarded-For": f"9.9.9.{n}"} for n in range(30)]))
    assert (sum(admitted(before, spoofed)), sum(admitted(after, spoofed))) == (30, 0)


@row(SMART, "all views with one key share a count")
def test_smart_views_with_one_key_admit_the_same(ours):
    ours(p={"axis": "ip", "rate": "5/m"})
    before, after = smart_rate_limit(key="ip", rate="5/m"), rate_limit("p")
    script = list(sending(path=["/first/", "/second/"], address=ADDRESSES))
    views = [by_path(limit(ok), limit(lambda request: ok(request))) for limit in (before, after)]
    assert_same(*views, script)


@row(SMART, '`key="user"`')
def test_smart_by_user_admits_the_same(ours):
    ours(p={"axis": "user_or_ip", "rate": "5/m"})
    before, after = smart_rate_limit(key="user", rate="5/m")(ok), rate_limit("p")(ok)
    assert_same(before, after, EVERYBODY)


@row(SMART, '`key="header:x-api-key"`')
def test_smart_by_header_admits_the_same(tmp_path):
    before = smart_rate_limit(key="header:x-api-key", rate="5/m")(ok)
    script = list(sending(headers=KEYS, address=ADDRESSES))
    with project(GUIDE, tmp_path) as modules:
        after = modules["after/header_views.py"].prices
        assert_same(before, after, script)


@row(SMART, "`rate=...`")
@pytest.mark.parametrize("rate", ["3/s", "3/m", "3/h", "3/d"])
def test_smart_rates_admit_the_same(ours, rate):
    from django_smart_ratelimit.backends.utils import parse_rate as smart_parse_rate

    assert smart_parse_rate(rate) == parse_rate(rate)


@row(SMART, '`algorithm="sliding_window"`')
@pytest.mark.parametrize("algorithm", ["compact", "log"])
def test_smart_sliding_window_admits_the_same(ours, algorithm):
    ours(p={"axis": "ip", "rate": "5/m", "algorithm": algorithm})
    before = smart_rate_limit(key="ip", rate="5/m", algorithm="sliding_window")(ok)
    assert_same(before, rate_limit("p")(ok), EVERYBODY)


@row(SMART, '`algorithm="fixed_window"`, `"token_bucket"`')
@pytest.mark.parametrize("algorithm", ["fixed_window", "token_bucket"])
def test_smart_algorithm_that_we_lack_is_an_error(ours, rf, algorithm):
    from django.core.exceptions import ImproperlyConfigured

    ours(p={"axis": "ip", "rate": "5/m", "algorithm": algorithm})
    with pytest.raises(ImproperlyConfigured, match="algorithm"):
        rate_limit("p")(ok)(rf.get("/"))


@row(SMART, "`cost=10`")
def test_smart_cost_admits_the_same(ours):
    ours(p={"axis": "ip", "rate": "25/m"})
    before, after = smart_rate_limit(key="ip", rate="25/m", cost=10)(ok), rate_limit("p", cost=10)
    assert_same(before, after(ok), EVERYBODY)


@row(SMART, "`skip_if=function`")
def test_smart_exemption_admits_the_same(ours):
    def skip(request):
        return request.user.pk == 1

    before = smart_rate_limit(key="ip", rate="3/m", skip_if=skip)(ok)
    ours({"EXEMPT": [skip]}, p={"axis": "ip", "rate": "3/m"}, q={"axis": "ip", "rate": "3/m"})
    expected = admitted(before, EVERYBODY)
    assert expected == admitted(rate_limit("p")(ok), EVERYBODY)
    ours(p={"axis": "ip", "rate": "3/m"}, q={"axis": "ip", "rate": "3/m"})
    chosen = rate_limit(profile=lambda request: None if skip(request) else "q")
    assert expected == admitted(chosen(ok), EVERYBODY)


@row(SMART, "`block=False`, `shadow=True`")
@pytest.mark.parametrize("option", [{"block": False}, {"shadow": True}])
def test_smart_limit_that_observes_admits_the_same(ours, option):
    ours(p={"axis": "ip", "rate": "3/m", "mode": "observe"})
    before, after = smart_rate_limit(key="ip", rate="3/m", **option)(ok), rate_limit("p")(ok)
    assert admitted(before, EVERYBODY) == admitted(after, EVERYBODY) == [True] * 30


@row(SMART, "path limits of `RATELIMIT_MIDDLEWARE`")
def test_smart_path_limits_admit_the_same_on_one_path_and_more_on_many(ours, settings):
    settings.RATELIMIT_MIDDLEWARE = {"DEFAULT_RATE": "1000/m", "RATE_LIMITS": {"/api/": "5/m"}}
    ours({"RULES": [{"path": "^/api/", "profiles": "p"}]}, p={"axis": "ip", "rate": "5/m"})

    def statuses(middleware, urls):
        settings.MIDDLEWARE = [middleware]
        clear_backend_cache()
        client = Client()
        return [client.get(url).status_code for url in urls]

    for urls, theirs in [(["/api/1/"] * 30, 5), ([f"/api/{n}/" for n in range(2, 32)], 30)]:
        assert statuses(THEIRS, urls).count(200) == theirs
    assert statuses(OURS, ["/api/1/"] * 15 + [f"/api/{n}/" for n in range(15)]).count(200) == 5


def test_smart_snippets_admit_the_same(tmp_path):
    with project(GUIDE, tmp_path) as modules:
        before, after = (modules[f"{when}/smart_views.py"].prices for when in ("before", "after"))
        script = list(sending(address=ADDRESSES))
        assert_same(before, after, script)


def test_every_row_of_the_guide_has_a_test():
    headings = re.findall(r"^## (.+)$", pages()[GUIDE], re.MULTILINE)
    assert headings == list(TESTED_ROWS)
    for heading in headings:
        assert {cells[0] for cells in table(GUIDE, heading)} == TESTED_ROWS[heading]
