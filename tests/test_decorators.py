"""Limits on views: functions and classes, sync and async, one profile or several."""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
import threading
import weakref

import pytest
from asgiref.sync import iscoroutinefunction
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import ImproperlyConfigured
from django.http import Http404, HttpResponse
from django.test import RequestFactory
from django.utils.decorators import method_decorator
from django.views import View

from django_slidingwindow import limits
from django_slidingwindow.decorators import RateLimitMixin, rate_limit, rate_limit_exempt
from django_slidingwindow.guard import check as guard
from django_slidingwindow.guard.check import Requirement
from django_slidingwindow.guard.requirements import (
    all_requirements,
    is_exempt,
    requirements_of,
)
from django_slidingwindow.guard.usages import usages

CLIENT = "203.0.113.9"
SETTINGS = {
    "LOG": False,
    "LATENCY_BUDGET": 10,
    "PROFILES": {
        "burst": {"axis": "ip", "rate": "2/m"},
        "daily": {"axis": "ip", "rate": "100/d"},
        "closed": {"axis": "ip", "limit": 0, "window": 60},
        "watched": {"axis": "ip", "limit": 0, "window": 60, "mode": "observe"},
    },
}


@pytest.fixture(autouse=True)
def project(settings, redis):
    settings.SLIDING_WINDOW = SETTINGS
    return settings


def get(method="get", **extra):
    return getattr(RequestFactory(), method)("/", REMOTE_ADDR=CLIENT, **extra)


def left(profile):
    """Return the hits that are left; a peek counts one as taken."""
    decision = limits.peek(profile, CLIENT)
    return decision.remaining + decision.allowed


def sync_view(answer=None, calls=None):
    def view(request, *args, **kwargs):
        """What the view does."""
        if calls is not None:
            calls.append((request, args, kwargs))
        return answer(request) if answer else HttpResponse("seen")

    return view


def async_view(answer=None, calls=None):
    async def view(request, *args, **kwargs):
        """What the view does."""
        await asyncio.sleep(0)
        if calls is not None:
            calls.append((request, args, kwargs))
        return answer(request) if answer else HttpResponse("seen")

    return view


@pytest.fixture(params=[sync_view, async_view], ids=["sync", "async"])
def make(request):
    """Return a function that makes a view, sync or async."""
    return request.param


def call(view, request=None, *args, **kwargs):
    """Return the response, as Django's handler gets it."""
    request = get() if request is None else request
    if iscoroutinefunction(view):
        return asyncio.run(view(request, *args, **kwargs))
    return view(request, *args, **kwargs)


def statuses(view, count):
    return [call(view).status_code for _ in range(count)]


# Functions


def test_view_is_refused_above_the_limit(make):
    assert statuses(rate_limit("burst")(make()), 4) == [200, 200, 429, 429]


def test_refused_view_is_not_called(make):
    calls = []
    view = rate_limit("closed")(make(calls=calls))
    assert call(view).status_code == 429
    assert calls == []


def test_view_gets_its_arguments(make):
    calls = []
    request = get()
    call(rate_limit("burst")(make(calls=calls)), request, 1, pk=2)
    assert calls == [(request, (1,), {"pk": 2})]


def test_sync_view_stays_sync_and_async_view_async(make):
    view = make()
    assert iscoroutinefunction(rate_limit("burst")(view)) == iscoroutinefunction(view)
    assert iscoroutinefunction(rate_limit_exempt(view)) == iscoroutinefunction(view)


def test_view_keeps_its_name_its_doc_and_its_attributes(make):
    view = login_not_required(make())
    limited = rate_limit("burst")(view)
    assert (limited.__name__, limited.__doc__) == ("view", "What the view does.")
    assert limited.login_required is False
    assert limited.__wrapped__ is view


@pytest.mark.parametrize(
    "given",
    [
        {"profile": "burst"},
        {"profile": ["burst"]},
        {"profile": ("burst",)},
        {"profile": lambda request: "burst"},
        {"profile": lambda request: ["burst"]},
    ],
)
def test_profile_may_be_a_keyword_a_list_or_a_function(make, given):
    assert statuses(rate_limit(**given)(make()), 3) == [200, 200, 429]


def test_profiles_by_position_and_by_keyword_add_up(make):
    call(rate_limit("burst", profile=["daily"])(make()))
    assert (left("burst"), left("daily")) == (1, 99)


def test_view_is_not_limited_when_the_function_chooses_no_profile(make):
    response = call(rate_limit(profile=lambda request: None)(make()))
    assert response.status_code == 200
    assert "RateLimit" not in response.headers


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((), {"profile": []}),
        ((lambda request: None,), {}),
        ((5,), {}),
        (("burst",), {"profile": [lambda request: None]}),
        (("burst",), {"profile": lambda request: None}),
        (("burst",), {"profile": 5}),
        ((), {"profile": 0}),
    ],
)
def test_decorator_without_names_raises_at_import(args, kwargs):
    with pytest.raises(TypeError, match="names of profiles"):
        rate_limit(*args, **kwargs)


def test_empty_methods_raise_at_import():
    with pytest.raises(ValueError, match="methods"):
        rate_limit("burst", methods=[])


@pytest.mark.parametrize("methods", ["", "GET,POST", "GET POST", ["GET", " POST"]])
def test_methods_that_no_request_has_raise_at_import(methods):
    with pytest.raises(ValueError, match="is not a method: several are a list"):
        rate_limit("burst", methods=methods)


@pytest.mark.parametrize("cost", [-1, 0.5, "2"])
def test_invalid_cost_raises_at_import(cost):
    with pytest.raises(ValueError, match="cost"):
        rate_limit("burst", cost=cost)


def test_unknown_profile_raises_at_first_use_with_a_hint(make):
    view = rate_limit("brust")(make())
    with pytest.raises(ImproperlyConfigured, match=r"'brust'.*'burst'"):
        call(view)


@pytest.mark.parametrize("decorator", [rate_limit("burst"), rate_limit_exempt])
def test_error_says_how_to_decorate_a_class(decorator):
    with pytest.raises(TypeError, match="method_decorator"):
        decorator(View)


def test_error_says_how_to_decorate_a_method():
    class Page(View):
        @rate_limit("burst")
        def get(self, request):
            return HttpResponse()

    with pytest.raises(TypeError, match="method_decorator"):
        Page.as_view()(get())


def test_cost_is_charged_to_every_profile(make):
    call(rate_limit("daily", cost=10)(make()))
    call(rate_limit("daily", cost=lambda request: 5)(make()))
    assert left("daily") == 85


def test_cost_is_one_script_and_all_or_nothing(make, redis):
    """With django-smart-ratelimit a cost of 10 is 10 scripts, and spent on refusal."""
    view = rate_limit("daily", cost=30)(make())
    call(view)
    redis.config_resetstat()
    assert statuses(view, 3) == [200, 200, 429]
    assert redis.info("commandstats")["cmdstat_evalsha"]["calls"] == 3
    assert left("daily") == 10


def test_only_the_named_methods_are_counted(make):
    view = rate_limit("closed", methods=["GET"])(make())
    assert call(view, get("post")).status_code == 200
    assert call(view, get("get")).status_code == 429
    assert call(view, get("head")).status_code == 429


def test_view_sees_the_decision(make):
    def answer(request):
        return HttpResponse(f"{request.rate_limit.remaining} of {request.rate_limit.limit}")

    assert call(rate_limit("burst")(make(answer))).content == b"1 of 2"


def test_request_of_rest_framework_is_accepted(make):
    class Request:
        def __init__(self, request):
            self._request = request

    inner = get()
    assert call(rate_limit("burst")(make()), Request(inner)).status_code == 200
    assert inner.rate_limit.remaining == 1


def test_result_that_is_not_a_response_is_returned(make):
    assert call(rate_limit("burst")(make(lambda request: {"a": 1}))) == {"a": 1}


def test_view_has_no_limits_and_no_headers_when_limits_are_disabled(make, project):
    project.SLIDING_WINDOW = {**SETTINGS, "ENABLED": False}
    response = call(rate_limit("closed")(make(lambda r: HttpResponse(repr(r.rate_limit)))))
    assert (response.status_code, response.content) == (200, b"None")
    assert "RateLimit" not in response.headers


def test_observing_profile_does_not_refuse(make):
    assert call(rate_limit("watched")(make())).status_code == 200


# Headers


def test_decorator_alone_sets_the_headers_on_success_and_refusal(make):
    view = rate_limit("burst")(make())
    responses = [call(view) for _ in range(3)]
    assert [response["RateLimit-Remaining"] for response in responses] == ["1", "0", "0"]
    assert responses[0]["RateLimit-Policy"] == '"burst";q=2;w=60'
    assert "Retry-After" not in responses[1]
    assert 0 < int(responses[2]["Retry-After"]) <= 60
    assert responses[2]["Cache-Control"] == "no-store"


def test_headers_of_stacked_decorators_show_each_policy_once(make):
    """django-smart-ratelimit's stacked decorators send a 429 that says `Remaining: 2`."""
    view = rate_limit("daily")(rate_limit("closed")(make()))
    response = call(view)
    assert response["RateLimit-Policy"].count('"daily"') == 1
    assert response["RateLimit-Policy"].count('"closed"') == 1
    assert response["RateLimit-Remaining"] == "0"


# Several on one view


@pytest.mark.parametrize("order", [("burst", "daily"), ("daily", "burst")])
def test_refusal_by_one_of_several_charges_nothing_to_the_others(make, order):
    outer, inner = order
    view = rate_limit(outer)(rate_limit(inner)(make()))
    assert statuses(view, 5) == [200, 200, 429, 429, 429]
    assert left("daily") == 98


def test_stacked_decorators_are_charged_in_one_script(make, redis):
    view = rate_limit("burst")(rate_limit("daily")(rate_limit("watched")(make())))
    call(view)
    redis.config_resetstat()
    call(view)
    assert redis.info("commandstats")["cmdstat_evalsha"]["calls"] == 1


def test_profile_that_is_named_twice_is_charged_once(make):
    call(rate_limit("daily")(rate_limit("daily", "burst")(make())))
    assert left("daily") == 99


def other(view):
    """Wrap a view as a decorator of another library does."""

    @functools.wraps(view)
    def wrapper(*args, **kwargs):
        return view(*args, **kwargs)

    return wrapper


def required(view):
    """Return what `requirements_of` returns, without the origins."""
    return tuple(each._replace(origin="") for each in requirements_of(view))


def test_requirements_are_those_of_the_outermost_decorators(make):
    view = rate_limit("daily")(rate_limit("burst", cost=2, methods="POST")(make()))
    expected = (
        Requirement(("daily",)),
        Requirement(("burst",), cost=2, methods=frozenset({"POST"})),
    )
    assert required(view) == required(rate_limit_exempt(view)) == expected
    assert required(functools.partial(view, pk=1)) == expected
    assert required(rate_limit("closed")(other(view))) == (Requirement(("closed",)),)
    assert requirements_of(other(view)) == ()
    assert requirements_of(make()) == requirements_of(functools.partial(make())) == ()
    assert requirements_of(len) == ()


def test_requirement_has_its_place(make):
    line = sys._getframe().f_lineno + 1
    (requirement,) = requirements_of(rate_limit("daily")(make()))
    assert requirement.origin == f"rate_limit at {__name__}:{line}"


def test_all_requirements_are_found_below_other_decorators(make):
    inner = rate_limit("burst")(rate_limit("daily")(make()))
    view = rate_limit("closed")(other(inner))
    found = [each.profiles for each in all_requirements(view)]
    assert found == [("closed",), ("burst",), ("daily",)]
    assert all_requirements(make()) == all_requirements(None) == ()


def test_view_is_deleted_without_the_garbage_collector(make):
    """Django's method_decorator creates a view at every request."""
    gc.disable()
    try:
        view = weakref.ref(rate_limit("burst")(make()))
        assert view() is None
    finally:
        gc.enable()


# Charging by the response


def status_is_401(response):
    return response.status_code == 401


def login(make, **kwargs):
    def answer(request):
        if request.headers.get("X-Password") == "explode":
            raise Http404
        right = request.headers.get("X-Password") == "right"
        return HttpResponse(status=200 if right else 401)

    return rate_limit("burst", charge_when=status_is_401, **kwargs)(make(answer))


def test_only_failed_logins_are_counted(make):
    view = login(make)
    right, wrong = get(HTTP_X_PASSWORD="right"), get(HTTP_X_PASSWORD="wrong")
    assert [call(view, get(HTTP_X_PASSWORD="right")).status_code for _ in range(5)] == [200] * 5
    assert left("burst") == 2
    assert [call(view, get()).status_code for _ in range(2)] == [401, 401]
    assert call(view, right).status_code == call(view, wrong).status_code == 429


def test_headers_after_a_refund_show_what_is_left(make):
    view = login(make)
    assert call(view, get())["RateLimit-Remaining"] == "1"
    assert call(view, get(HTTP_X_PASSWORD="right"))["RateLimit-Remaining"] == "1"


def test_view_that_raises_stays_charged(make):
    with pytest.raises(Http404):
        call(login(make), get(HTTP_X_PASSWORD="explode"))
    assert left("burst") == 1


def test_charge_stays_when_charge_when_fails(make, caplog):
    view = rate_limit("burst", charge_when=lambda response: response.no_such_thing)(make())
    assert call(view).status_code == 200
    assert left("burst") == 1
    assert "charge_when failed" in caplog.text


def test_charge_when_may_be_async(make):
    async def never(response):
        return False

    assert call(rate_limit("burst", charge_when=never)(make())).status_code == 200
    assert left("burst") == 2


def test_refund_keeps_the_charges_of_other_decorators(make):
    view = rate_limit("daily")(login(make))
    call(view, get(HTTP_X_PASSWORD="right"))
    assert (left("burst"), left("daily")) == (2, 99)


def test_method_that_is_not_counted_is_not_refunded_either(make):
    view = rate_limit("burst")(login(make, methods=["POST"]))
    call(view, get(HTTP_X_PASSWORD="right"))
    assert left("burst") == 1


# Class-based views


class SyncPage(View):
    def get(self, request, **kwargs):
        return HttpResponse("seen")


class AsyncPage(View):
    async def get(self, request, **kwargs):
        await asyncio.sleep(0)
        return HttpResponse(threading.current_thread().name)


@pytest.fixture(params=[SyncPage, AsyncPage], ids=["sync", "async"])
def page(request):
    """Return a new class-based view, sync or async."""
    return type("Page", (request.param,), {})


def test_class_is_limited_by_its_dispatch(page):
    view = method_decorator(rate_limit("burst"), name="dispatch")(page).as_view()
    assert statuses(view, 3) == [200, 200, 429]
    assert requirements_of(view) == (), "what else decorates the method is not known"


def test_class_is_limited_by_one_of_its_methods(page):
    view = method_decorator(rate_limit("burst"), name="get")(page).as_view()
    assert statuses(view, 3) == [200, 200, 429]


def test_async_class_is_checked_on_its_event_loop(monkeypatch):
    page = type("Page", (AsyncPage,), {})
    monkeypatch.setattr(guard, "check", None)
    view = method_decorator(rate_limit("burst"), name="dispatch")(page).as_view()
    assert statuses(view, 3) == [200, 200, 429]


def test_decorators_of_one_method_decorator_are_charged_together(page):
    both = [rate_limit("daily"), rate_limit("burst")]
    view = method_decorator(both, name="dispatch")(page).as_view()
    assert statuses(view, 4) == [200, 200, 429, 429]
    assert left("daily") == 98


def test_several_method_decorators_are_charged_one_after_the_other(page):
    page = method_decorator(rate_limit("burst"), name="dispatch")(page)
    page = method_decorator(rate_limit("daily"), name="dispatch")(page)
    assert statuses(page.as_view(), 4) == [200, 200, 429, 429]
    assert left("daily") == 96


def test_mixin_counts_what_reaches_its_dispatch(page):
    class Gate:
        def dispatch(self, request, *args, **kwargs):
            assert "X-Key" in request.headers, "turned away"
            return super().dispatch(request, *args, **kwargs)

    name, attributes = "Limited", {"rate_limit_profiles": ["burst", "daily"]}
    inside = type(name, (Gate, RateLimitMixin, page), attributes).as_view()
    outside = type(name, (RateLimitMixin, Gate, page), attributes).as_view()
    for view, charged in [(inside, 0), (outside, 1)]:
        with pytest.raises(AssertionError, match="turned away"):
            call(view)
        assert left("daily") == 100 - charged
    assert [call(inside, get(HTTP_X_KEY="a")).status_code for _ in range(3)] == [200, 429, 429]
    assert requirements_of(inside) == ()
    assert required(outside) == (Requirement(("burst", "daily")),)


def test_mixin_that_is_decorated_counts_what_reaches_it(page):
    name = f"Decorated{page.__base__.__name__}"
    limited = type(name, (RateLimitMixin, page), {"rate_limit_profiles": ["daily"]})
    decorated = method_decorator(rate_limit("closed"), name="dispatch")(limited)
    found, view = new_usages(decorated.as_view)
    assert places(found) == [(f"{__name__}.{name}", ("daily",))]
    assert call(view).status_code == 429
    assert left("daily") == 100


def test_mixin_limits_by_attributes(page):
    limited = type("Limited", (RateLimitMixin, page), {"rate_limit_profiles": ["burst"]})
    view = limited.as_view()
    assert statuses(view, 3) == [200, 200, 429]
    assert required(view) == (Requirement(("burst",)),)
    assert requirements_of(view)[0].origin == f"RateLimitMixin of {limited.__module__}.Limited"
    assert view.view_class is limited


def test_mixin_takes_what_the_decorator_takes(page):
    class Limited(RateLimitMixin, page):
        rate_limit_profiles = "daily"
        rate_limit_methods = ("GET",)

        def rate_limit_cost(request):  # noqa: N805
            return 10

        def rate_limit_charge_when(response):  # noqa: N805
            return response.status_code != 405

    call(Limited.as_view())
    call(Limited.as_view(), get("post"))
    assert left("daily") == 90


def test_mixin_is_overridden_for_one_url(page):
    limited = type("Limited", (RateLimitMixin, page), {"rate_limit_profiles": ["closed"]})
    assert call(limited.as_view(rate_limit_profiles="burst")).status_code == 200
    assert call(limited.as_view()).status_code == 429


def test_mixin_without_profiles_limits_nothing(page):
    view = type("Free", (RateLimitMixin, page), {}).as_view()
    assert requirements_of(view) == ()
    assert call(view).status_code == 200


# Exemptions and usages


def test_exempt_view_is_marked_and_runs(make):
    view = rate_limit_exempt(make())
    assert is_exempt(view)
    assert is_exempt(functools.partial(view))
    assert not is_exempt(make())
    assert not is_exempt(functools.partial(make()))
    assert call(view).status_code == 200


def test_exempt_class_is_marked_and_runs(page):
    view = method_decorator(rate_limit_exempt, name="dispatch")(page).as_view()
    assert is_exempt(view)
    assert call(view).status_code == 200


def test_own_limit_of_an_exempt_view_still_counts(make):
    assert call(rate_limit_exempt(rate_limit("closed")(make()))).status_code == 429


def places(usages):
    return [(usage.view, usage.profiles) for usage in usages]


def new_usages(function):
    """Return the usages that a function adds, and its result."""
    before = usages()
    answer = function()
    return [usage for usage in usages() if usage not in before], answer


def test_usages_have_the_views_that_name_profiles():
    def named(request):
        return HttpResponse()

    found, _ = new_usages(lambda: rate_limit("burst", "daily")(named))
    assert places(found) == [(f"{__name__}.{named.__qualname__}", ("burst", "daily"))]


def test_usage_of_an_object_is_named_by_its_class():
    class Answering:
        def __call__(self, request):
            return HttpResponse()

    found, view = new_usages(lambda: rate_limit("burst")(Answering()))
    assert places(found) == [(f"{__name__}.{Answering.__qualname__}", ("burst",))]
    assert call(view).status_code == 200


def test_usage_of_a_partial_view_is_named_by_its_function():
    def page(request, template):
        return HttpResponse(template)

    found, view = new_usages(lambda: rate_limit("burst")(functools.partial(page, template="a")))
    assert places(found) == [(f"{__name__}.{page.__qualname__}", ("burst",))]
    assert call(view).content == b"a"


def test_usage_by_a_class_has_module_and_line():
    page = type("Page", (SyncPage,), {})
    found, view = new_usages(lambda: method_decorator(rate_limit("burst"), name="dispatch")(page))
    (usage,) = found
    assert usage.profiles == ("burst",)
    assert usage.view.startswith(f"{__name__}:")
    assert new_usages(lambda: statuses(view.as_view(), 3))[0] == []


def test_usage_by_a_mixin_has_the_class():
    limited = type("Limited", (RateLimitMixin, SyncPage), {"rate_limit_profiles": "daily"})
    found, _ = new_usages(limited.as_view)
    assert places(found) == [(f"{__name__}.Limited", ("daily",))]


def test_usages_do_not_grow_with_requests():
    def decorated_late(request):
        return rate_limit(profile=lambda request: "daily")(sync_view())(request)

    call(decorated_late)
    count = len(usages())
    call(decorated_late)
    assert len(usages()) == count
