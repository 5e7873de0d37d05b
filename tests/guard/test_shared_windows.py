"""Anonymous requests that a view refuses do not use up windows that all clients share."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.decorators import login_required
from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import require_POST

from django_slidingwindow import limits
from django_slidingwindow.decorators import RateLimitMixin, rate_limit

MIDDLEWARE = "django_slidingwindow.middleware.RateLimitMiddleware"
limited = rate_limit("everybody")


def page(request):
    return HttpResponse()


async def async_page(request):
    return HttpResponse()


class Page(View):
    def post(self, request):
        return HttpResponse()


class AsyncPage(View):
    async def post(self, request):
        return HttpResponse()


class Mixed(LoginRequiredMixin, RateLimitMixin, Page):
    rate_limit_profiles = "everybody"


def on_dispatch(view, *decorators):
    return method_decorator(decorators, name="dispatch")(type("Page", (view,), {})).as_view()


INSIDE = {
    "function": login_required(limited(page)),
    "async_function": login_required(limited(async_page)),
    "method": require_POST(login_required(limited(page))),
    "below_another": rate_limit("own")(login_required(limited(page))),
    "mixin": Mixed.as_view(),
    "dispatch": on_dispatch(Page, login_required, limited),
    "async_dispatch": on_dispatch(AsyncPage, login_required, limited),
    "around_as_view": login_required(limited(Page.as_view())),
    "decorated_mixin": method_decorator(login_required, name="dispatch")(
        type("Decorated", (RateLimitMixin, Page), {"rate_limit_profiles": "everybody"})
    ).as_view(),
}
urlpatterns = [path(f"{name}/", view) for name, view in INSIDE.items()]
urlpatterns += [path("outside/", limited(login_required(page)))]

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _project(settings, redis):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    settings.SLIDING_WINDOW = {
        "LOG": False,
        "LATENCY_BUDGET": 10,
        "PROFILES": {
            "everybody": {"axis": "global", "rate": "2/m"},
            "own": {"axis": "ip", "rate": "1000/m"},
        },
        "RULES": [{"profiles": "own"}],
    }


@pytest.fixture(params=["sync", "async"])
def post(request):
    """Send a POST through Django's sync or async handler."""

    def ask(url, user=None):
        client = Client() if request.param == "sync" else AsyncClient()
        if user is not None:
            client.force_login(user)
        return (client.post if request.param == "sync" else async_to_sync(client.post))(url)

    return ask


def used(profile, identifier):
    decision = limits.peek(profile, identifier, cost=0)
    return decision.limit - decision.remaining


@pytest.mark.parametrize("rules", [[{"profiles": "own"}], []], ids=["rule", "no rule"])
@pytest.mark.parametrize("view", INSIDE)
def test_anonymous_users_do_not_use_up_a_window_inside_login_required(settings, post, view, rules):
    settings.SLIDING_WINDOW |= {"RULES": rules}
    for _ in range(5):
        assert post(f"/{view}/").status_code == 302
        assert Client().get(f"/{view}/").status_code in (302, 405)
    assert used("everybody", "all") == 0
    user = User.objects.create(username="somebody")
    assert [post(f"/{view}/", user).status_code for _ in range(3)] == [200, 200, 429]
    # The rule, and a limit outside `login_required`, count the requests that were turned away too.
    assert used("own", "127.0.0.1") == (13 if rules or view == "below_another" else 0)


def test_limit_above_login_required_counts_anonymous_users(post):
    assert [post("/outside/").status_code for _ in range(3)] == [302, 302, 429]
    assert used("own", "127.0.0.1") == 2, "in one call with the rule"
