"""Profiles as throttles of django-ninja, on a real Redis, in sync and async operations."""

from __future__ import annotations

import asyncio
import threading
from functools import wraps

import http_sf
import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import get_resolver, path
from ninja import NinjaAPI, Router
from ninja.decorators import decorate_view
from ninja.errors import ConfigError
from ninja.security import HttpBearer
from ninja.testing import TestAsyncClient, TestClient
from ninja.throttling import BaseThrottle

from django_slidingwindow import limits
from django_slidingwindow.contrib.ninja import (
    ProfileThrottle,
    operations_of,
    throttled,
    uncharged_operations,
)
from django_slidingwindow.guard import check as guard
from django_slidingwindow.guard.requirements import joined, requirements_of
from django_slidingwindow.guard.usages import usages
from django_slidingwindow.testing import FrozenClock, limits_disabled, limits_in_memory

MIDDLEWARE = "django_slidingwindow.middleware.RateLimitMiddleware"
PROFILES = {
    "narrow": {"axis": "ip", "rate": "2/m"},
    "wide": {"axis": "ip", "rate": "5/m"},
    "per_token": {"axis": "token", "rate": "2/m"},
    "closed": {"axis": "global", "rate": "0/m"},
    "denying": {"axis": "ip", "rate": "2/m", "fallback": "deny"},
}


def token(request):
    """Return the identifier of the axis `token`, which ninja's authentication has set."""
    return request.auth


class Bearer(HttpBearer):
    def authenticate(self, request, token):
        return None if token == "wrong" else token


class AsyncBearer(HttpBearer):
    async def authenticate(self, request, token):
        return None if token == "wrong" else token


class OtherThrottle(BaseThrottle):
    def allow_request(self, request):
        return True


def choose(request):
    return request.GET.get("profile")


def profile_of(request):
    decision = getattr(request, "rate_limit", None)
    return decision and decision.profile


def make_api(name, *decorators):
    """Return an API. All APIs have the same operations, sync and async."""
    api = NinjaAPI(urls_namespace=name, throttle=[ProfileThrottle("narrow")])
    for decorator in decorators:
        api.add_decorator(decorator, mode="view")

    def add(url, *throttles, **kwargs):
        own = {"throttle": list(throttles)} if throttles else {}

        @api.get(f"/sync/{url}", **own, **kwargs)
        def sync_operation(request):
            return {"profile": profile_of(request)}

        @api.get(f"/async/{url}", **own, **kwargs)
        async def async_operation(request):
            return {"profile": profile_of(request)}

    add("plain")
    add("two", ProfileThrottle("wide"), ProfileThrottle("narrow"), OtherThrottle())
    add("both", ProfileThrottle("wide", "narrow"))
    add("chosen", ProfileThrottle(choose, "wide"))
    add("costly", ProfileThrottle("wide", cost=3))
    add("posts", ProfileThrottle("narrow", methods="POST"))
    add("closed", ProfileThrottle("closed"))
    add("denying", ProfileThrottle("denying"))
    add("free", OtherThrottle())

    router = Router(throttle=[ProfileThrottle("per_token")])

    @router.get("/sync/token", auth=Bearer())
    def sync_token(request):
        return {}

    @router.get("/async/token", auth=AsyncBearer())
    async def async_token(request):
        return {}

    @router.get("/async/sync_token", auth=Bearer())
    async def async_sync_token(request):
        return {}

    @router.get("/shared", throttle=[ProfileThrottle("narrow")])
    def shared_get(request):
        return {}

    @router.post("/shared", throttle=[ProfileThrottle("wide")])
    async def shared_post(request):
        return {}

    api.add_router("", router)
    return api


bare, wrapped = make_api("bare"), make_api("wrapped", throttled)
urlpatterns = [path("bare/", bare.urls), path("wrapped/", wrapped.urls)]

KINDS = ["sync", "async"]


@pytest.fixture(autouse=True)
def _project():
    with override_settings(
        ROOT_URLCONF=__name__,
        SLIDING_WINDOW={
            "PROFILES": PROFILES,
            "IDENTITIES": {"token": f"{__name__}.token"},
            "SHIELD_SECONDS": 0,
            "LATENCY_BUDGET": 5,
            "LOG": False,
            "HEADERS": ["draft"],
        },
    ):
        yield


@pytest.fixture(params=["wrapped", "middleware"])
def prefix(request, settings):
    """Return the prefix of an API whose async operations are charged, in one of both ways."""
    if request.param == "wrapped":
        return "/wrapped"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    return "/bare"


@pytest.fixture(params=["wsgi", "asgi"])
def get(request, redis):
    """Return a function that sends a GET through Django's sync or async handler."""
    redis.config_resetstat()
    if request.param == "wsgi":
        return Client().get
    return async_to_sync(AsyncClient().get)


def script_calls(redis):
    return redis.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]


def parsed(text):
    return dict(http_sf.parse(text.encode(), tltype="list"))


@pytest.mark.parametrize("kind", KINDS)
def test_throttle_refuses_exactly_above_the_limit_and_sets_headers(get, prefix, kind):
    answers = [get(f"{prefix}/{kind}/plain") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert answers[0].json() == {"profile": "narrow"}
    assert [parsed(answer["RateLimit"])["narrow"]["r"] for answer in answers] == [1, 0, 0, 0]
    assert parsed(answers[0]["RateLimit-Policy"]) == {"narrow": {"q": 2, "w": 60}}
    assert answers[2]["Retry-After"] == str(parsed(answers[2]["RateLimit"])["narrow"]["t"])
    assert "Cache-Control" not in answers[0]


@pytest.mark.parametrize("kind", KINDS)
def test_refusal_has_the_body_of_ninja_and_is_not_cached(get, kind):
    for _ in range(2):
        get(f"/wrapped/{kind}/plain")
    refused = get(f"/wrapped/{kind}/plain")
    assert refused.json() == {"detail": "Too many requests."}
    assert refused["Cache-Control"] == "no-store"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("url", ["two", "both"])
def test_several_profiles_are_charged_in_one_script_call(get, redis, prefix, kind, url):
    first = get(f"{prefix}/{kind}/{url}")
    assert set(parsed(first["RateLimit"])) == {"narrow", "wide"}
    # The first call may also load the script.
    redis.config_resetstat()
    get(f"{prefix}/{kind}/{url}")
    assert script_calls(redis) == 1
    assert [get(f"{prefix}/{kind}/{url}").status_code for _ in range(3)] == [429] * 3
    assert limits.peek("wide", "127.0.0.1", cost=0).remaining == 3


@pytest.mark.parametrize("kind", KINDS)
def test_function_chooses_profiles_for_each_request(get, prefix, kind):
    assert set(parsed(get(f"{prefix}/{kind}/chosen")["RateLimit"])) == {"wide"}
    chosen = get(f"{prefix}/{kind}/chosen?profile=narrow")
    assert set(parsed(chosen["RateLimit"])) == {"wide", "narrow"}


@pytest.mark.parametrize("kind", KINDS)
def test_cost_is_charged_completely_or_not_at_all(get, prefix, kind):
    assert [get(f"{prefix}/{kind}/costly").status_code for _ in range(2)] == [200, 429]
    assert limits.peek("wide", "127.0.0.1", cost=0).remaining == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("url", ["posts", "free"])
def test_operation_without_requirements_is_not_limited(get, redis, prefix, kind, url):
    answers = [get(f"{prefix}/{kind}/{url}") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert "RateLimit" not in answers[0]
    assert script_calls(redis) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_refusal_has_no_retry_after_when_the_limit_is_zero(get, prefix, kind):
    answer = get(f"{prefix}/{kind}/closed")
    assert answer.status_code == 429
    assert "Retry-After" not in answer


def test_operations_at_one_path_have_separate_limits(redis, prefix):
    client = Client()
    assert [client.get(f"{prefix}/shared").status_code for _ in range(3)] == [200, 200, 429]
    assert [client.post(f"{prefix}/shared").status_code for _ in range(2)] == [200, 200]
    assert set(parsed(client.post(f"{prefix}/shared")["RateLimit"])) == {"wide"}
    assert client.put(f"{prefix}/shared").status_code == 405


@pytest.mark.parametrize("url", ["sync/token", "async/token", "async/sync_token"])
def test_identity_reads_what_ninja_has_authenticated(get, url):
    def statuses(value):
        headers = {"Authorization": f"Bearer {value}"}
        return [get(f"/wrapped/{url}", headers=headers).status_code for _ in range(3)]

    assert statuses("one") == [200, 200, 429]
    assert statuses("two") == [200, 200, 429]
    assert statuses("wrong") == [401, 401, 401]


@pytest.mark.parametrize("url", ["sync/token", "async/token", "async/sync_token"])
def test_rule_limits_failed_authentication(get, settings, url):
    settings.MIDDLEWARE = [MIDDLEWARE]
    settings.SLIDING_WINDOW = {
        **settings.SLIDING_WINDOW,
        "RULES": [{"path": "^/wrapped/", "profiles": ["narrow"]}],
    }
    headers = {"Authorization": "Bearer wrong"}
    statuses = [get(f"/wrapped/{url}", headers=headers).status_code for _ in range(4)]
    assert statuses == [401, 401, 429, 429]


@pytest.mark.parametrize("kind", KINDS)
def test_response_is_503_when_redis_is_down_and_the_fallback_denies(fresh_server, kind):
    backend = "django_redis.cache.RedisCache"
    fresh_server.stop()
    with override_settings(CACHES={"default": {"BACKEND": backend, "LOCATION": fresh_server.url}}):
        answer = Client().get(f"/wrapped/{kind}/denying")
    assert answer.status_code == 503
    assert answer["Retry-After"] == "1"
    assert answer["Cache-Control"] == "no-store"
    assert answer.json() == {"detail": "Service unavailable."}


@pytest.mark.parametrize("kind", KINDS)
def test_retry_after_is_exact_to_the_second(kind):
    clock = FrozenClock()
    clock.advance(0.25)
    with limits_in_memory(clock):
        client = Client()
        client.get(f"/wrapped/{kind}/plain")
        clock.advance(7.5)
        client.get(f"/wrapped/{kind}/plain")
        wait = int(client.get(f"/wrapped/{kind}/plain")["Retry-After"])
        assert wait == 53
        clock.advance(wait - 1)
        assert client.get(f"/wrapped/{kind}/plain").status_code == 429
        clock.advance(1)
        assert client.get(f"/wrapped/{kind}/plain").status_code == 200


async def test_async_operation_raises_when_nothing_charges_it(redis):
    with pytest.raises(ImproperlyConfigured, match="add_decorator"):
        await AsyncClient().get("/bare/async/plain")
    assert not redis.keys()


def test_async_operation_is_not_charged_when_the_client_is_exempt(settings, redis):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "EXEMPT": ["127.0.0.1"]}
    assert [Client().get("/bare/async/plain").status_code for _ in range(4)] == [200] * 4
    assert not redis.keys()


async def test_async_operation_raises_when_only_other_profiles_are_charged(rf):
    request = rf.get("/")
    with limits_in_memory():
        wide = ProfileThrottle("wide").requirements
        await guard.acheck(request, joined(wide))
        assert guard.settled(request, joined(wide))
        with pytest.raises(ImproperlyConfigured, match="add_decorator"):
            ProfileThrottle("wide", "narrow").allow_request(request)
        with pytest.raises(ImproperlyConfigured, match="add_decorator"):
            ProfileThrottle(choose).allow_request(request)


def test_throttle_charges_a_sync_operation_itself(get):
    answers = [get("/bare/sync/plain") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[2]["Retry-After"]) in range(1, 61)


def test_uncharged_operations_lists_async_operations():
    found = set(uncharged_operations(get_resolver(__name__).url_patterns))
    assert f"{__name__}.make_api.<locals>.shared_post" in found
    assert all("async" in name or name.endswith("shared_post") for name in found)
    assert list(uncharged_operations([path("", wrapped.urls)])) == []
    assert list(uncharged_operations([path("", HttpResponse)])) == []


def test_operations_of_is_empty_when_a_closure_has_no_value():
    def view(request):
        return later

    assert operations_of(view) == ()
    later = HttpResponse()
    assert operations_of(view) == ()


def test_middleware_charges_only_async_operations_without_throttled():
    def requirements(prefix, url):
        return requirements_of(get_resolver(__name__).resolve(f"/{prefix}/{url}").func)

    assert requirements("wrapped", "async/plain") == ()
    assert requirements("bare", "sync/plain") == ()
    (requirement,) = requirements("bare", "async/plain")
    assert requirement.profiles == ("narrow",)
    assert requirement.methods == {"GET"}
    (requirement,) = requirements("bare", "async/posts")
    assert requirement.methods == frozenset()


def test_concurrent_requests_have_separate_waits():
    """ninja has one throttle for all requests, and calls `wait` without the request."""
    throttle = ProfileThrottle("narrow")
    barrier = threading.Barrier(2)
    waits = {}

    with limits_in_memory() as clock:
        limits.check("narrow", "203.0.113.1", cost=2)
        clock.advance(20)
        limits.check("narrow", "203.0.113.2", cost=2)

        def refused(address):
            request = Client().get("/wrapped/sync/free", REMOTE_ADDR=address).wsgi_request
            assert not throttle.allow_request(request)
            barrier.wait()
            waits[address] = throttle.wait()

        threads = [
            threading.Thread(target=refused, args=(address,))
            for address in ("203.0.113.1", "203.0.113.2")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert waits == {"203.0.113.1": 40, "203.0.113.2": 60}


async def test_async_operation_does_not_block_the_event_loop(redis):
    """Send 200 concurrent requests, while another task must go on."""
    beats = 0
    done = False

    async def heart():
        nonlocal beats
        while not done:
            beats += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(heart())
    client = AsyncClient()
    answers = await asyncio.gather(*(client.get("/wrapped/async/plain") for _ in range(200)))
    done = True
    await beating
    assert sorted(answer.status_code for answer in answers) == [200] * 2 + [429] * 198
    assert beats > 10


def test_throttles_do_not_call_redis_when_limits_are_disabled(get, redis, prefix):
    with limits_disabled():
        answers = [get(f"{prefix}/async/two") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert "RateLimit" not in answers[0]
    assert script_calls(redis) == 0


def test_uncharged_async_operation_works_when_limits_are_disabled():
    with limits_disabled():
        assert Client().get("/bare/async/plain").status_code == 200


def test_throttled_works_as_decorator_of_one_operation():
    api = NinjaAPI(urls_namespace="one")

    @api.get("/x", throttle=[ProfileThrottle("narrow")])
    @decorate_view(throttled)
    async def one(request):
        return {}

    async def statuses():
        client = TestAsyncClient(api)
        return [(await client.get("/x")).status_code for _ in range(3)]

    with limits_in_memory():
        assert asyncio.run(statuses()) == [200, 200, 429]


def test_throttle_works_with_the_test_client_of_ninja():
    api = NinjaAPI(urls_namespace="tested")

    @api.get("/x", throttle=[ProfileThrottle("narrow")])
    def tested(request):
        return {}

    with limits_in_memory():
        assert [TestClient(api).get("/x").status_code for _ in range(3)] == [200, 200, 429]


def test_throttle_charges_itself_when_no_url_was_resolved(rf):
    throttle = ProfileThrottle("narrow")
    with limits_in_memory():
        assert [throttle.allow_request(rf.get("/")) for _ in range(3)] == [True, True, False]
        assert throttle.wait() == 60


def test_throttled_finds_the_operation_behind_other_decorators():
    def other(run):
        @wraps(run)
        def wrapper(request, **kwargs):
            return run(request, **kwargs)

        return wrapper

    api = make_api("behind", other, throttled)
    with limits_in_memory():
        client = TestClient(api)
        assert [client.get("/sync/plain").status_code for _ in range(3)] == [200, 200, 429]


def test_throttled_raises_when_it_decorates_a_function():
    with pytest.raises(ConfigError, match='mode="view"'):
        throttled(lambda request: None)


def test_throttle_raises_when_it_has_no_profile():
    with pytest.raises(TypeError, match="needs a profile"):
        ProfileThrottle()


@pytest.mark.parametrize("cost", [-1, 0.5, "2", True])
def test_throttle_raises_when_its_cost_is_invalid(cost):
    with pytest.raises(ValueError, match="cost"):
        ProfileThrottle("wide", cost=cost)


@pytest.mark.parametrize("profile", [["wide"], 5, None])
def test_throttle_raises_when_a_profile_is_not_a_name(profile):
    with pytest.raises(TypeError, match="needs names of profiles"):
        ProfileThrottle(profile)


def test_throttle_declares_its_profiles():
    found = [usage for usage in usages() if usage.view.startswith(f"{__name__}:")]
    assert ("per_token",) in [usage.profiles for usage in found]
