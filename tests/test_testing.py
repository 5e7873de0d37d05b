"""Projects can test their limits without Redis, and get exact results."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path

from django_slidingwindow import limits
from django_slidingwindow.conf import conf
from django_slidingwindow.decisions import ALLOWED, DENY, LIMIT, REDIS, UNLIMITED
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.models import Rejection
from django_slidingwindow.registry import registry
from django_slidingwindow.rejections import recorder
from django_slidingwindow.signals import limit_checked, request_limited
from django_slidingwindow.testing import FrozenClock, limits_disabled, limits_in_memory

ROOT = Path(__file__).parent.parent
NO_REDIS = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": "redis://127.0.0.1:1/0",
    }
}
PROFILES = {
    "login": {"axis": "ip", "rate": "5/m"},
    "broken": {"axis": "broken", "rate": "5/m"},
}


def broken(request):
    raise RuntimeError("no identity")


@rate_limit("login")
def sync_view(request):
    return HttpResponse()


@rate_limit("login")
async def async_view(request):
    return HttpResponse()


@rate_limit("broken")
def broken_view(request):
    return HttpResponse()


def plain_view(request):
    return HttpResponse()


urlpatterns = [
    path("sync/", sync_view),
    path("async/", async_view),
    path("broken/", broken_view),
    path("plain/", plain_view),
]


@pytest.fixture(autouse=True)
def _project():
    """Set up a project whose Redis cannot be reached."""
    with override_settings(
        ROOT_URLCONF=__name__,
        CACHES=NO_REDIS,
        SLIDING_WINDOW={
            "PROFILES": PROFILES,
            "IDENTITIES": {"broken": f"{__name__}.broken"},
            "RULES": [{"path": "^/plain/", "profiles": ["login"]}],
            "FALLBACK": "deny",
            "LOG": False,
        },
    ):
        yield


def statuses(url, number=6):
    client = Client()
    return [client.get(url).status_code for _ in range(number)]


FIVE_PASS = [200] * 5 + [429]


@pytest.mark.parametrize("url", ["/sync/", "/async/"])
def test_view_is_limited_again_after_its_window(url):
    with limits_in_memory() as clock:
        assert statuses(url) == FIVE_PASS
        clock.advance(59.999)
        assert statuses(url, 1) == [429]
        clock.advance(0.001)
        assert statuses(url) == FIVE_PASS


def test_deferred_profiles_are_charged_at_once_in_memory(settings):
    profiles = {"later": {"axis": "tenant", "rate": "2/m", "mode": "deferred"}}
    settings.SLIDING_WINDOW = {"PROFILES": profiles}
    with limits_in_memory():
        first, _, third = (limits.check("later", "acme") for _ in range(3))
        assert (first.source, third.source, third.allowed) == (REDIS, REDIS, False)
        assert limits.refund(first) == 1
        assert asyncio.run(limits.acheck("later", "acme")).allowed
        assert not limits.check("later", "acme").allowed


def test_middleware_counts_in_memory(settings):
    settings.MIDDLEWARE = ["django_slidingwindow.middleware.RateLimitMiddleware"]
    with limits_in_memory() as clock:
        assert statuses("/plain/") == FIVE_PASS
        clock.advance(60)
        assert statuses("/plain/") == FIVE_PASS


@pytest.mark.parametrize("url", ["/sync/", "/async/"])
async def test_async_client_counts_in_memory(url):
    client = AsyncClient()
    with limits_in_memory():
        responses = await asyncio.gather(*(client.get(url) for _ in range(20)))
    assert sorted(response.status_code for response in responses) == [200] * 5 + [429] * 15


def test_threads_count_together():
    found = []
    with limits_in_memory():
        threads = [
            threading.Thread(target=lambda: found.extend(statuses("/sync/", 5))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == [200] * 5 + [429] * 15


def test_decisions_look_as_in_production():
    with limits_in_memory():
        first = limits.check("login", "203.0.113.9", cost=5)
        second = limits.check("login", "203.0.113.9")
    assert (first.reason, first.source) == (ALLOWED, REDIS)
    assert (second.reason, second.source, second.retry_after) == (LIMIT, REDIS, 60.0)


async def test_functions_of_limits_work():
    with limits_in_memory():
        decision = limits.check("login", "acme", cost=5)
        assert limits.peek("login", "acme").remaining == 0
        assert limits.refund(decision) == 5
        assert (await limits.acheck("login", "acme", cost=5)).allowed
        assert limits.reset("login", "acme") == 1
        assert limits.check("login", "acme").allowed


async def test_acquire_moves_the_clock_instead_of_waiting():
    with limits_in_memory() as clock:
        limits.check("login", "acme", cost=5)
        start = clock()
        assert limits.acquire("login", "acme", cost=5).allowed
        assert clock() - start == 60_000_000
        assert (await limits.aacquire("login", "acme")).allowed
        assert clock() - start == 120_000_000
        assert not limits.acquire("login", "acme", cost=5, timeout=10).allowed


def test_signals_are_sent():
    seen = []

    def on_check(decision, **kwargs):
        seen.append("checked")

    def on_refusal(decision, **kwargs):
        seen.append("limited")

    limit_checked.connect(on_check)
    request_limited.connect(on_refusal)
    try:
        with limits_in_memory():
            statuses("/sync/")
    finally:
        limit_checked.disconnect(on_check)
        request_limited.disconnect(on_refusal)
    assert seen == ["checked"] * 6 + ["limited"]


@pytest.mark.django_db
def test_refusals_are_not_written_to_the_log(settings):
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "LOG": True}
    with limits_in_memory():
        assert statuses("/sync/") == FIVE_PASS
        recorder.flush()
        assert not Rejection.objects.exists()
    assert statuses("/sync/", 1) == [503]
    recorder.flush()
    assert Rejection.objects.get().reason == DENY


def test_overridden_settings_apply_and_hits_stay():
    with limits_in_memory():
        assert statuses("/sync/", 3) == [200] * 3
        smaller = {**conf.user, "PROFILES": {"login": {"axis": "ip", "rate": "3/m"}}}
        with override_settings(SLIDING_WINDOW=smaller):
            assert statuses("/sync/", 1) == [429]
        assert statuses("/sync/", 3) == [200, 200, 429]


def test_each_block_starts_with_empty_windows():
    with limits_in_memory():
        assert statuses("/sync/") == FIVE_PASS
    with limits_in_memory():
        assert statuses("/sync/") == FIVE_PASS


def test_inner_block_does_not_change_the_outer_one():
    with limits_in_memory():
        assert statuses("/sync/", 4) == [200] * 4
        with limits_in_memory():
            assert statuses("/sync/") == FIVE_PASS
        with limits_disabled():
            assert statuses("/sync/", 9) == [200] * 9
        assert statuses("/sync/", 2) == [200, 429]


def test_earlier_limiter_is_restored():
    before = limits.get_limiter()
    with limits_in_memory():
        assert limits.get_limiter() is not before
    assert limits.get_limiter() is before


def test_earlier_limiter_is_not_restored_when_settings_have_changed():
    before = limits.get_limiter()
    with limits_in_memory(), override_settings(SLIDING_WINDOW={"PREFIX": "other"}):
        assert limits.get_limiter().prefix == "other"
    assert limits.get_limiter() is not before
    assert limits.get_limiter().prefix == "throttle"


def test_everything_is_restored_when_a_test_fails():
    before = limits.get_limiter()
    with pytest.raises(ZeroDivisionError), limits_disabled():
        _ = 1 / 0
    assert conf.enabled
    assert limits.get_limiter() is before


def test_limits_in_memory_are_on_when_the_settings_disable_limits(settings):
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "ENABLED": False}
    assert statuses("/sync/", 9) == [200] * 9
    with limits_in_memory():
        assert statuses("/sync/") == FIVE_PASS
    assert statuses("/sync/", 9) == [200] * 9


@pytest.mark.parametrize("url", ["/sync/", "/async/", "/broken/"])
def test_views_are_not_limited_when_limits_are_disabled(url):
    with limits_disabled():
        responses = [Client().get(url) for _ in range(9)]
    assert [response.status_code for response in responses] == [200] * 9
    assert "RateLimit" not in responses[0]


async def test_functions_of_limits_allow_everything_when_limits_are_disabled():
    with limits_disabled():
        for _ in range(9):
            assert limits.check("login", "acme").reason == UNLIMITED
        assert (await limits.acheck("login", "acme", cost=100)).allowed
        assert limits.acquire("login", "acme").allowed
        assert limits.reset("login", "acme") == 0
        with pytest.raises(ImproperlyConfigured):
            limits.check("no such profile", "acme")


def test_limits_stay_disabled_when_settings_are_overridden():
    with limits_disabled(), override_settings(SLIDING_WINDOW={"PROFILES": PROFILES}):
        assert statuses("/sync/", 9) == [200] * 9
        assert registry.get("login").axis == "ip"
    assert conf.enabled


def test_project_without_redis_refuses_every_request():
    assert statuses("/sync/", 1) == [503]


def test_clock_advances_by_seconds_and_timedeltas():
    clock = FrozenClock()
    start = clock()
    clock.advance(1.5)
    clock.advance(timedelta(minutes=1))
    clock.advance(0)
    assert clock() - start == 61_500_000


@pytest.mark.parametrize("seconds", [-1, float("nan"), timedelta(seconds=-1)])
def test_clock_does_not_go_back(seconds):
    with pytest.raises(ValueError, match="does not go back"):
        FrozenClock().advance(seconds)


def test_fixture_counts_in_memory(rate_limits_in_memory):
    assert statuses("/sync/") == FIVE_PASS
    rate_limits_in_memory.advance(60)
    assert statuses("/sync/") == FIVE_PASS


@pytest.mark.usefixtures("rate_limits_in_memory")
def test_fixture_uses_the_clock_fixture(rate_limit_clock):
    assert statuses("/sync/") == FIVE_PASS
    rate_limit_clock.advance(60)
    assert statuses("/sync/") == FIVE_PASS


@pytest.mark.usefixtures("rate_limits_off")
def test_fixture_disables_limits():
    assert statuses("/sync/", 9) == [200] * 9


def test_plugin_works_in_a_project_of_its_own(tmp_path):
    """Run pytest as a user does: in a new process, with its own settings, without Redis."""
    (tmp_path / "site_settings.py").write_text(
        textwrap.dedent(
            f"""
            SECRET_KEY = "x"
            ROOT_URLCONF = "site_urls"
            INSTALLED_APPS = ["django_slidingwindow"]
            CACHES = {NO_REDIS!r}
            SLIDING_WINDOW = {{"PROFILES": {{"login": {{"axis": "ip", "rate": "5/m"}}}}}}
            """
        )
    )
    (tmp_path / "site_urls.py").write_text(
        textwrap.dedent(
            """
            from django.http import HttpResponse
            from django.urls import path
            from django_slidingwindow.decorators import rate_limit

            @rate_limit("login")
            def login(request):
                return HttpResponse()

            urlpatterns = [path("login/", login)]
            """
        )
    )
    (tmp_path / "test_site.py").write_text(
        textwrap.dedent(
            """
            def test_login_is_limited(client, rate_limits_in_memory):
                for _ in range(5):
                    assert client.get("/login/").status_code == 200
                assert client.get("/login/").status_code == 429
                rate_limits_in_memory.advance(60)
                assert client.get("/login/").status_code == 200

            def test_login_is_free(client, rate_limits_off):
                assert {client.get("/login/").status_code for _ in range(9)} == {200}
            """
        )
    )
    options = ["-p", "django_slidingwindow.pytest_plugin", "-p", "no:asyncio", "--ds=site_settings"]
    ini = tmp_path / "pytest.ini"
    ini.write_text(f"[pytest]\npythonpath = . {ROOT}\nfilterwarnings = error\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-c", ini, tmp_path],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
