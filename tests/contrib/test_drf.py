"""Profiles as throttles of Django REST framework, on a real Redis."""

# ruff: noqa: RUF012 -- lists on the class are DRF's own way

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import http_sf
import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import path
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import api_view, throttle_classes
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_slidingwindow import limits
from django_slidingwindow.contrib.drf import ProfileThrottle
from django_slidingwindow.decorators import RateLimitMixin, rate_limit
from django_slidingwindow.middleware import RateLimitMiddleware
from django_slidingwindow.testing import FrozenClock, limits_disabled, limits_in_memory

PROFILES = {
    "narrow": {"axis": "ip", "rate": "2/m"},
    "wide": {"axis": "ip", "rate": "5/m"},
    "per_user": {"axis": "user", "rate": "2/m"},
    "closed": {"axis": "global", "rate": "0/m"},
    "denying": {"axis": "ip", "rate": "2/m", "fallback": "deny"},
}
SEEN = []


class HeaderAuthentication(BaseAuthentication):
    """Trust the user that the client names. Django's own middleware does not know this user."""

    def authenticate(self, request):
        name = request.headers.get("X-User")
        if name == "nobody":
            raise AuthenticationFailed
        return (User(pk=int(name), username=name), None) if name else None


class View(APIView):
    authentication_classes = [HeaderAuthentication]

    def get(self, request):
        SEEN.append(request.rate_limit)
        return Response({"user": str(request.user)})

    post = get


class OneThrottle(View):
    throttle_classes = [ProfileThrottle("narrow")]


class TwoThrottles(View):
    throttle_classes = [ProfileThrottle("wide"), ProfileThrottle("narrow")]


class OfTheView(View):
    throttle_classes = [ProfileThrottle]
    rate_limit_profiles = ["narrow", "wide"]


class OneOfTheView(OfTheView):
    rate_limit_profiles = "narrow"


class NoneOfTheView(View):
    throttle_classes = [ProfileThrottle]


class Chosen(View):
    throttle_classes = [ProfileThrottle(lambda request: request.GET.get("profile"), "wide")]


class ChosenOfTheView(View):
    throttle_classes = [ProfileThrottle]

    @staticmethod
    def rate_limit_profiles(request):
        return request.GET.get("profile")


class Costly(View):
    throttle_classes = [ProfileThrottle("wide", cost=lambda request: 3)]


class PostsAlone(View):
    throttle_classes = [ProfileThrottle("narrow", methods=["post"])]


class PerUser(View):
    throttle_classes = [ProfileThrottle("per_user")]


class LazilyAuthenticated(PerUser):
    def perform_authentication(self, request):
        pass


class Closed(View):
    throttle_classes = [ProfileThrottle("closed")]


class Denying(View):
    throttle_classes = [ProfileThrottle("denying")]


class OtherThrottle(BaseThrottle):
    def allow_request(self, request, view):
        return request.GET.get("other") != "refuses"


class WithAnother(View):
    throttle_classes = [OtherThrottle, ProfileThrottle("narrow")]


class OwnHeaders(View):
    throttle_classes = [ProfileThrottle("narrow")]

    def get(self, request):
        own = {"Cache-Control": "max-age=60", "Vary": "Cookie", "RateLimit-Policy": "of the view"}
        return HttpResponse(headers=own)

    def finalize_response(self, *args, **kwargs):
        response = super().finalize_response(*args, **kwargs)
        response["X-Finalized"] = "by the view"
        return response


@api_view(["GET"])
@throttle_classes([ProfileThrottle("narrow")])
def of_a_function(request):
    return Response()


class Subclass(ProfileThrottle):
    pass


class Subclassed(View):
    throttle_classes = [Subclass("narrow")]


class Calling(View):
    """A view that calls another view with the same Django request."""

    throttle_classes = [ProfileThrottle("narrow")]

    def get(self, request):
        return OneThrottle.as_view()(request._request)


urlpatterns = [path(f"{view.__name__}/", view.as_view()) for view in View.__subclasses__()]
urlpatterns += [
    path("LazilyAuthenticated/", LazilyAuthenticated.as_view()),
    path("OneOfTheView/", OneOfTheView.as_view()),
    path("of_a_function/", of_a_function),
]


@pytest.fixture(autouse=True)
def _project():
    SEEN.clear()
    with override_settings(
        ROOT_URLCONF=__name__,
        SLIDING_WINDOW={
            "PROFILES": PROFILES,
            # A busy machine must not look like an outage.
            "LATENCY_BUDGET": 5.0,
            "SHIELD_SECONDS": 0,
            "HEADERS": ["draft"],
            "LOG": False,
        },
    ):
        yield


@pytest.fixture
def client(redis):
    redis.config_resetstat()
    return Client()


def script_calls(redis):
    return redis.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]


def parsed(text):
    return dict(http_sf.parse(text.encode(), tltype="list"))


@pytest.mark.parametrize(
    "url",
    ["OneThrottle", "OneOfTheView", "of_a_function", "Subclassed", "Calling"],
)
def test_throttle_refuses_exactly_above_the_limit(client, url):
    assert [client.get(f"/{url}/").status_code for _ in range(4)] == [200, 200, 429, 429]


def test_headers_are_on_admitted_and_refused_responses(client):
    first, second, third = (client.get("/OneThrottle/") for _ in range(3))
    assert parsed(first["RateLimit-Policy"]) == {"narrow": {"q": 2, "w": 60}}
    assert [parsed(r["RateLimit"])["narrow"]["r"] for r in (first, second, third)] == [1, 0, 0]
    assert third["Cache-Control"] == "no-store"
    assert "Cache-Control" not in first
    assert third["Retry-After"] == str(parsed(third["RateLimit"])["narrow"]["t"])


def test_headers_of_the_view_are_kept():
    with limits_in_memory():
        response = Client().get("/OwnHeaders/")
    assert response["Cache-Control"] == "max-age=60"
    assert "Cookie" in response["Vary"]
    assert response["RateLimit-Policy"] == "of the view"
    assert response["X-Finalized"] == "by the view"
    assert parsed(response["RateLimit"])["narrow"]["r"] == 1


def test_refusal_is_not_logged_by_django(client, caplog):
    for _ in range(3):
        last = client.get("/OneThrottle/")
    assert last.status_code == 429
    assert not [record for record in caplog.records if record.name == "django.request"]


def test_retry_after_is_exact_to_the_second():
    clock = FrozenClock()
    clock.advance(0.25)
    with limits_in_memory(clock):
        client = Client()
        client.get("/OneThrottle/")
        clock.advance(7.5)
        client.get("/OneThrottle/")
        wait = int(client.get("/OneThrottle/")["Retry-After"])
        assert wait == 53
        clock.advance(wait - 1)
        assert client.get("/OneThrottle/").status_code == 429
        clock.advance(1)
        assert client.get("/OneThrottle/").status_code == 200


@pytest.mark.parametrize("url", ["TwoThrottles", "OfTheView"])
def test_several_profiles_are_charged_in_one_script_call(client, redis, url):
    response = client.get(f"/{url}/")
    assert set(parsed(response["RateLimit"])) == {"narrow", "wide"}
    # The first call may also load the script.
    redis.config_resetstat()
    client.get(f"/{url}/")
    assert script_calls(redis) == 1


@pytest.mark.parametrize("url", ["TwoThrottles", "OfTheView"])
def test_refusal_by_one_throttle_charges_no_other_profile(client, url):
    assert [client.get(f"/{url}/").status_code for _ in range(6)] == [200] * 2 + [429] * 4
    assert limits.peek("wide", "127.0.0.1", cost=0).remaining == 3


def test_view_without_profiles_is_not_limited(client, redis):
    response = client.get("/NoneOfTheView/")
    assert response.status_code == 200
    assert "RateLimit" not in response
    assert script_calls(redis) == 0


def test_function_chooses_profiles_for_each_request(client):
    assert set(parsed(client.get("/Chosen/")["RateLimit"])) == {"wide"}
    chosen = client.get("/Chosen/", {"profile": "narrow"})
    assert set(parsed(chosen["RateLimit"])) == {"wide", "narrow"}


def test_method_of_the_view_chooses_profiles(client):
    assert "RateLimit" not in client.get("/ChosenOfTheView/")
    chosen = client.get("/ChosenOfTheView/", {"profile": "narrow"})
    assert set(parsed(chosen["RateLimit"])) == {"narrow"}


def test_cost_is_charged_completely_or_not_at_all(client):
    assert [client.get("/Costly/").status_code for _ in range(2)] == [200, 429]
    assert limits.peek("wide", "127.0.0.1", cost=0).remaining == 2


def test_other_methods_are_not_charged(client):
    assert [client.get("/PostsAlone/").status_code for _ in range(4)] == [200] * 4
    assert [client.post("/PostsAlone/").status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("url", ["PerUser", "LazilyAuthenticated"])
def test_user_is_authenticated_by_drf(client, url):
    def statuses(user):
        return [client.get(f"/{url}/", headers={"X-User": user}).status_code for _ in range(3)]

    assert statuses("1") == [200, 200, 429]
    assert statuses("2") == [200, 200, 429]
    assert statuses("") == [200, 200, 429]
    assert statuses("nobody") == [403, 403, 403]


GUESSES = [{"X-User": "nobody"}] * 4


def test_throttle_never_sees_failed_authentication(client):
    statuses = [client.get("/OneThrottle/", headers=guess).status_code for guess in GUESSES]
    assert statuses == [403] * 4


def test_rule_limits_failed_authentication(client, settings):
    settings.MIDDLEWARE = ["django_slidingwindow.middleware.RateLimitMiddleware"]
    settings.SLIDING_WINDOW = {
        **settings.SLIDING_WINDOW,
        "RULES": [{"path": "^/OneThrottle/", "profiles": ["narrow"]}],
    }
    statuses = [client.get("/OneThrottle/", headers=guess).status_code for guess in GUESSES]
    assert statuses == [403, 403, 429, 429]


def test_decorator_limits_only_failed_authentication(redis):
    failed = rate_limit("narrow", charge_when=lambda response: response.status_code == 403)
    view = failed(View.as_view())
    right = [view(RequestFactory().get("/", headers={"X-User": "1"})) for _ in range(4)]
    wrong = [view(RequestFactory().get("/", headers=guess)) for guess in GUESSES]
    assert [response.status_code for response in right] == [200] * 4
    assert [response.status_code for response in wrong] == [403, 403, 429, 429]


def test_decision_is_on_the_request(client):
    client.get("/OneThrottle/")
    assert SEEN[0].profile == "narrow"
    assert SEEN[0].remaining == 1


def test_refusal_has_no_retry_after_when_the_limit_is_zero(client):
    response = client.get("/Closed/")
    assert response.status_code == 429
    assert "Retry-After" not in response


def test_other_throttles_still_work(client):
    assert client.get("/WithAnother/", {"other": "refuses"}).status_code == 429
    assert client.get("/WithAnother/").status_code == 200
    assert client.get("/WithAnother/").status_code == 429


@pytest.mark.parametrize("cost", [-1, 0.5, "2", True])
def test_throttle_raises_when_its_cost_is_invalid(cost):
    with pytest.raises(ValueError, match="cost"):
        ProfileThrottle("wide", cost=cost)


@pytest.mark.parametrize("profile", [["wide"], 5, None])
def test_throttle_raises_when_a_profile_is_not_a_name(profile):
    with pytest.raises(TypeError, match="needs names of profiles"):
        ProfileThrottle(profile)


def test_wait_is_none_when_nothing_was_checked():
    assert ProfileThrottle("narrow").wait() is None


def test_response_is_503_when_redis_is_down_and_the_fallback_denies(fresh_server):
    caches = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": fresh_server.url,
        }
    }
    fresh_server.stop()
    with override_settings(CACHES=caches):
        # The first requests fail to reach Redis. Then the breaker opens.
        responses = [Client().get("/Denying/") for _ in range(5)]
    for response in responses:
        assert response.status_code == 503
        assert response["Retry-After"] == "1"
        assert response["Cache-Control"] == "no-store"
        assert response.json() == {"detail": "Service unavailable."}


def test_throttles_do_not_call_redis_when_limits_are_disabled(client, redis):
    with limits_disabled():
        responses = [client.get("/TwoThrottles/") for _ in range(4)]
    assert [response.status_code for response in responses] == [200] * 4
    assert "RateLimit" not in responses[0]
    assert script_calls(redis) == 0


def test_default_throttle_classes_may_name_the_throttle():
    code = (
        "from django.conf import settings\n"
        "name = 'django_slidingwindow.contrib.drf.ProfileThrottle'\n"
        "settings.configure(REST_FRAMEWORK={'DEFAULT_THROTTLE_CLASSES': [name]})\n"
        "from rest_framework.views import APIView\n"
        "print(APIView.throttle_classes)\n"
    )
    root = Path(__file__).parent.parent.parent
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert "ProfileThrottle" in done.stdout, done.stderr


def test_mixin_limits_a_viewset():
    class Things(RateLimitMixin, ViewSet):
        rate_limit_profiles = ["wide"]

        def list(self, request):
            return Response([])

    response = Things.as_view({"get": "list"})(RequestFactory().get("/"))
    assert (response.status_code, response["RateLimit"]) == (200, '"wide";r=4;t=60')


class StaffAuthentication(BaseAuthentication):
    def authenticate(self, request):
        return User(pk=1, is_staff=True), None


class StaffView(View):
    authentication_classes = [StaffAuthentication]
    throttle_classes = [ProfileThrottle("closed")]


@pytest.mark.parametrize("rules", [[], [{"path": "^/", "profiles": ["wide"]}]])
def test_user_is_exempt_in_the_throttle_although_a_rule_has_counted_the_request(settings, rules):
    settings.SLIDING_WINDOW |= {"EXEMPT": ["staff"], "RULES": rules}
    view, request = StaffView.as_view(), RequestFactory().get("/")
    assert RateLimitMiddleware(view).process_view(request, view, (), {}) is None
    assert view(request).status_code == 200
